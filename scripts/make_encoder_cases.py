#!/usr/bin/env python3
"""Makes tests/cases/encoders/: small encoders with random weights, and what Hugging Face makes of them.

In:  nothing but a seed. Out: a model folder a case (config.json, tokenizer.json, model.safetensors in half precision) with
     expected.json: token ids and the logits, or texts and the vectors, that transformers or sentence-transformers gives in fp32; and
     shapes.json: logits of DeBERTa in base and large shape, whose weights come from a formula that the tests compute as well.

     python3 -m venv venv && venv/bin/pip install torch transformers sentence-transformers
     venv/bin/python scripts/make_encoder_cases.py tests/cases/encoders [small|shapes|real MODELS]

With `real`: vectors of a few texts by all-MiniLM-L6-v2 and all-mpnet-base-v2, which lie in the folder MODELS, as sentence-transformers
gives them, in half precision.

The versions used are in the output. Every text here was written for this purpose.
"""

import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

VERSIONS = {
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "sentence-transformers": sentence_transformers.__version__,
    "tokenizers": tokenizers.__version__,
}
LABELS = ["contradiction", "entailment", "neutral"]
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=128,
             vocab_size=120, hidden_act="gelu")
DEBERTA = dict(relative_attention=True, pos_att_type="p2c|c2p", share_att_key=True, position_buckets=16, max_relative_positions=-1,
               norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0, layer_norm_eps=1e-7, pad_token_id=0)

TEXTS = [
    "",
    "a",
    "The ferry leaves at noon.",
    "Two rivers meet below the old mill, and the road follows the smaller one.",
    "naïve café, ÉCOLE",
    "река 川 نهر",
    "   spaces\tand\n lines   ",
    " ".join(f"station {i} lies before station {i + 1}." for i in range(60)),
]
PAIRS = [
    ("The ferry leaves at noon.", "The ferry does not leave at noon."),
    ("A cook slices bread in a small kitchen.", "Somebody is cooking."),
    ("The bridge was closed in 1904.", ""),
    ("", "The bridge was closed."),
    (TEXTS[-1], "Station 3 lies before station 4."),
]


