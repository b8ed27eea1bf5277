"""How long describing a model takes to become canonical components and fingerprints, and how that grows with its nodes.

    python benchmarks/submit_scale.py [--inputs 1000] [--nodes 10000]

Inputs share prefixes, as the inputs of real models do. Timed is what ``model.input`` does beyond building the expression:
the canonical form and the fingerprint of every input, on one core, best of five.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import machine
from transforms.expression import Expr, concat, cross, float32, text
from transforms.graph import topological
from transforms.model import Model


def expressions(inputs: int, nodes: int) -> dict[str, Expr]:
    """``inputs`` expressions of about ``nodes`` distinct nodes together, counting raw columns and literals."""
    each = max(nodes // inputs, 4)
    words = [text(f"t{i}").lower().unigrams() for i in range(max(inputs // 20, 2))]
    built: dict[str, Expr] = {}
    for i in range(inputs):
        a, b = words[i % len(words)], words[(i * 7 + 1) % len(words)]
        match i % 4:
            case 0:
                value = concat(a & b, b.ngrams(2)).hash_buckets(1000 + i)
            case 1:
                value = cross(a.head(3), text(f"c{i}"), buckets=1000 + i)
            case 2:
                value = (float32(f"x{i}").fill_null(0.0).log1p() + i) * 2.0
            case _:
                value = (a | b).unique().hash_buckets(1000 + i)
        built[f"input{i}"] = _lengthened(value, each, i)
    return built


def _lengthened(value: Expr, nodes: int, salt: int) -> Expr:
    if value.type.dtype != "float32":
        value = value.count().cast("float32")
    for step in range((nodes - 2) // 2 + 1):
        value = value + float(step + salt + 1)
    return value


def canonical_secs(built: dict[str, Expr]) -> float:
    """Seconds to make a model of the expressions."""
    begun = time.perf_counter()
    model = Model("scale", client="bench", label="y")
    for name, expression in built.items():
        model.input(name, expression)
    assert len({item.fingerprint for item in model.inputs.values()}) == len(built), "two inputs became one"
    return time.perf_counter() - begun


def main() -> int:
    """Measure the model asked for, and a half and a double of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    options = parser.parse_args()
    print(machine())
    print(f"{'inputs':>8} {'nodes':>8} {'secs':>8} {'us a node':>10}")
    for factor in (0.5, 1, 2):
        built = expressions(int(options.inputs * factor), int(options.nodes * factor))
        nodes = sum(1 for _ in topological([expression.node for expression in built.values()]))
        secs = min(canonical_secs(built) for _ in range(5))
        print(f"{len(built):8,} {nodes:8,} {secs:8.3f} {secs / nodes * 1e6:10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
