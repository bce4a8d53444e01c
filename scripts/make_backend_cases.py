#!/usr/bin/env python3
"""Writes the shared cases of the backends' operations beside PageRank: tests/cases/{propagation,passage_weights,top_k,store_scan}.toml.

Usage: python scripts/make_backend_cases.py tests/cases      (needs nothing beyond Python; ppr.toml is made by make_ppr_cases.py)

Expected numbers come from the formulas in another form than the engine's: propagation in exact fractions (matrix form as products
with the sentence-entity incidence matrix), logarithms in 40 decimal digits, cosines of dense vectors, rankings by Python's sort.
"""
import math
import pathlib
import sys
from decimal import Decimal, getcontext
from fractions import Fraction as F

getcontext().prec = 40
out = pathlib.Path(sys.argv[1])


def number(x):
    """A float that reads back as it is."""
    x = float(x)
    return "nan" if x != x else repr(x)


def pairs(items):
    return "[" + ", ".join("[" + ", ".join(str(v) if isinstance(v, int) else number(v) for v in item) + "]" for item in items) + "]"


# Propagation. Cosines and scores are multiples of 1/64, so that they are exact in any precision.

def best(sentences, sim, k):
    return sorted(sentences, key=lambda s: (-sim[s], s))[:k]


def bfs(mentions, n_entities, sim, seeds, hops, threshold, k):
    weight, active, used = {}, {}, set()
    for e, score in seeds:
        weight[e], active[e] = score, (score, 1)
    frontier = {}
    for e, score in seeds:
        frontier[e] = score  # a dict keeps the first place and the last score
    for hop in range(1, hops):
        new = {}
        for e, score in frontier.items():
            if score < threshold:
                continue
            open_sentences = [s for s, of in enumerate(mentions) if e in of and s not in used]
            for s in best(open_sentences, sim, k):
                used.add(s)
                spread = score * sim[s]
                if spread >= threshold:
                    for n in mentions[s]:
                        weight[n] = weight.get(n, F(0)) + spread
                        new[n] = spread
        active.update({n: (score, hop + 1) for n, score in new.items()})
        frontier = new
    return weight, active


def matrix(mentions, n_entities, sim, seeds, hops, threshold, k):
    incidence = [[F(int(e in of)) for e in range(n_entities)] for of in mentions]
    weight, active = {}, {}
    score = [F(0)] * n_entities
    for e, s in seeds:
        weight[e], active[e] = s, (s, 0)
        score[e] += s
    used = set()
    for hop in range(1, hops):
        score = [s if s >= threshold else F(0) for s in score]
        picked = set()
        for e in range(n_entities):
            if score[e] > 0:
                picked.update(best([s for s, row in enumerate(incidence) if row[e] and s not in used], sim, k))
        if not picked:
            break
        used |= picked
        carrying = [s for s in picked if sim[s] > 0]
        # received = diag(sim) M score; next = M^T received
        received = {s: sim[s] * sum(m * x for m, x in zip(incidence[s], score)) for s in carrying}
        reached = sorted({e for s in carrying for e in mentions[s]})
        score = [sum((incidence[s][e] * received[s] for s in carrying), F(0)) for e in range(n_entities)]
        for e in reached:
            weight[e] = weight.get(e, F(0)) + score[e]
            if score[e] >= threshold:
                active[e] = (score[e], hop)
    return weight, active


def propagation(file, name, n_entities, mentions, sim, seeds, max_iterations, threshold, k):
    sim = [F(s).limit_denominator(64) for s in sim]
    seeds = [(e, F(s).limit_denominator(64)) for e, s in seeds]
    threshold = F(threshold).limit_denominator(64)
    file.write(f'[[case]]\nname = "{name}"\nn_entities = {n_entities}\nsentence_entities = {mentions}\n')
    file.write(f"similarities = [{', '.join(number(s) for s in sim)}]\nseeds = {pairs(seeds)}\n")
    file.write(f"max_iterations = {max_iterations}\nthreshold = {number(threshold)}\ntop_k_sentence = {k}\n")
    for form, run in (("bfs", bfs), ("matrix", matrix)):
        weight, active = run(mentions, n_entities, sim, seeds, max_iterations, threshold, k)
        file.write(f"{form}_weights = {pairs(sorted(weight.items()))}\n")
        file.write(f"{form}_active = {pairs([(e, s, t) for e, (s, t) in sorted(active.items())])}\n")
    file.write("\n")