def tiny_tokenizer(special, doubled):
    """WordPiece over letters, digits and a few words; `special` are the first ids, of which cls, sep, unk and pad are named."""
    words = ["the", "a", "is", "at", "in", "old", "road", "river", "ferry", "##er", "##ing", "noon", "bridge", "station"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocab = list(special.values()) + words + [*letters[1:], *("##" + c for c in letters), *"0123456789", *("##" + c for c in "0123456789"),
                                              *".,-'"]
    assert len(set(vocab)) == len(vocab) <= SMALL["vocab_size"], len(vocab)
    ids = {w: i for i, w in enumerate(vocab)}
    t = Tokenizer(models.WordPiece(ids, unk_token=special["unk"], max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cls, sep = special["cls"], special["sep"]
    t.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} {sep} $B {sep}" if doubled else f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, ids[cls]), (sep, ids[sep])])
    t.add_special_tokens(list(special.values()))
    return t


def bert_tokenizer():
    return tiny_tokenizer(dict(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]"), False)


def roberta_tokenizer():
    return tiny_tokenizer(dict(cls="<s>", pad="<pad>", sep="</s>", unk="<unk>"), True)


def hf_tokenizer(t, family):
    names = dict(cls_token="<s>", pad_token="<pad>", sep_token="</s>", unk_token="<unk>") if family != "bert" else dict(
        cls_token="[CLS]", pad_token="[PAD]", sep_token="[SEP]", unk_token="[UNK]")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=128, **names,
                                                model_input_names=["input_ids", "token_type_ids", "attention_mask"])


def randomise(model, name):
    """Weights far larger than a fresh model's, so that logits and vectors differ from text to text; rounded to half precision."""
    torch.manual_seed(zlib.crc32(name.encode()))
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            x = torch.randn(p.shape)
            if "LayerNorm" in key and key.endswith("weight"):
                x = 1 + 0.2 * x
            elif p.dim() == 1:
                x = 0.2 * x
            elif "embeddings" not in key and "relative_attention_bias" not in key:
                x = 1.5 * x / np.sqrt(p[0].numel())
            p.copy_(x.half().float())
    return model.float().eval()


def token_inputs(lengths, types):
    out = []
    for n in lengths:
        ids = hashed(f"ids.{n}", n, 24) % np.uint64(SMALL["vocab_size"] - 8) + np.uint64(5)
        out.append({"ids": [int(i) for i in ids], "types": [int(types and 2 * i >= n) for i in range(n)]})
    return out


def run(model, inputs, pad):
    """Logits of inputs alone and in one padded batch."""
    def batch(members):
        longest = max(len(m["ids"]) for m in members)
        row = lambda key, fill: torch.tensor([m[key] + [fill] * (longest - len(m[key])) for m in members])
        mask = torch.tensor([[1] * len(m["ids"]) + [0] * (longest - len(m["ids"])) for m in members])
        args = dict(input_ids=row("ids", pad), attention_mask=mask)
        if getattr(model.config, "type_vocab_size", 0) > 1:
            args["token_type_ids"] = row("types", 0)
        with torch.no_grad():
            return model(**args).logits

    return torch.cat([batch([m]) for m in inputs]), batch(inputs)


def rows(x):
    return [[float(np.float32(v)) for v in r] for r in np.asarray(x)]


def write(path, value):
    """JSON, an entry of the outermost lists a line."""
    one = lambda v: json.dumps(v, ensure_ascii=False)
    many = lambda v: "[\n  " + ",\n  ".join(map(one, v)) + "\n ]" if isinstance(v, list) and v and isinstance(v[0], (dict, list)) else one(v)
    if isinstance(value, dict):
        text = "{\n " + ",\n ".join(f"{one(k)}: {many(v)}" for k, v in value.items()) + "\n}"
    else:
        text = many(value)
    path.write_text(text + "\n")


def save_tensors(tensors, path):
    """As a file that everybody may read."""
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def save(folder, model, tokenizer, dtype=torch.float16, limit=128):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = {k: v for k, v in json.loads(model.config.to_json_string(use_diff=True)).items() if k not in ("dtype", "torch_dtype")}
    config["architectures"] = [type(model).__name__]
    write(folder / "config.json", config)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write(folder / "tokenizer_config.json", {"model_max_length": limit})
    save_tensors({k: v.to(dtype).contiguous() for k, v in model.state_dict().items() if v.is_floating_point()}, folder / "model.safetensors")


def classifier(root, name, kind, config, tokenizer, family="bert", dtype=torch.float16, lengths=(1, 2, 9, 40, 100), extra=()):
    config.id2label, config.label2id = dict(enumerate(LABELS)), {n: i for i, n in enumerate(LABELS)}
    model = randomise(kind(config), name)
    if dtype != torch.float16:
        model = model.to(dtype).float()
    save(root / name, model, tokenizer, dtype)
    inputs = token_inputs(lengths, getattr(config, "type_vocab_size", 0) > 1) + [dict(e) for e in extra]
    alone, padded = run(model, inputs, config.pad_token_id)
    hf = hf_tokenizer(tokenizer, family)
    pairs = []
    for premise, hypothesis in PAIRS:
        # As a list: an empty text_pair alone would be taken for none at all.
        enc = hf([premise], [hypothesis], truncation="only_first", max_length=128, return_tensors="pt")
        if getattr(model.config, "type_vocab_size", 0) < 2:
            enc.pop("token_type_ids", None)
        with torch.no_grad():
            logits = model(**enc).logits
        pairs.append({"premise": premise, "hypothesis": hypothesis, "ids": enc["input_ids"][0].tolist(), "logits": rows(logits)[0]})
    write(root / name / "expected.json", {
        "versions": VERSIONS, "padded_against_alone": float((alone - padded).abs().max()),
        "inputs": [{**i, "logits": l} for i, l in zip(inputs, rows(alone))], "pairs": pairs})
    print(f"{name}: logits {alone.std(0).tolist()}, padded differs by {(alone - padded).abs().max():.1e}")


def sentence(root, name, kind, config, tokenizer, pooling, limit, dtype=torch.float16):
    folder = root / name
    save(folder, randomise(kind(config), name), tokenizer, dtype)
    write(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    write(folder / "1_Pooling/config.json", {
        "word_embedding_dimension": config.hidden_size, "pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False})
    write(folder / "sentence_bert_config.json", {"max_seq_length": limit, "do_lower_case": False})
    hf = hf_tokenizer(tokenizer, "bert" if config.model_type == "bert" else "roberta")
    config_text = (folder / "tokenizer_config.json").read_text()
    hf.save_pretrained(folder)
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu").float().eval()
    vectors = model.encode(TEXTS, batch_size=len(TEXTS), convert_to_numpy=True)
    for left in ("special_tokens_map.json", "added_tokens.json"):
        (folder / left).unlink(missing_ok=True)
    (folder / "tokenizer_config.json").write_text(config_text)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "2_Normalize").rmdir()
    write(folder / "expected.json", {"versions": VERSIONS, "texts": [{"text": t, "vector": v} for t, v in zip(TEXTS, rows(vectors))]})
    print(f"{name}: cosine of two texts {float(vectors[2] @ vectors[3]):.3f}")


# Weights by formula, for models too large to keep.

def hashed(name, n, bits):
    """`bits` bits of splitmix64 seeded with FNV-1a of the name, for i = 1 … n."""
    seed = np.uint64(0xCBF29CE484222325)
    with np.errstate(over="ignore"):
        for byte in name.encode():
            seed = (seed ^ np.uint64(byte)) * np.uint64(0x100000001B3)
        z = seed + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z >> np.uint64(64 - bits)


def formula(name, shape):
    """u in [-1, 1) by hash, times a scale that depends on the kind of tensor; products in fp32."""
    n = int(np.prod(shape))
    u = (hashed(name, n, 24).astype(np.float32) - np.float32(1 << 23)) / np.float32(1 << 23)
    if name.endswith("LayerNorm.weight"):
        x = u * np.float32(0.25) + np.float32(1.0)
    elif len(shape) == 1:
        x = u * np.float32(0.125)
    elif "embeddings" in name:
        x = u
    else:
        x = u * (np.float32(1.5) / np.sqrt(np.float32(n // shape[0])))
    return torch.from_numpy(x.reshape(shape))


def shape_case(hidden, layers, heads, intermediate, lengths):
    config = transformers.DebertaV2Config(**{
        **DEBERTA, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": intermediate,
        "vocab_size": 1000, "max_position_embeddings": 512, "position_buckets": 256, "hidden_act": "gelu",
        "id2label": dict(enumerate(LABELS)), "label2id": {n: i for i, n in enumerate(LABELS)}})
    model = transformers.DebertaV2ForSequenceClassification(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(formula(name, tuple(p.shape)))
    inputs = [{"ids": [int(i) + 3 for i in hashed(f"ids.{n}", n, 24) % np.uint64(997)], "types": [0] * n} for n in lengths]
    alone, padded = run(model, inputs, 0)
    print(f"{hidden}: logits {alone.tolist()}, padded differs by {(alone - padded).abs().max():.1e}", flush=True)
    config = {k: v for k, v in json.loads(config.to_json_string(use_diff=True)).items() if k not in ("dtype", "torch_dtype")}
    return {"config": config, "lengths": list(lengths), "logits": rows(alone), "padded": rows(padded)}


def small(root):
    tf = transformers
    bert_t, roberta_t = bert_tokenizer(), roberta_tokenizer()
    deberta = lambda **change: tf.DebertaV2Config(**{**SMALL, **DEBERTA, **change})
    cls = tf.DebertaV2ForSequenceClassification
    for name, change, dtype in [
        ("deberta_v3", dict(), torch.float16),
        ("deberta_own_projections", dict(share_att_key=False, norm_rel_ebd="none"), torch.bfloat16),
        ("deberta_c2p", dict(pos_att_type="c2p"), torch.float16),
        ("deberta_p2c", dict(pos_att_type="p2c", share_att_key=False, pooler_hidden_act="tanh"), torch.float16),
        ("deberta_no_buckets", dict(position_buckets=-1, max_relative_positions=24), torch.float16),
        ("deberta_no_terms", dict(pos_att_type=[], position_biased_input=True, type_vocab_size=2), torch.float16),
        ("deberta_absolute", dict(relative_attention=False, pos_att_type=[], position_biased_input=True, embedding_size=16,
                                  type_vocab_size=2), torch.float16),
        ("deberta_conv", dict(conv_kernel_size=3, conv_act="gelu", num_hidden_layers=3, embedding_size=48), torch.float16),
        ("deberta_conv_tanh", dict(conv_kernel_size=5, conv_act="tanh"), torch.float32),
    ]:
        classifier(root, name, cls, deberta(**change), bert_t, dtype=dtype)
    classifier(root, "bert", tf.BertForSequenceClassification, tf.BertConfig(**SMALL), bert_t)
    # Position 1 is the padding token's: a padding token inside a text.
    inside = [{"ids": [0, 20, 1, 30, 40, 2], "types": [0] * 6}]
    roberta = {**SMALL, "type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 130, "layer_norm_eps": 1e-5}
    classifier(root, "roberta", tf.RobertaForSequenceClassification, tf.RobertaConfig(**roberta), roberta_t, "roberta", extra=inside)
    classifier(root, "xlm_roberta", tf.XLMRobertaForSequenceClassification, tf.XLMRobertaConfig(**roberta), roberta_t, "roberta")
    mpnet = {**SMALL, "pad_token_id": 1, "max_position_embeddings": 302, "relative_attention_num_buckets": 32, "layer_norm_eps": 1e-5}
    classifier(root, "mpnet", tf.MPNetForSequenceClassification, tf.MPNetConfig(**mpnet), roberta_t, "roberta",
               lengths=(1, 2, 9, 40, 100, 300), extra=inside)
    sentence(root, "bert_mean", tf.BertModel, tf.BertConfig(**SMALL), bert_t, "mean", 64)
    sentence(root, "bert_cls", tf.BertModel, tf.BertConfig(**SMALL), bert_t, "cls", 64)
    sentence(root, "mpnet_mean", tf.MPNetModel, tf.MPNetConfig(**mpnet), roberta_t, "mean", 200)


def real(root, folder):
    texts = TEXTS + [
        ".", "Zürich", "Поезд ушёл в семь утра.", "列车早上七点出发，下午到达。", "غادر القطار في السابعة.", "기차는 일곱 시에 떠났다.", "🚂🕖", "x" * 300,
        "The lighthouse keeper wrote down every ship that passed, and the wind, and what he had for supper.",
        "Which town lies at the mouth of the smaller river?",
        " ".join(f"Platform {i} is closed until further notice." for i in range(100)),
        "列车" * 1000,
    ]
    (root / "real").mkdir(exist_ok=True)
    tensors, tokens = {}, {}
    for name in ["all-MiniLM-L6-v2", "all-mpnet-base-v2"]:
        whole = Tokenizer.from_file(str(folder / name / "tokenizer.json"))
        whole.no_truncation()
        whole.no_padding()
        tokens[name] = [len(whole.encode(t).ids) for t in texts]
        model = sentence_transformers.SentenceTransformer(str(folder / name), device="cpu")
        tensors[name] = torch.from_numpy(model.encode(texts, batch_size=8, convert_to_numpy=True)).half()
    save_tensors(tensors, root / "real/vectors.safetensors")
    write(root / "real/texts.json", {"versions": VERSIONS, "tokens": tokens, "texts": texts})


def main():
    root, what = Path(sys.argv[1]), sys.argv[2:3]
    if what == ["real"]:
        return real(root, Path(sys.argv[3]))
    if what != ["shapes"]:
        small(root)
    if what != ["small"]:
        write(root / "shapes.json", {
            "versions": VERSIONS,
            "base": shape_case(768, 12, 12, 3072, (1, 7, 129, 300)),
            "large": shape_case(1024, 24, 16, 4096, (1, 7, 128, 129, 300, 512))})


if __name__ == "__main__":
    main()
