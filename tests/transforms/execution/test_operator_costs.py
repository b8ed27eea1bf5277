"""The seconds of a plan by operator."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from transforms.execution.fusion import FUSED, STANDS_FOR
from transforms.execution.operator_costs import (
    OperatorWork,
    cost_name,
    declared_secs,
    shares_of,
    sum_operator_work,
    work_of_run,
)
from transforms.execution.plan import compile_plan
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Operation, component_document
from transforms.operators import REGISTRY

BATCH = pa.table({"query": ["red shoe", None, "hat"], "title": ["shoe", "red", "a b"], "price": [1, 2, None]})


def run(**components: hr.Expr) -> dict[str, OperatorWork]:
    plan = compile_plan({name: canonicalize(expression.node) for name, expression in components.items()})
    return {work.operator: work for work in plan.run(BATCH).operators}


def test_fused_operators_correspond_to_real_ones() -> None:
    assert set(STANDS_FOR) == set(FUSED)
    assert {name for names in STANDS_FOR.values() for name in names} <= {operator.name for operator in REGISTRY}


def test_every_operator_of_a_run_is_reported() -> None:
    query, title = hr.text("query"), hr.text("title")
    works = run(a=(query.unigrams() & title.unigrams()).hash_buckets(10), b=hr.int64("price") + 1)
    assert {"unigrams", "intersect", "hash_buckets", "add"} == set(works)
    assert works["unigrams"].rows == 2 * works["intersect"].rows == 6
    assert works["add"].version == REGISTRY["add"].version
    assert all(work.secs >= 0 for work in works.values())


def test_a_fused_step_is_shared_out_as_declared() -> None:
    query = hr.text("query")
    plan = compile_plan({"a": canonicalize(query.unigrams().hash_buckets(10).node)})
    (fused,) = (step.node for step in plan.steps if isinstance(step.node, Operation))
    works = {work.operator: work for work in work_of_run([(shares_of(fused), 9.0)], 100)}
    words, hashes = REGISTRY["unigrams"].cost_ns, REGISTRY["hash_buckets"].cost_ns
    assert works["unigrams"].secs == pytest.approx(9.0 * words / (words + hashes))
    assert sum(work.secs for work in works.values()) == pytest.approx(9.0)
    assert {work.rows for work in works.values()} == {100}


def test_what_fails_is_not_measured() -> None:
    def refuse(column: pa.Array) -> pa.Array:
        raise ValueError("no")

    refused = hr.op(result="int64")(refuse)(hr.text("query"))
    plan = compile_plan({"a": canonicalize((refused + 1).node), "b": canonicalize(hr.text("title").length().node)})
    result = plan.run(BATCH)
    assert set(result.failures) == {"a"}
    assert [work.operator for work in result.operators] == ["length"]


def test_functions_have_different_fingerprints() -> None:
    upper = hr.op(result="string")(pc.utf8_upper)(hr.text("query")).node
    lower = hr.op(result="string")(pc.utf8_lower)(hr.text("query")).node
    assert isinstance(upper, Operation)
    assert isinstance(lower, Operation)
    names = {cost_name(node.op, dict(node.params)) for node in (upper, lower)}
    assert len(names) == 2
    for node in (upper, lower):
        root = component_document(node)["nodes"][-1]  # type: ignore[index]
        assert cost_name(root["op"], root["params"]) in names
    assert {declared_secs(name) for name in names} == {REGISTRY["python_function"].cost_ns * 1e-9}
    assert declared_secs("no_such_operator") is None


works = st.builds(
    OperatorWork, st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 99), st.integers(0, 9).map(float)
)


@given(st.lists(works), st.randoms(use_true_random=False))
def test_sums_lose_nothing_and_have_one_order(drawn: list[OperatorWork], chance: object) -> None:
    total = sum_operator_work(drawn)
    assert sum(work.rows for work in total) == sum(work.rows for work in drawn)
    assert sum(work.secs for work in total) == sum(work.secs for work in drawn)
    chance.shuffle(drawn)  # type: ignore[attr-defined]
    assert sum_operator_work(drawn) == sum_operator_work(total) == total
    assert work_of_run([], 5) == ()
