#!/usr/bin/env python3
"""Embeds texts with a sentence-transformers model and writes Parquet files.

Usage: ... | python3 scripts/embed_texts.py --model FOLDER --out DIR
                                            [--encoder-name NAME]

Reads JSON lines {"kind": K, "text": T} on standard input, where K is one of
passages, sentences, entities, questions, question_entities and templates, and
writes DIR/K.parquet for every kind it saw, a row for each distinct text in
order of first appearance:

  text    string
  vector  fixed-size list of float32, L2-normalised

The schema metadata has `encoder` (--encoder-name, or else
sentence-transformers/ and the name of the model's folder), `normalized` and
`truncated_at_tokens` (the model's own limit).

FOLDER is any model that sentence-transformers loads; nothing is downloaded.
Needs: pip install sentence-transformers pyarrow
"""

import argparse
import json
import os
import pathlib
import sys

KINDS = ("passages", "sentences", "entities", "questions", "question_entities", "templates")


def read_texts(stream):
    """The distinct texts of each kind, in order of first appearance."""
    found = {}
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            kind, text = row["kind"], row["text"]
        except (ValueError, KeyError, TypeError) as e:
            sys.exit(f"line {number}: not a {{\"kind\", \"text\"}} object: {e!r}")
        if kind not in KINDS:
            sys.exit(f"line {number}: unknown kind {kind!r}; known: {', '.join(KINDS)}")
        if not isinstance(text, str):
            sys.exit(f"line {number}: text is not a string")
        found.setdefault(kind, {})[text] = None
    return {kind: list(found[kind]) for kind in KINDS if kind in found}


def write_parquet(path, texts, vectors, metadata):
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(vectors.reshape(-1), type=pa.float32())
    table = pa.table(
        {
            "text": pa.array(texts, type=pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    ).replace_schema_metadata(metadata)
    part = path.with_name(path.name + ".part")
    pq.write_table(table, part, compression="zstd", compression_level=9, use_dictionary=False)
    part.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True, type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="DIR")
    parser.add_argument("--encoder-name", metavar="NAME")
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    if not args.model.is_dir():
        sys.exit(f"{args.model}: no such folder")
    texts = read_texts(sys.stdin)
    if not texts:
        sys.exit("no texts on standard input")

    os.environ["HF_HUB_OFFLINE"] = "1"
    import numpy as np
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(args.model), device="cpu")
    metadata = {
        "encoder": args.encoder_name or f"sentence-transformers/{args.model.resolve().name}",
        "normalized": "l2",
        "truncated_at_tokens": str(model.max_seq_length),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    for kind, rows in texts.items():
        vectors = model.encode(
            rows,
            batch_size=args.batch_size,
            convert_to_numpy=True,
            normalize_embeddings=True,
            show_progress_bar=False,
        ).astype(np.float32)
        # A second pass in double precision: the model's own step is in f32.
        wide = vectors.astype(np.float64)
        vectors = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
        write_parquet(args.out / f"{kind}.parquet", rows, vectors, metadata)
        print(f"{kind}: {len(rows)} texts, {vectors.shape[1]} dimensions", file=sys.stderr)


if __name__ == "__main__":
    main()
