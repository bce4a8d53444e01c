#!/usr/bin/env python3
"""Writes tests/cases/ppr.toml: small graphs with personalised PageRank by igraph's PRPACK, an implementation that is not ours.

Usage: python scripts/make_ppr_cases.py > tests/cases/ppr.toml      (needs igraph from PyPI)
"""
import random
import igraph

print(f'# Personalised PageRank of small graphs. Expected vectors: igraph {igraph.__version__}, implementation="prpack", damping as given.')
print("# Made by scripts/make_ppr_cases.py. Nodes are entities, then passages; reset has one number a node.\n")


def case(name, entities, passages, edges, reset, damping=0.5):
    n = entities + passages
    graph = igraph.Graph(n=n, edges=[(a, b) for a, b, _ in edges])
    graph.es["weight"] = [w for _, _, w in edges]
    clean = [max(r, 0.0) for r in reset]
    expected = graph.personalized_pagerank(
        damping=damping, directed=False, weights="weight" if edges else None, reset=clean, implementation="prpack"
    )
    print("[[case]]")
    print(f'name = "{name}"\nn_entities = {entities}\nn_passages = {passages}\ndamping = {damping}')
    print("edges = [" + ", ".join(f"[{a}, {b}, {w!r}]" for a, b, w in edges) + "]")
    print("reset = [" + ", ".join(repr(float(r)) for r in reset) + "]")
    print("expected = [" + ", ".join(repr(x) for x in expected) + "]\n")


case("one edge", 1, 1, [(0, 1, 1.0)], [1.0, 0.0])
case("single passage", 0, 1, [], [0.05])
case("passage chain", 0, 5, [(i, i + 1, 1.0) for i in range(4)], [0, 0, 1.0, 0, 0.5])
case("two components and an isolated passage", 2, 4, [(0, 2, 0.7), (0, 3, 0.3), (1, 4, 1.0)], [0.9, 0.2, 0.01, 0.02, 0.03, 0.04])
case("only the isolated passage has reset", 1, 2, [(0, 1, 1.0)], [0, 0, 1.0])
case("negative entries count as 0", 1, 3, [(0, 1, 0.5), (1, 2, 1.0), (2, 3, 1.0)], [-0.5, 0.1, 0.2, 0.0])
case("high damping", 2, 3, [(0, 2, 0.5), (0, 3, 0.5), (1, 3, 1.0), (2, 3, 1.0), (3, 4, 1.0)], [1.0, 0.4, 0.01, 0.02, 0.05], 0.85)
rng = random.Random(7)
hub = [(0, 3 + p, round(rng.random() + 0.01, 6)) for p in range(40)]
hub += [(1 + p % 2, 3 + p, round(rng.random() + 0.01, 6)) for p in range(0, 40, 3)]
hub += [(3 + p, 4 + p, 1.0) for p in range(39)]
case("hub with chain", 3, 40, hub, [0.8, 0.0, 0.3] + [round(0.05 * rng.random(), 6) for _ in range(40)])
