#!/usr/bin/env python3
"""Holds our encoders against sentence-transformers and Hugging Face transformers: same vectors, same logits, which is faster.

In:  `texts MODEL --corpus CORPUS.json`    a sentence encoder's folder, and passages (a list of {title, text} or of strings, or texts by title)
     `pairs FOLDER`                        a folder to lay DeBERTa in large shape into (random weights, 1.2 GB), if it is not there
Out: agreement and throughput of both sides, in turn, on standard output. Two threads each unless --threads.

     python3 -m venv venv && venv/bin/pip install torch transformers sentence-transformers
     cargo build --release --example encode_texts && cargo build --release
     venv/bin/python scripts/bench_encoders.py texts models/all-mpnet-base-v2 --corpus ../shared/data/hotpotqa_train/hotpotqa_train_corpus.json
     venv/bin/python scripts/bench_encoders.py pairs /tmp/deberta-large
"""

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

REPOSITORY = Path(__file__).resolve().parent.parent


def odd_texts():
    """What a corpus does not have: empty, one token, far over the limit, other scripts."""
    return ["", " ", "a", ".", "Zürich", "Δοκιμή με ελληνικά", "Поезд ушёл в семь утра.", "列车早上七点出发。", "غادر القطار في السابعة.",
            "ट्रेन सुबह सात बजे गई।", "기차는 일곱 시에 떠났다.", "🚂🕖", "naïve café résumé", "tab\tand\nline", "x" * 300, "word " * 5000,
            " ".join(f"Platform {i} is closed." for i in range(400)), "列车" * 2000]


def passages(path):
    rows = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    if isinstance(rows, dict):
        return [f"{title}\n{' '.join(text) if isinstance(text, list) else text}" for title, text in rows.items()]
    return [r if isinstance(r, str) else f"{r['title']}\n{r['text']}" for r in rows]


def sentences(texts):
    return [s.strip() for t in texts for s in re.split(r"(?<=[.!?])\s+", t) if 20 <= len(s.strip()) <= 400]


def ours(args, texts, precision="f32"):
    with tempfile.TemporaryDirectory() as tmp:
        source, out = Path(tmp) / "texts.jsonl", Path(tmp) / "vectors.f32"
        source.write_text("".join(json.dumps(t) + "\n" for t in texts))
        program = [str(args.examples / "encode_texts"), str(args.model), str(source), str(out)] + ([precision] if precision != "f32" else [])
        said = subprocess.run(program, check=True, capture_output=True, text=True, env=environment(args)).stdout.strip()
        return np.fromfile(out, dtype="<f4").reshape(len(texts), -1), said


def environment(args):
    return {**os.environ, "RAYON_NUM_THREADS": str(args.threads)}


