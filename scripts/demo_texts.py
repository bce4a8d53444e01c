#!/usr/bin/env python3
"""Prints every text of the demo dataset that needs a vector, as JSON lines.

Usage: python3 scripts/demo_texts.py [data/demo]

A line is {"kind": ..., "text": ...} with kind one of passages, sentences,
entities, questions and question_entities; scripts/embed_texts.py reads them.
Each text is printed once for each kind, in the order of first appearance.
"""

import json
import pathlib
import sys

DROPPED = ("ORDINAL", "CARDINAL")


def kept(entities):
    return [e["text"] for e in entities if e["label"] not in DROPPED]


def texts(folder):
    corpus = json.loads((folder / "demo_corpus.json").read_text(encoding="utf-8"))
    questions = json.loads((folder / "demo.json").read_text(encoding="utf-8"))

    def rows(name):
        with open(folder / name, encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    annotations, question_rows = rows("annotations.jsonl"), rows("question_entities.jsonl")
    passages = [f"{i}:{p['title']}\n{p['text']}" for i, p in enumerate(corpus)]
    for passage in passages:
        yield "passages", passage
    for row in annotations:
        for s in row["sentences"]:
            if kept(s["entities"]):
                yield "sentences", passages[row["passage"]][s["start"] : s["end"]]
    for row in annotations:
        for s in row["sentences"]:
            for entity in kept(s["entities"]):
                yield "entities", entity
    for q in questions:
        yield "questions", q["question"]
    for row in question_rows:
        for entity in kept(row["entities"]):
            yield "question_entities", entity.lower()


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "data/demo")
    for kind, text in dict.fromkeys(texts(folder)):
        print(json.dumps({"kind": kind, "text": text}, ensure_ascii=False))


if __name__ == "__main__":
    main()
