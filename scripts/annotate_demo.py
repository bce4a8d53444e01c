#!/usr/bin/env python3
"""Annotates the demo dataset with its gazetteer and checks the questions.

Usage: python3 scripts/annotate_demo.py [--check] [data/demo]

Reads demo_corpus.json, demo.json and gazetteer.tsv and writes
annotations.jsonl and question_entities.jsonl beside them. It needs no model
and no package outside the standard library, and gives the same bytes on every
run. With --check it writes nothing and fails where a file differs from what it
would write.

Offsets are Unicode code points. A passage is annotated as
"{i}:{title}\\n{text}"; a sentence ends only at a sentence mark, so the first
sentence holds the number, the title and the first sentence of the text.
"""

import argparse
import json
import pathlib
import re
import sys

MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
)
DAYS = "Mondays?|Tuesdays?|Wednesdays?|Thursdays?|Fridays?|Saturdays?|Sundays?"
WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|forty|fifty|sixty"
ORDINALS = "first|second|third"
NUMBER = r"\d{1,3}(?:,\d{3})+|\d+"

# Patterns beside the gazetteer. Where two matches have the same length the
# earlier one in this list wins, and the gazetteer wins over all of them.
PATTERNS = [
    ("DATE", rf"(?:\d{{1,2}} )?(?:{MONTHS})(?: \d{{4}})?"),
    ("DATE", DAYS),
    ("DATE", rf"(?:\d+|{WORDS}) (?:days|weeks|months|years)"),
    ("DATE", r"(?:1[5-9]|20)\d\d"),
    ("TIME", rf"(?:\d+|{WORDS}) (?:minutes|hours)"),
    ("MONEY", r"\d+ crowns"),
    ("PERCENT", r"\d+ percent"),
    ("QUANTITY", r"\d+ metres"),
    ("CARDINAL", NUMBER),
    ("CARDINAL", WORDS),
    ("ORDINAL", ORDINALS),
]

SENTENCE_END = re.compile(r"[.!?][\"')\]]*(?=\s+[\"'(\[]?[A-Z0-9])")


def load_gazetteer(path):
    """Rows of label, tab, surface; lines that start with # are comments."""
    rows, seen = [], set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        label, surface = line.split("\t")
        if surface in seen:
            sys.exit(f"{path}:{number}: {surface!r} is listed twice")
        seen.add(surface)
        rows.append((label, surface))
    return rows


def compile_patterns(gazetteer):
    rows = [(label, re.escape(surface)) for label, surface in gazetteer] + PATTERNS
    return [
        (rank, label, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)"))
        for rank, (label, pattern) in enumerate(rows)
    ]


def find_entities(patterns, text, start=0, end=None):
    """Non-overlapping matches in text[start:end], the longest first."""
    end = len(text) if end is None else end
    found = []
    for rank, label, pattern in patterns:
        for m in pattern.finditer(text, start, end):
            found.append((m.start() - m.end(), rank, m.start(), m.end(), label))
    taken, kept = [False] * (len(text) + 1), []
    for _, _, a, b, label in sorted(found):
        if not any(taken[a:b]):
            taken[a:b] = [True] * (b - a)
            kept.append({"text": text[a:b], "label": label, "start": a, "end": b})
    return sorted(kept, key=lambda e: e["start"])


def split_sentences(text):
    """Spans of the sentences, without the white space between them."""
    spans, start = [], 0
    for m in SENTENCE_END.finditer(text):
        spans.append((start, m.end()))
        start = m.end()
        while text[start].isspace():
            start += 1
    end = len(text.rstrip())
    if start < end:
        spans.append((start, end))
    return spans


def annotate_passage(patterns, i, passage):
    text = f"{i}:{passage['title']}\n{passage['text']}"
    return {
        "passage": i,
        "sentences": [
            {"start": a, "end": b, "entities": find_entities(patterns, text, a, b)}
            for a, b in split_sentences(text)
        ],
    }


def words(text):
    return re.findall(r"[a-z0-9]+", text.lower())


STOP_WORDS = set(
    "a an and are at be because by can do for how i if in is it its my no not of on or so"
    " the to up what which with yes you your".split()
)


def check_questions(corpus, questions, annotations):
    """Every way in which a question is not borne out by its passages."""
    problems = []
    titles = [p["title"] for p in corpus]
    if len(set(titles)) != len(titles):
        problems.append("two passages share a title")
    at = {title: i for i, title in enumerate(titles)}
    if len({q["question"] for q in questions}) != len(questions):
        problems.append("two questions have the same text")

    def names(i):
        return {
            e["text"]
            for s in annotations[i]["sentences"]
            for e in s["entities"]
            if e["label"] not in ("CARDINAL", "ORDINAL", "DATE", "TIME")
        }

    for n, q in enumerate(questions, 1):
        def bad(what):
            problems.append(f"{q['_id']}: {what}")

        if q["_id"] != f"demo-{n:03}":
            bad(f"should be demo-{n:03}")
        if q["type"] not in ("bridge", "comparison", "support"):
            bad(f"unknown type {q['type']}")
        evidence = []
        for title, s in q["supporting_facts"]:
            if title not in at:
                bad(f"no passage is called {title!r}")
                continue
            text = corpus[at[title]]["text"]
            spans = split_sentences(text)
            if not 0 <= s < len(spans):
                bad(f"{title!r} has no sentence {s}")
                continue
            evidence.append(f"{title}\n{text[spans[s][0]:spans[s][1]]}")
        gold = list(dict.fromkeys(t for t, _ in q["supporting_facts"] if t in at))
        joined = "\n".join(evidence)
        if q["type"] == "support":
            known = set(words(joined))
            missing = [w for w in words(q["answer"]) if w not in known | STOP_WORDS]
            if missing:
                bad(f"answer words not in the passage: {missing}")
        else:
            if len(gold) != 2:
                bad(f"{len(gold)} supporting passages, not 2")
            if q["answer"] in ("yes", "no"):
                if q["type"] != "comparison":
                    bad("a yes/no answer on a bridge question")
            elif q["answer"].lower() not in joined.lower():
                bad(f"answer {q['answer']!r} is not in the supporting sentences")
            if q["type"] == "bridge" and len(gold) == 2:
                if not names(at[gold[0]]) & names(at[gold[1]]):
                    bad("the two passages share no entity")
    return problems


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", default="data/demo", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()

    folder = args.folder
    corpus = json.loads((folder / "demo_corpus.json").read_text(encoding="utf-8"))
    questions = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
    patterns = compile_patterns(load_gazetteer(folder / "gazetteer.tsv"))

    annotations = [annotate_passage(patterns, i, p) for i, p in enumerate(corpus)]
    question_entities = [
        {"question": i, "entities": find_entities(patterns, q["question"])}
        for i, q in enumerate(questions)
    ]
    problems = check_questions(corpus, questions, annotations)
    for name, text in (
        ("annotations.jsonl", lines(annotations)),
        ("question_entities.jsonl", lines(question_entities)),
    ):
        path = folder / name
        if not args.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            problems.append(f"{path} is not what this script would write")
    for problem in problems:
        print(problem, file=sys.stderr)
    counts = {t: sum(q["type"] == t for q in questions) for t in ("bridge", "comparison", "support")}
    print(
        f"{len(corpus)} passages, {sum(len(a['sentences']) for a in annotations)} sentences,"
        f" {len(questions)} questions ({', '.join(f'{n} {t}' for t, n in counts.items())}),"
        f" {sum(not q['entities'] for q in question_entities)} questions without an entity,"
        f" {len(problems)} problems"
    )
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
