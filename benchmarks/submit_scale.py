"""Time of canonical forms and fingerprints of a model, by its number of nodes.

    python -m benchmarks.submit_scale [--inputs 1000] [--nodes 10000] [--outputs 400]

Inputs share prefixes, as in real models. The canonical form and the fingerprint of every input are timed, without building
the expressions, on one core, best of five. Then the same for one chain of an associative operation, ``c0 | c1 | ...`` and
nested minima of columns; for a model whose inputs all read one long prefix; and for ``hr.from_preprocessing_fn`` with one
function of many outputs, best of two. Counters of work, which are equal on every machine, are printed too.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.support.harness import machine
from transforms.expressions.expression import Expr, boolean, concat, cross, float32, int64, minimum, text
from transforms.expressions.model import Model
from transforms.graphs.canonical import CanonicalForms
from transforms.graphs.graph import topological


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


def chain(op: str, count: int) -> Expr:
    """``c0 | c1 | ...`` or nested minima of ``count`` columns, nested to the left."""
    columns = [boolean(f"c{i}") if op == "or" else int64(f"c{i}") for i in range(count)]
    found = columns[0]
    for column in columns[1:]:
        found = found | column if op == "or" else minimum(found, column)
    return found


def shared_prefix(inputs: int, steps: int) -> dict[str, Expr]:
    """Inputs that all read one long chain of operations."""
    value = float32("x")
    for step in range(steps):
        value = value.log1p() + float(step)
    return {f"input{i}": value * float(i) for i in range(inputs)}


def traced_secs(outputs: int) -> float:
    """Seconds to trace one preprocessing_fn of many outputs and convert it."""
    import tensorflow as tf

    from transforms.twins.preprocessing import from_preprocessing_fn

    def function(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        x = inputs["x"]
        return {f"o{i}": tf.math.log1p(tf.abs(x) * float(i + 1)) + float(i) for i in range(outputs)}

    begun = time.perf_counter()
    made = from_preprocessing_fn(function, {"x": float32("x")})
    secs = time.perf_counter() - begun
    assert len({expression.node.identity for expression in made.values()}) == outputs, "two outputs became one"
    return secs


def measure_chains() -> None:
    """Print the times of chains of one associative operation."""
    print(f"\n{'chain':>8} {'nodes':>8} {'secs':>8} {'us a node':>10} {'visited':>8} {'encoded':>8}")
    for op in ("or", "minimum"):
        for count in (1_250, 2_500, 5_000, 10_000):
            root = chain(op, count).node
            secs, forms = [], CanonicalForms()
            for _ in range(5):
                forms, begun = CanonicalForms(), time.perf_counter()
                forms.of(root)
                secs.append(time.perf_counter() - begun)
            each = min(secs) / count * 1e6
            print(f"{op:>8} {count:8,} {min(secs):8.3f} {each:10.1f} {forms.visited:8,} {forms.encoded:8,}")


def measure_outputs(outputs: int) -> None:
    """Print the times of models with many inputs over one prefix, and of functions with many outputs."""
    print(f"\n{'what':>16} {'outputs':>8} {'secs':>8} {'ms each':>10}")
    for factor in (0.25, 0.5, 1):
        count = int(outputs * factor)
        built = shared_prefix(count, 500)
        secs = min(canonical_secs(built) for _ in range(5))
        print(f"{'shared prefix':>16} {count:8,} {secs:8.3f} {secs / count * 1e3:10.2f}")
    traced_secs(2)  # loads TensorFlow
    for factor in (0.25, 0.5, 1):
        count = int(outputs * factor)
        secs = min(traced_secs(count) for _ in range(2))
        print(f"{'preprocessing_fn':>16} {count:8,} {secs:8.3f} {secs / count * 1e3:10.2f}")


def main() -> int:
    """Measure a model of the given size, half of it and twice of it; then chains and many outputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--outputs", type=int, default=400)
    options = parser.parse_args()
    print(machine())
    print(f"{'inputs':>8} {'nodes':>8} {'secs':>8} {'us a node':>10}")
    for factor in (0.5, 1, 2):
        built = expressions(int(options.inputs * factor), int(options.nodes * factor))
        nodes = sum(1 for _ in topological([expression.node for expression in built.values()]))
        secs = min(canonical_secs(built) for _ in range(5))
        print(f"{len(built):8,} {nodes:8,} {secs:8.3f} {secs / nodes * 1e6:10.1f}")
    measure_chains()
    measure_outputs(options.outputs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