with open(out / "propagation.toml", "w") as file:
    file.write("# Propagation in both forms. Made by scripts/make_backend_cases.py: exact fractions of the formulas.\n")
    file.write("# A sentence's cosine with the question is given; seeds are (entity, score) in query order; active is (entity, score, tier).\n\n")
    chain = [[0, 1], [1, 2], [2, 3], [3, 4]]
    propagation(file, "a chain, three hops", 5, chain, [0.875, 0.75, 0.5, 0.5], [(0, 1.0)], 4, 0.25, 1)
    propagation(file, "no hop", 5, chain, [0.875, 0.75, 0.5, 0.5], [(0, 1.0), (3, 0.5)], 1, 0.25, 1)
    propagation(file, "no seed", 2, [[0, 1]], [0.5], [], 3, 0.25, 1)
    propagation(file, "a seed below the threshold", 3, [[0, 1], [1, 2]], [0.875, 0.75], [(0, 0.125), (2, 0.75)], 3, 0.25, 2)
    propagation(file, "a seed that comes twice", 3, [[0, 1], [0, 2]], [0.75, 0.5], [(0, 0.75), (1, 0.5), (0, 0.5)], 3, 0.25, 2)
    propagation(file, "equal cosines go to the lower sentence", 4, [[0, 1], [0, 2], [0, 3]], [0.5, 0.5, 0.5], [(0, 1.0)], 2, 0.25, 2)
    propagation(file, "two seeds pick the same sentence", 3, [[0, 1, 2], [0, 2], [1]], [0.75, 0.5, 0.25], [(0, 1.0), (1, 0.75)], 3, 0.125, 1)
    propagation(file, "negative and zero cosines", 4, [[0, 1], [0, 2], [0, 3]], [-0.5, 0.0, 0.25], [(0, 1.0)], 3, 0.125, 3)
    propagation(file, "a seed reached again", 2, [[0, 1], [1, 0]], [0.75, 0.875], [(0, 1.0)], 4, 0.125, 1)
    hub = [[0, 1 + i, 5] for i in range(4)] + [[5, 6], [6, 0]]
    propagation(file, "a hub", 7, hub, [0.5, 0.75, 0.25, 0.875, 0.5, 0.625], [(0, 0.875), (5, 0.5)], 4, 0.125, 3)


# Passage weights.

def ln1p(x):
    return (Decimal(1) + x).ln() if x > -1 else None


def weights(file, name, similarities, active, occurrences, ratio, node_weight):
    low, high = min(similarities), max(similarities)
    bonus = [Decimal(0)] * len(similarities)
    for entity, score, tier in active:
        for passage, count in occurrences[entity]:
            bonus[passage] += Decimal(score) * ln1p(Decimal(count)) / max(tier, 1)
    expected = []
    for sim, b in zip(similarities, bonus):
        dense = (Decimal(sim) - Decimal(low)) / (Decimal(high) - Decimal(low)) if high > low else Decimal(1)
        entity = ln1p(b)
        weight = Decimal(node_weight) * (Decimal(ratio) * dense + entity) if entity is not None else Decimal(0)
        expected.append(max(weight, Decimal(0)))
    file.write(f'[[case]]\nname = "{name}"\nsimilarities = {similarities}\nactive = {pairs(active)}\n')
    file.write(f"occurrences = {[[list(p) for p in row] for row in occurrences]}\n")
    file.write(f"passage_ratio = {number(ratio)}\npassage_node_weight = {number(node_weight)}\n")
    file.write(f"expected = [{', '.join(number(w) for w in expected)}]\n\n")


with open(out / "passage_weights.toml", "w") as file:
    file.write("# Passage weights of the reset vector. Made by scripts/make_backend_cases.py: 40 decimal digits.\n")
    file.write("# active is (entity, score, tier); occurrences has a list of (passage, count) an entity.\n\n")
    weights(file, "one entity in two passages", [0.75, 0.25, 0.5], [(0, 0.5, 1)], [[(1, 1), (2, 3)]], 1.5, 0.05)
    weights(file, "all cosines equal", [0.5, 0.5], [], [], 1.5, 0.05)
    weights(file, "tiers divide, tier 0 as 1", [0.0, 0.25, 1.0], [(0, 0.75, 0), (1, 0.5, 3)], [[(0, 2), (1, 1)], [(1, 5), (2, 1)]], 0.05, 0.05)
    weights(file, "a negative bonus", [0.0, 0.25, 1.0], [(0, -0.25, 1), (1, -8.0, 1)], [[(0, 1)], [(1, 1)]], 0.5, 1.0)
    weights(file, "one passage", [0.25], [(0, 1.0, 2)], [[(0, 7)]], 2.0, 0.05)


