"""Plans: sharing, freeing, nulls, failures, and invalid batches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.support.examples import scaled
from tests.transforms.adversarial import columns_for, operation
from tests.transforms.components import INPUTS
from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import Column, Numbers
from transforms.errors import DataError, OtherRelease, UnknownColumn
from transforms.execution import plan as plan_module
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import Expr, concat, cross, float32, int64, literal, ragged, text, timestamp
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Literal, Operation, RawColumn
from transforms.kernels.arrow import to_arrow
from transforms.operators import REGISTRY
from transforms.types import Dense, DType

QUERY, TITLE, CATEGORY = text("query"), text("title"), text("category")
OVERLAP = concat(QUERY.unigrams() & TITLE.unigrams(), CATEGORY.unigrams()).hash_buckets(1000)

BATCH = pa.table(
    {
        "query": ["red shoes", None, "blue hat", ""],
        "title": ["Red shoes red", "x", "hat blue", None],
        "category": ["shoes", "hats", None, "a b"],
        "price": pa.array([1.5, None, 0.0, 2.0], pa.float32()),
        "n": pa.array([1, 2, None, 4], pa.int32()),
    }
)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """``length`` raises."""

    def fail(column: Column) -> Column:
        raise ArithmeticError("no length today")

    monkeypatch.setitem(REGISTRY._by_name, "length", replace(REGISTRY["length"], kernel=fail))


def run(batch: pa.Table | pa.RecordBatch = BATCH, **components: Expr) -> Any:
    return compile_plan({key: expr.node for key, expr in components.items()}).run(batch)


def test_the_papers_example() -> None:
    ids = run(overlap=OVERLAP).columns["overlap"]
    hashed = run(pa.table({"w": ["shoes", "red", "hats", "blue", "hat", "a", "b"]}), w=text("w").hash_buckets(1000))
    shoes, red, hats, blue, hat, a, b = hashed.columns["w"].to_pylist()
    assert ids.to_pylist() == [[red, shoes, shoes], [hats], [blue, hat], [a, b]]
    assert ids.type == arrow_type(OVERLAP.type)


def test_shared_nodes_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    real = REGISTRY["unigrams"].kernel

    def counted(column: Column) -> Column:
        runs.append(1)
        return real(column)

    monkeypatch.setitem(REGISTRY._by_name, "unigrams", replace(REGISTRY["unigrams"], kernel=counted))
    result = run(a=QUERY.unigrams(), b=QUERY.unigrams().count(), c=OVERLAP, d=QUERY.unigrams())
    assert len(runs) == 2  # query and title, once each; the words of category are hashed as they are found
    assert result.columns["a"].equals(result.columns["d"])


def test_columns_are_what_the_components_read() -> None:
    plan = compile_plan({"a": OVERLAP.node, "b": float32("price").log1p().node})
    assert [column.name for column in plan.columns] == ["category", "price", "query", "title"]


def test_values_are_released_after_their_last_reader() -> None:
    plan = compile_plan({"a": OVERLAP.node, "b": QUERY.length().node})
    released = [position for step in plan.steps for position in step.released]
    assert sorted(released) == list(range(len(plan.steps)))
    for position, step in enumerate(plan.steps):
        assert all(position >= reader for reader in _readers_of(plan, step.released))


def _readers_of(plan: plan_module.Plan, released: tuple[int, ...]) -> list[int]:
    return [i for i, step in enumerate(plan.steps) for gone in released if gone in step.args]


def test_a_null_makes_dense_results_null_and_lists_empty() -> None:
    result = run(sum=int64("n") + int64("n"), tokens=QUERY.unigrams(), hashed=QUERY.hash_buckets(10), n=QUERY.length())
    assert result.columns["sum"].to_pylist() == [2, 4, None, 8]
    assert result.columns["tokens"].to_pylist()[1] == []
    assert result.columns["hashed"].null_count == 1
    assert result.columns["n"].to_pylist() == [9, None, 8, 0]


def test_a_null_in_a_ragged_cross_gives_the_empty_list() -> None:
    result = run(cross=Expr(operation("cross", [int64("n").node, CATEGORY.unigrams().node], {"buckets": 10})))
    assert [len(row) for row in result.columns["cross"].to_pylist()] == [1, 1, 0, 2]


def test_null_slots_hold_zero() -> None:
    result = run(sum=int64("n") + 5)
    assert result.columns["sum"].buffers()[1].to_pybytes()[16:24] == bytes(8)


def test_one_operator_failing_costs_only_what_needs_it(broken: None) -> None:
    result = run(bad=QUERY.length() + 1, worse=(QUERY.length() + 1) * 2, good=OVERLAP, also=TITLE.lower())
    assert set(result.columns) == {"good", "also"}
    assert set(result.failures) == {"bad", "worse"}
    failure = result.failures["worse"]
    assert failure.operator == "length"
    assert failure.expression == "length(query)"
    assert failure.error == "ArithmeticError: no length today"
    assert set(result.component_secs) == {"bad", "worse", "good", "also"}


def test_a_run_reports_its_steps_and_their_components() -> None:
    components = {"overlap": OVERLAP.node, "length": text("query").length().node}
    plan = compile_plan(components)
    seen: list[int] = []
    plan.run(BATCH, seen.append)
    assert seen == list(range(len(plan.steps)))
    described = [plan.describe(position) for position in seen]
    (length,) = (step for step in described if step.operator == "length")
    assert (length.expression, length.components) == ("length(query)", ("length",))
    (query,) = (step for step in described if step.expression == "query")
    assert set(query.components) == {"overlap", "length"}


def test_a_failure_names_every_exception_down_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(column: Column) -> Column:
        try:
            raise MemoryError("no room")
        except MemoryError as error:
            raise DataError("a function raised") from error

    monkeypatch.setitem(REGISTRY._by_name, "length", replace(REGISTRY["length"], kernel=refused))
    failure = run(length=text("query").length()).failures["length"]
    assert failure.exceptions == ("DataError", "MemoryError")
    assert failure.is_out_of_memory


def test_a_kernel_that_loses_rows_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = replace(REGISTRY["length"], kernel=lambda column: Numbers(plan_module.np.zeros(1, plan_module.np.int64)))
    monkeypatch.setitem(REGISTRY._by_name, "length", lossy)
    assert "as many rows" in run(n=QUERY.length()).failures["n"].error


def test_seconds_are_measured_for_every_node() -> None:
    plan = compile_plan({"a": OVERLAP.node, "b": QUERY.unigrams().node})
    result = plan.run(BATCH)
    assert set(result.node_secs) == {step.node.identity for step in plan.steps}
    assert 0 < result.component_secs["b"] <= result.component_secs["a"] + result.component_secs["b"]
    assert all(secs >= 0 for secs in result.node_secs.values())


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_components_without_columns_follow_the_row_count(rows: int) -> None:
    batch = pa.table({"unused": pa.nulls(rows, pa.int64())})
    result = run(batch, text=literal("né"), number=literal(7), sum=literal(1) + literal(2), real=literal(0.5))
    assert {key: column.to_pylist() for key, column in result.columns.items()} == {
        "text": ["né"] * rows, "number": [7] * rows, "sum": [3] * rows, "real": [0.5] * rows,
    }  # fmt: skip


def test_literals_take_part_like_columns() -> None:
    result = run(price=float32("price") * 2, same=QUERY == "red shoes", either=QUERY.fill_null("—"))
    assert result.columns["price"].type == pa.float32()
    assert result.columns["price"].to_pylist() == [3.0, None, 0.0, 4.0]
    assert result.columns["same"].to_pylist() == [True, None, False, False]
    assert result.columns["either"].to_pylist() == ["red shoes", "—", "blue hat", ""]


@given(INPUTS)
@settings(max_examples=scaled(40))
def test_canonical_components_give_the_same_bytes(expr: Expr) -> None:
    rows = 4
    batch = pa.table(
        {
            "a": ["x y z", None, "b|a a", ""], "b": ["y x", "q", "a B|c", None], "c": ["k", "l k", "", "ΑΣ"],
            "n": pa.array([1, None, -5, 2**40]), "m": pa.array([3, 4, None, -1]),
            "t": pa.array([0, 10**15, None, -1]).cast(pa.timestamp("us", tz="UTC")),
            "x": pa.array([0.5, None, -2.0, 7.0], pa.float32()), "y": pa.array([None, 1.0, 2.0, -0.0], pa.float32()),
        }
    )  # fmt: skip
    result = compile_plan({"plain": expr.node, "canonical": canonicalize(expr.node)}).run(batch)
    assert not result.failures
    plain, canonical = result.columns["plain"], result.columns["canonical"]
    assert len(plain) == rows
    assert _ipc(plain) == _ipc(canonical)
    sliced = compile_plan({"it": expr.node}).run(pa.concat_tables([batch, batch]).slice(4, 4)).columns["it"]
    assert _ipc(sliced) == _ipc(plain)
    whole = compile_plan({"it": expr.node}).run(batch.combine_chunks().to_batches()[0]).columns["it"]
    assert _ipc(whole) == _ipc(plain)


def _ipc(array: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"it": array})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def test_an_empty_batch_gives_empty_columns_of_the_right_type() -> None:
    components = {"o": OVERLAP, "p": float32("price").log1p(), "l": QUERY.lower(), "c": QUERY.unigrams().ngrams(2)}
    result = run(BATCH.slice(0, 0), **components)
    for key, expr in components.items():
        assert len(result.columns[key]) == 0
        assert result.columns[key].type == arrow_type(expr.type)


def test_stored_types_that_lose_nothing_are_conformed() -> None:
    batch = pa.table(
        {
            "query": pa.array(["a b", None]).dictionary_encode(),
            "n": pa.array([1, 2], pa.uint8()),
            "when": pa.array([0, 3_600_000], pa.timestamp("ms")),
            "tags": pa.array([["x", None, "y"], None], pa.large_list(pa.large_string())),
        }
    )
    result = run(
        batch, q=QUERY.unigrams(), n=int64("n") + 1, h=timestamp("when").hour_of_day(), t=ragged("tags", "string")
    )
    assert {key: column.to_pylist() for key, column in result.columns.items()} == {
        "q": [["a", "b"], []], "n": [2, 3], "h": [0, 1], "t": [["x", "y"], []],
    }  # fmt: skip


def test_a_missing_column_is_named_with_its_neighbours() -> None:
    with pytest.raises(UnknownColumn) as caught:
        run(x=text("querry").lower())
    assert caught.value.value == "querry"
    assert "query" in caught.value.allowed


def test_a_column_twice_is_refused() -> None:
    batch = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["query", "query"])
    with pytest.raises(UnknownColumn, match="only once"):
        run(batch, x=QUERY.lower())


def test_a_column_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(DataError) as caught:
        run(x=int64("query") + 1)
    assert "column query" in caught.value.where
    assert caught.value.allowed == "Dense[int64]"


def test_another_operator_version_is_refused_when_compiling() -> None:
    stale = Operation(Dense(DType.STRING), "lower", 99, (QUERY.node,))
    with pytest.raises(OtherRelease) as caught:
        compile_plan({"x": stale})
    assert caught.value.value == "lower version 99"
    assert "version 1" in caught.value.allowed
    assert "later release" in caught.value.next_step
    older = Operation(Dense(DType.STRING), "lower", 0, (QUERY.node,))
    with pytest.raises(OtherRelease) as caught:
        compile_plan({"x": older})
    assert "submit the model again" in caught.value.next_step


def test_an_unknown_operator_is_refused_when_compiling() -> None:
    with pytest.raises(OtherRelease, match="unknown operator") as caught:
        compile_plan({"x": Operation(Dense(DType.STRING), "lowr", 1, (QUERY.node,))})
    assert "lower" in caught.value.allowed


def test_parameters_that_an_operator_does_not_take_are_another_releases() -> None:
    asked = Operation(Dense(DType.STRING), "lower", 1, (QUERY.node,), (("twice", True),))
    with pytest.raises(OtherRelease, match="does not take") as caught:
        compile_plan({"x": asked})
    assert "no parameter 'twice'" in caught.value.allowed


def test_a_type_that_the_operator_does_not_give_is_refused() -> None:
    with pytest.raises(OtherRelease, match="that its operator gives"):
        compile_plan({"x": Operation(Dense(DType.INT64), "lower", 1, (QUERY.node,))})


def test_an_empty_plan_runs() -> None:
    result = compile_plan({}).run(BATCH)
    assert result.columns == {}
    assert result.failures == {}


def test_one_plan_runs_in_many_threads() -> None:
    plan = compile_plan({"o": OVERLAP.node, "l": QUERY.lower().node})
    expected = plan.run(BATCH).columns
    barrier = threading.Barrier(4)

    def work(_: int) -> bool:
        barrier.wait()
        return all(plan.run(BATCH).columns[key].equals(column) for key, column in expected.items())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_a_raw_column_and_a_literal_may_be_components() -> None:
    column = columns_for([Dense(DType.STRING)])[0]
    result = compile_plan({"raw": RawColumn(column.type, "query"), "one": Literal(Dense(DType.INT64), 1)}).run(BATCH)
    assert result.columns["raw"].equals(BATCH["query"].combine_chunks())
    assert result.columns["one"].to_pylist() == [1] * 4


@given(INPUTS)
@settings(max_examples=scaled(40))
def test_dictionary_encoded_columns_give_the_same_bytes(expr: Expr) -> None:
    batch = pa.table(
        {
            "a": ["x y z", None, "b|a a", ""] * 3, "b": ["y x", "q", "a B|c", "y x"] * 3, "c": ["k", "l k", "", "ΑΣ"] * 3,
            "n": pa.array([1, None, -5, 2**40] * 3), "m": pa.array([3, 4, None, -1] * 3),
            "t": pa.array([0, 10**15, None, -1] * 3).cast(pa.timestamp("us", tz="UTC")),
            "x": pa.array([0.5, None, -2.0, 7.0] * 3, pa.float32()), "y": pa.array([None, 1.0, 2.0, -0.0] * 3, pa.float32()),
        }
    )  # fmt: skip
    encoded = pa.table({name: batch[name].dictionary_encode() for name in batch.column_names})
    chunked = pa.concat_tables([encoded.slice(0, 5), encoded.slice(5)])
    plan = compile_plan({"it": expr.node})
    plain = plan.run(batch).columns["it"]
    assert _ipc(plan.run(encoded).columns["it"]) == _ipc(plain)
    assert _ipc(plan.run(chunked).columns["it"]) == _ipc(plain)


def test_operators_over_a_dictionary_see_distinct_values_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = REGISTRY["lower"].kernel

    def counted(column: Column) -> Column:
        seen.append(len(column))
        return real(column)

    monkeypatch.setitem(REGISTRY._by_name, "lower", replace(REGISTRY["lower"], kernel=counted))
    batch = pa.table({"query": pa.array(["A", "B", None, "A"] * 100).dictionary_encode()})
    result = run(batch, low=QUERY.lower(), same=QUERY.lower() == "a")
    assert seen == [3]  # A, B and null
    assert result.columns["low"].to_pylist() == ["a", "b", None, "a"] * 100
    assert result.columns["same"].to_pylist() == [True, False, None, True] * 100


def test_dictionaries_with_other_codes_give_the_same_values() -> None:
    batch = pa.table({name: pa.array(values * 9).dictionary_encode() for name, values in {
        "query": ["a b", "c", None, "a b"], "title": ["b", "b", "c", "c a"], "category": ["k", "k", "k", "k"]}.items()})  # fmt: skip
    plain = pa.table({name: batch[name].cast(pa.string()) for name in batch.column_names})
    assert run(batch, o=OVERLAP).columns["o"].equals(run(plain, o=OVERLAP).columns["o"])


@pytest.mark.parametrize("repeats", [1, 300])
def test_a_costly_operator_sees_each_combination_that_occurs_once(
    monkeypatch: pytest.MonkeyPatch, repeats: int
) -> None:
    seen = []
    real = REGISTRY["cross"].kernel

    def counted(*columns: Column, **params: Any) -> Column:
        seen.append(len(columns[0]))
        return real(*columns, **params)

    monkeypatch.setitem(REGISTRY._by_name, "cross", replace(REGISTRY["cross"], kernel=counted))
    rows = [("a", "x", 1), ("b", "x", 2), ("a", None, 1), (None, "y", 3), ("b", "x", 2)] * repeats
    names = ("query", "title", "number")
    plain = pa.table({name: pa.array([row[i] for row in rows]) for i, name in enumerate(names)})
    coded = pa.table({name: plain[name].combine_chunks().dictionary_encode() for name in names})
    crossed = cross(text("query"), text("title"), int64("number"), buckets=1000)
    expected = run(plain, it=crossed).columns["it"]
    seen.clear()
    assert run(coded, it=crossed).columns["it"].equals(expected)
    assert seen == ([4] if repeats > 1 else [5])


def test_values_of_a_dictionary_that_no_event_has_cannot_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses_bad(column: Column) -> Column:
        values = to_arrow(column, Dense(DType.STRING)).to_pylist()
        if "bad" in values:
            raise DataError("a bad value")
        return Numbers(np.array([len(value) for value in values]))

    monkeypatch.setitem(REGISTRY._by_name, "length", replace(REGISTRY["length"], kernel=refuses_bad))
    whole = pa.table({"query": pa.array(["a", "bb"] * 4 + ["bad"] * 2).dictionary_encode()})
    assert run(whole.slice(0, 8), n=QUERY.length()).columns["n"].to_pylist() == [1, 2] * 4
    assert "a bad value" in run(whole, n=QUERY.length()).failures["n"].error


def test_chunks_of_a_dictionary_with_a_null_in_it_are_read() -> None:
    chunk = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0] * 3, pa.int8()), pa.array(["a b", None]))
    other = pa.DictionaryArray.from_arrays(pa.array([0] * 4, pa.int8()), pa.array(["c"]))
    batch = pa.table({"query": pa.chunked_array([chunk, other])})
    assert run(batch, n=QUERY.length()).columns["n"].to_pylist() == [3, None, None, 3] * 3 + [1] * 4


def test_combinations_that_do_not_occur_cannot_fail() -> None:
    batch = pa.table(
        {
            "query": pa.array(["a b", "c"] * 200).dictionary_encode(),
            "title": pa.array(["1 0", "0"] * 200).dictionary_encode(),
        }
    )
    kept = text("query").unigrams().filter(text("title").unigrams() == "1")
    result = run(batch, it=kept)
    assert not result.failures
    assert result.columns["it"].to_pylist() == [["a"], []] * 200
