"""Admission policies, from submission to a trainer's read: values are equal under each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import transforms.expressions.expression as hr
from tests.support.examples import scaled
from tests.warehouse.scenes import FREE_READS, Clock, events, model, work, write_partition
from transforms.errors import InputError
from transforms.expressions.expression import Expr
from transforms.expressions.model import Model
from transforms.operators import REGISTRY
from warehouse import (
    ReadSolution,
    Warehouse,
    WarehouseConfig,
    damage_recorder,
    explain_model,
    queue_depths,
    queue_missing,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.planning.rates import MEASURED_RATES, Prices

pytestmark = pytest.mark.usefixtures("log")


def made(name: str, *expressions: Expr, client: str = "ads") -> Model:
    one = Model(name, client=client, label="clicked", table="log")
    for position, expression in enumerate(expressions):
        one.input(f"input_{position}", expression)
    return one


def values(warehouse: Warehouse, solution: ReadSolution) -> list[pa.Table]:
    return [read_fragment(warehouse.storage, solution, fragment) for fragment in solution.fragments]


WORDS = hr.text("query").lower().unigrams()


def test_what_another_model_keeps_is_joined_with_raw_columns(warehouse: Warehouse) -> None:
    """A memoized subgraph, whoever asked for it, and the raw columns beside it."""
    overlap = (WORDS & hr.text("title").unigrams()).hash_buckets(50)
    submit_model(warehouse, made("new", overlap, WORDS.hash_buckets(20)), policy="none")
    computed = values(warehouse, read_solution(warehouse, "new"))
    submit_model(warehouse, made("words", WORDS))
    work(warehouse)
    solution = read_solution(warehouse, "new")
    assert solution.count("compute") == 6
    assert all(len(plan.loads) == 1 for plan in solution.plans)
    assert values(warehouse, solution) == computed
    for path in (Path(warehouse.storage.home) / "memos").rglob("*.memo"):
        path.unlink()
    seen: list[str] = []
    for fragment, expected in zip(solution.fragments, computed, strict=True):
        found = read_fragment(
            warehouse.storage, solution, fragment, on_damage=lambda key, path, error: seen.append(path)
        )
        assert found == expected
    assert len(seen) == 3


def test_the_solution_survives_json_with_its_subgraphs(warehouse: Warehouse) -> None:
    submit_model(warehouse, made("words", WORDS))
    work(warehouse)
    submit_model(warehouse, made("new", WORDS.hash_buckets(20)), policy="none")
    solution = read_solution(warehouse, "new")
    assert ReadSolution.from_document(solution.to_document()) == solution


def test_policy_none_queues_nothing_and_reports_it(warehouse: Warehouse) -> None:
    found = submit_model(warehouse, model(), policy="none")
    assert (found.policy, found.queued, found.computed, found.misses) == ("none", 0, 6, 6)
    assert work(warehouse) == 0
    assert {one.reason_code for one in explain_model(warehouse, "ctr")} == {"not_kept", "raw"}
    again = submit_model(warehouse, model())
    assert (again.policy, again.unchanged, again.queued) == ("none", True, 0), "a model keeps its policy"
    changed = submit_model(warehouse, model(), policy="all")
    assert (changed.policy, changed.unchanged, changed.queued) == ("all", True, 6)


def test_an_unknown_policy_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(InputError) as caught:
        submit_model(warehouse, model(), policy="most")
    assert caught.value.allowed == "adaptive, all, none"


def with_prices(warehouse: Warehouse, **prices: float) -> Warehouse:
    """Fixed costs of a column would decide alone, at twenty rows a fragment: there are none."""
    rates = replace(FREE_READS, memo_write_secs=0.0, memo_write_column_secs=0.0, raw_column_secs=0.0)
    config = replace(warehouse.config, rates=rates, prices=Prices(**prices))
    return Warehouse(config, warehouse.catalog, warehouse.storage, warehouse.clock)


def test_adaptive_keeps_what_pays(warehouse: Warehouse) -> None:
    """Free storage: everything is worth keeping. Storage beyond price: nothing is."""
    free = with_prices(warehouse, byte_month=0.0, cpu_sec=1e9)
    dear = with_prices(warehouse, byte_month=1e9)
    overlap = (WORDS & hr.text("title").unigrams()).hash_buckets(50)
    assert submit_model(dear, made("dear", overlap), policy="adaptive").computed == 3
    assert submit_model(free, made("free", overlap), policy="adaptive").queued == 3


def test_adaptive_keeps_a_shared_subgraph(warehouse: Warehouse) -> None:
    """Many inputs over one expensive subgraph: it is kept once, and the cheap steps above it are computed when read."""
    some = with_prices(warehouse, byte_month=3e-13)
    words = hr.text("query").lower().unigrams().hash_buckets(1_000_000)
    wide = made("wide", *(words.modulo(2 + i) for i in range(12)))
    found = submit_model(some, wide, policy="adaptive")
    assert found.computed > 0
    done = work(some)
    assert 0 < done < 36, "not one memo an input and fragment"
    solution = read_solution(some, "wide")
    loaded = {fingerprint for plan in solution.plans for fingerprint in plan.loads}
    assert loaded - {item.fingerprint for item in solution.inputs}, "a subgraph is loaded"
    assert solution.count("compute") > 0
    plain = submit_model(some, made("plain", *(words.modulo(2 + i) for i in range(12)), client="b"), policy="none")
    assert plain.hits == found.hits
    for one, other in zip(values(some, solution), _computed(some, wide), strict=True):
        assert one == other


def test_a_damaged_part_is_computed_again_for_the_policy_that_keeps_it(warehouse: Warehouse) -> None:
    some = with_prices(warehouse, byte_month=3e-13)
    words = hr.text("query").lower().unigrams().hash_buckets(1_000_000)
    wide = made("wide", *(words.modulo(2 + i) for i in range(12)))
    submit_model(some, wide, policy="adaptive")
    submit_model(some, made("plain", words.modulo(2), client="b"), policy="none")
    done = work(some)
    for path in (Path(some.storage.home) / "memos").rglob("*.memo"):
        path.unlink()
    solution = read_solution(some, "wide")
    for fragment in solution.fragments:
        read_fragment(some.storage, solution, fragment, on_damage=damage_recorder(some))
    assert {one.client: one.queued for one in queue_depths(some)} == {"ads": done, "b": 0}
    assert work(some) == done
    assert read_solution(some, "wide").plans == solution.plans


def _computed(warehouse: Warehouse, of: Model) -> list[pa.Table]:
    """The same values with no memo at hand."""
    solution = read_solution(warehouse, of.name)
    bare = tuple(
        replace(plan, loads={}, actions=tuple("raw" if one == "raw" else "compute" for one in plan.actions))
        for plan in solution.plans
    )
    return values(warehouse, replace(solution, plans=bare))


def test_new_data_follows_the_policy(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model("kept"))
    submit_model(warehouse, model("computed", "other", buckets=7), policy="none")
    work(warehouse)
    write_partition(log, 7, events(20, seed=7))
    register_table(warehouse, "log", str(log))
    assert queue_missing(warehouse) == 2
    assert work(warehouse) == 2


_TEXTS: list[Callable[[Expr], Expr]] = [lambda e: e.lower(), lambda e: e.strip(), lambda e: e.upper()]


@pytest.mark.slow
@settings(max_examples=scaled(12))
@given(
    choices=st.lists(st.tuples(st.sampled_from(["query", "title"]), st.integers(0, 2), st.integers(2, 60)), min_size=1,
                     max_size=5, unique=True),
    kept=st.lists(st.integers(0, 2), max_size=2),
    price=st.sampled_from([0.0, 1e-13, 1.0]),
)  # fmt: skip
def test_values_are_equal_under_every_policy(
    tmp_path_factory: pytest.TempPathFactory, log: Path,
    choices: list[tuple[str, int, int]], kept: list[int], price: float,
) -> None:  # fmt: skip
    home = tmp_path_factory.mktemp("policies")
    config = WarehouseConfig(str(home), read_threads=1, rates=FREE_READS, prices=Prices(byte_month=price))
    with Warehouse.open(config, Clock()) as warehouse:
        register_table(warehouse, "log", str(log))
        if kept:
            submit_model(warehouse, made("parts", *(_TEXTS[i](hr.text("query")).unigrams() for i in sorted(set(kept)))))
            work(warehouse)
        one = made("new", *(_TEXTS[how](hr.text(name)).unigrams().hash_buckets(n) for name, how, n in choices))
        submit_model(warehouse, one, policy="adaptive")
        expected = _computed(warehouse, one)
        assert values(warehouse, read_solution(warehouse, "new")) == expected
        work(warehouse)
        assert values(warehouse, read_solution(warehouse, "new")) == expected
        again = submit_model(warehouse, one)
        assert (again.policy, again.queued, again.unchanged) == ("adaptive", 0, True)


def test_memos_of_another_release_are_loaded_whatever_loading_costs(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where opening a memo takes a second, twenty rows are computed sooner; but here nothing can compute them any more."""
    slow = replace(MEASURED_RATES, memo_column_secs=1.0)
    measured = Warehouse(replace(warehouse.config, rates=slow), warehouse.catalog, warehouse.storage, warehouse.clock)
    submit_model(measured, made("old", hr.text("title").length(), WORDS.hash_buckets(20)))
    work(measured)
    assert read_solution(measured, "old").count("load") == 0
    expected = values(measured, read_solution(measured, "old"))
    for name in ("length", "unigrams"):
        newer = replace(REGISTRY[name], version=REGISTRY[name].version + 1)
        monkeypatch.setitem(REGISTRY._by_name, name, newer)
    solution = read_solution(measured, "old")
    assert solution.count("load") == 6
    assert values(measured, solution) == expected