# Top-k.

def top(file, name, scores, k):
    order = sorted(range(len(scores)), key=lambda i: (scores[i] != scores[i], -scores[i] if scores[i] == scores[i] else 0.0, i))
    file.write(f'[[case]]\nname = "{name}"\nscores = [{", ".join(number(s) for s in scores)}]\nk = {k}\nexpected = {order[:k]}\n\n')


with open(out / "top_k.toml", "w") as file:
    file.write("# The k best of a row: score descending, id ascending, NaN last, -0 as 0. Made by scripts/make_backend_cases.py: Python's sort.\n\n")
    top(file, "all equal", [0.5] * 5, 2)
    top(file, "zeros of both signs", [-0.0, 0.0, -1.0, -0.0], 3)
    top(file, "NaN is last", [float("nan"), -2.0, float("nan"), 3.0], 4)
    top(file, "more than there are", [1.0, 2.0], 9)
    top(file, "none", [1.0, 2.0], 0)
    top(file, "negative scores", [-3.0, -1.5, -1.5, -8.0, -1.0], 4)
    top(file, "ties over the ends of tiles", [float(i * 7 % 5) for i in range(4100)], 9)


# Store scan, equations 7, 12 and 13.

def cosine(a, b, n):
    a, b = [a.get(i, 0.0) for i in range(n)], [b.get(i, 0.0) for i in range(n)]
    length = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    return math.fsum(x * y for x, y in zip(a, b)) / length if length > 0 else 0.0


def scan(file, name, maps, activation, cos_query, cos_template, alpha, lam, k):
    n = 1 + max([e for m in maps + [activation] for e in m], default=0)
    score = [alpha * c + (1 - alpha) * cosine(activation, maps[i], n) for i, c in enumerate(cos_query)]
    order = sorted(range(len(score)), key=lambda i: (-score[i], i))[:k]
    fit = [(1 - lam) * s + lam * t for s, t in zip(score, cos_template)]
    file.write(f'[[case]]\nname = "{name}"\nn_entities = {n}\nmaps = [{", ".join(pairs(sorted(m.items())) for m in maps)}]\n')
    file.write(f"activation = {pairs(sorted(activation.items()))}\ncos_query = {cos_query}\ncos_template = {cos_template}\n")
    file.write(f"alpha = {alpha}\nlambda = {lam}\nk = {k}\ntop = {pairs([(i, score[i]) for i in order])}\n")
    if fit:
        first = max(range(len(fit)), key=lambda i: (fit[i], -i))
        file.write(f"scaffold = {pairs([(first, fit[first])])}\n")
    else:
        file.write("scaffold = []\n")
    file.write("\n")


with open(out / "store_scan.toml", "w") as file:
    file.write("# Scan of a store. Made by scripts/make_backend_cases.py: cosines of dense vectors. A query sees as many experiences as it has\n")
    file.write("# cosines; top is (experience, score), scaffold the best by equation 12 with that score.\n\n")
    maps = [{0: 1.0, 1: 0.5}, {2: 0.25}, {0: 0.125, 2: 0.75, 3: 1.0}, {}, {1: 1.0}]
    scan(file, "both channels", maps, {0: 0.75, 2: 0.5}, [0.25, 0.5, 0.125, 0.75, 0.0], [0.0, 1.0, 0.5, 0.5, 0.25], 0.6, 0.1, 3)
    scan(file, "only the question counts, with ties", maps, {0: 0.75}, [0.5, 0.25, 0.5, 0.5, 0.5], [0.0] * 5, 1.0, 0.0, 3)
    scan(file, "only activations count", maps, {1: 1.0}, [0.5, 0.25, 0.5, 0.5, 0.5], [0.25] * 5, 0.0, 0.1, 5)
    scan(file, "a prefix of the store", maps, {1: 1.0}, [0.5, 0.25], [0.25, 0.5], 0.5, 0.5, 4)
    scan(file, "an empty activation", maps, {}, [0.5, 0.25, -0.5, 0.0, 0.125], [0.0, 1.0, 0.0, 0.0, 0.0], 0.6, 0.9, 2)
    scan(file, "nothing visible", maps, {0: 1.0}, [], [], 0.6, 0.1, 3)
