"""Plans with fused operators give the bytes of plans without fusion."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.transforms.adversarial import NASTY_TEXT
from tests.transforms.components import INPUTS
from transforms.execution.fusion import FUSED
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import concat, text
from transforms.graphs.graph import Operation, topological

A, B, C = (text(name) for name in "abc")
LONG = " ".join(f"word{i % 50:012d}" for i in range(300))
TEXTS = st.none() | st.sampled_from([*NASTY_TEXT, LONG, "a b c " * 30]) | st.lists(
    st.sampled_from(["a", "b", "prefix--a", "prefix--b", "prefix--", "é\u3000x", "\u2003", "12345678", "\x00", "a\x00"]), max_size=40
).map(" ".join)  # fmt: skip
OVERLAPS = st.sampled_from(
    [
        A.unigrams() & B.unigrams(),
        B.unigrams() & A.unigrams(),
        A.unigrams() & A.lower().unigrams(),
        concat(A.unigrams() & B.unigrams(), C.unigrams()).hash_buckets(97),
        concat(A.unigrams(), B.unigrams(), A.split("|")).hash_buckets(2**63 - 1, salt="sälz"),
        concat(A.unigrams(), C.unigrams()),
        C.unigrams().hash_buckets(10, salt="s"),
        C.unigrams().hash_buckets(10),
        A.lower().unigrams().count(),
    ]
)


def _ops(components: dict[str, object], *, fused: bool) -> list[str]:
    plan = compile_plan({key: expression.node for key, expression in components.items()}, fused=fused)  # type: ignore[attr-defined]
    return [step.node.op for step in plan.steps if isinstance(step.node, Operation)]


@given(
    st.lists(OVERLAPS | INPUTS, min_size=1, max_size=4),
    st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=9),
    st.integers(0, 3),
)
@settings(max_examples=scaled(200), suppress_health_check=list(HealthCheck))
def test_fusion_changes_no_byte(expressions, rows, before):
    components = {str(i): expression.node for i, expression in enumerate(expressions)}
    numbers = {"n": pa.int64(), "m": pa.int64(), "t": pa.timestamp("us", "UTC"), "x": pa.float32(), "y": pa.float32()}
    columns = {name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate("abc")}
    columns |= {name: pa.nulls(len(rows), kind) for name, kind in numbers.items()}
    batch = pa.table(columns).slice(min(before, len(rows)))
    fused, plain = compile_plan(components).run(batch), compile_plan(components, fused=False).run(batch)
    assert not fused.failures
    for key, column in plain.columns.items():
        assert fused.columns[key].equals(column)
        assert [b and b.to_pybytes() for b in fused.columns[key].buffers()] == [
            b and b.to_pybytes() for b in column.buffers()
        ]


def test_the_papers_example_is_three_passes():
    overlap = concat(A.unigrams() & B.unigrams(), C.unigrams()).hash_buckets(1000)
    assert sorted(_ops({"it": overlap}, fused=True)) == ["common_words", "concat", "hash_buckets", "hashed_words"]


def test_what_others_read_is_kept():
    ops = _ops(
        {"words": A.unigrams(), "ids": A.unigrams().hash_buckets(10), "both": A.unigrams() & B.unigrams()}, fused=True
    )
    assert sorted(ops) == ["hash_buckets", "intersect", "unigrams", "unigrams"]


def test_fused_operators_are_no_part_of_the_language():
    from transforms.operators import REGISTRY

    assert not set(FUSED) & {operator.name for operator in REGISTRY}
    components = {"it": (A.unigrams() & B.unigrams()).node}
    compile_plan(components)
    assert {node.op for node in topological(components.values()) if isinstance(node, Operation)} == {
        "intersect",
        "unigrams",
    }