def busy(children=False):
    """Processor seconds so far: on a machine that others use they say more than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def texts_command(args):
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(str(args.model), device="cpu")
    corpus = passages(args.corpus)
    short = sentences(corpus)[:1000]
    mixed = odd_texts() + corpus[:60] + short[:200]
    mixed = mixed[:200]
    theirs = model.encode(mixed, convert_to_numpy=True, normalize_embeddings=True)
    for precision in ["f32", "bf16"]:
        vectors, _ = ours(args, mixed, precision)
        cosine = (vectors.astype(np.float64) * theirs).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(theirs, axis=1)
        print(f"{len(mixed)} texts, {precision}: lowest cosine {cosine.min():.8f} (text {int(cosine.argmin())}), mean {cosine.mean():.8f}", flush=True)
    for name, texts in [("sentences", short), ("passages", corpus[:200])]:
        for turn in range(args.turns):
            start, before = time.perf_counter(), busy()
            theirs = model.encode(texts, batch_size=32, convert_to_numpy=True)
            took, used = time.perf_counter() - start, busy() - before
            print(f"{name}: sentence-transformers {len(texts) / took:.2f} texts/s, {used:.1f} processor seconds", flush=True)
            for precision in ["f32", "bf16"]:
                before = busy(children=True)
                vectors, said = ours(args, texts, precision)
                used = busy(children=True) - before
                cosine = (vectors * theirs).sum(1)
                print(f"{name}: ours {precision}: {said}; {used:.1f} processor seconds with loading; lowest cosine {cosine.min():.7f}", flush=True)


def pair_texts(n):
    """Pairs of 30 to 250 tokens of the tiny vocabulary, lengths spread evenly."""
    words = "the old road is at a river in the ferry station bridge noon".split()
    rng = np.random.default_rng(7)
    rows = []
    for i in range(n):
        tokens = 30 + (220 * i) // max(n - 1, 1)
        hypothesis = 12
        word = lambda k: " ".join(rng.choice(words, k))
        rows.append({"premise": word(tokens - hypothesis - 3), "hypothesis": word(hypothesis), "label": "-"})
    return rows


def lay_large(folder):
    import make_encoder_cases as cases
    import transformers
    config = transformers.DebertaV2Config(**{
        **cases.DEBERTA, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
        "vocab_size": 1000, "max_position_embeddings": 512, "position_buckets": 256, "hidden_act": "gelu",
        "id2label": dict(enumerate(cases.LABELS)), "label2id": {n: i for i, n in enumerate(cases.LABELS)}})
    model = transformers.DebertaV2ForSequenceClassification(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(cases.formula(name, tuple(p.shape)))
    cases.save(folder, model, cases.bert_tokenizer(), torch.float32, 512)


def pairs_command(args):
    import make_encoder_cases as cases
    import transformers
    if not (args.model / "model.safetensors").is_file():
        lay_large(args.model)
    rows = pair_texts(64)
    tokenizer = cases.hf_tokenizer(cases.bert_tokenizer(), "bert")
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]["premise"]))

    def theirs(model, batch):
        out = np.zeros((len(rows), 3), dtype=np.float32)
        start, before = time.perf_counter(), busy()
        with torch.inference_mode():
            for at in range(0, len(order), batch):
                own = order[at:at + batch]
                enc = tokenizer([rows[i]["premise"] for i in own], [rows[i]["hypothesis"] for i in own], padding=True, return_tensors="pt")
                enc.pop("token_type_ids", None)
                out[own] = model(**enc).logits.float().numpy()
        return out, len(rows) / (time.perf_counter() - start), busy() - before

    with tempfile.TemporaryDirectory() as tmp:
        source = Path(tmp) / "pairs.jsonl"
        source.write_text("".join(json.dumps(r) + "\n" for r in rows))
        for turn in range(args.turns):
            for dtype in [torch.float32, torch.bfloat16]:
                model = transformers.DebertaV2ForSequenceClassification.from_pretrained(args.model, dtype=dtype).eval()
                for batch in args.batches:
                    logits, speed, used = theirs(model, batch)
                    print(f"transformers {str(dtype)[6:]}, batch {batch}: {speed:.2f} pairs/s, {used:.1f} processor seconds", flush=True)
                if dtype == torch.float32:
                    reference = logits
                else:
                    print(f"  largest difference to fp32 {np.abs(logits - reference).max():.1e}", flush=True)
                del model
            for precision in ["f32", "bf16"]:
                out = Path(tmp) / f"logits-{precision}-{turn}.jsonl"
                program = [str(args.livingrag), "nli", "eval", str(source), "--model", str(args.model), "--precision", precision,
                           "--logits", str(out), "--threads", str(args.threads)]
                before = busy(children=True)
                said = subprocess.run(program, check=True, capture_output=True, text=True).stdout
                used = busy(children=True) - before
                speed = re.search(r"pairs/s +(\S+)", said).group(1)
                logits = np.array([json.loads(line)["logits"] for line in out.read_text().splitlines()])
                print(f"ours {precision}: {speed} pairs/s, {used:.1f} processor seconds with loading, largest difference to transformers fp32 {np.abs(logits - reference).max():.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["texts", "pairs"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--examples", type=Path, default=REPOSITORY / "target/release/examples")
    parser.add_argument("--livingrag", type=Path, default=REPOSITORY / "target/release/livingrag")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    {"texts": texts_command, "pairs": pairs_command}[args.what](args)


if __name__ == "__main__":
    main()
