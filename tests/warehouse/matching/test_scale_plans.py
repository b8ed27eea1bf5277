"""Submitting, solving and what pages ask use few statements for any size of model, and each uses an index."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.support.catalogs import BEGAN_AT, EVENTS, YEAR, Size, fill, loading
from benchmarks.support.scale_models import model
from tests.support.statements import asked, plans
from tests.warehouse.scenes import REPOSITORY
from tests.warehouse.search.test_search_plans import reads_whole
from transforms.comparison.pattern import Pattern
from warehouse import (
    ComponentQuery,
    EvictionRequest,
    Submission,
    Warehouse,
    WarehouseConfig,
    get_component,
    plan_eviction,
    read_solution,
    search_components,
    submit_model,
)
from warehouse.catalog.catalog import Catalog
from warehouse.search.facets import facets
from warehouse.search.paging import PageKey

SIZE = Size(9_000, fragments=4, real=300, hours=300, inputs=40, in_file=30, waiting=3)
#: Tables that grow with components, memos or partitions.
LARGE = ("components", "component_columns", "component_operators", "component_subgraphs", "model_inputs", "models",
         "set_members", "coverage", "memo_files", "memos", "tasks", "waits", "submissions", "fragments",
         "manifest_fragments")  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A warehouse with a catalog of some ten thousand rows, in either database."""
    home = tmp_path_factory.mktemp("home")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").database(migrated=True)
    else:
        url = f"sqlite:///{home}/catalog.db"
        Catalog.open(url).close()
    with loading(url) as loader:
        fill(loader, SIZE)
    with Warehouse.open(WarehouseConfig(str(home), url)) as opened:
        yield opened


_fresh = iter(range(SIZE.unknown, 10**6))


def submit(warehouse: Warehouse, name: str, known: int, new: int, sets: Sequence[int] = (0, 1, 2)) -> Submission:
    numbers = [number for one in sets for number in SIZE.real_sets[one]][:known]
    return submit_model(warehouse, model(name, [*numbers, *(next(_fresh) for _ in range(new))], EVENTS))


@pytest.mark.medium
def test_what_was_loaded_is_what_the_product_finds(warehouse: Warehouse) -> None:
    found = submit(warehouse, "first", known=30, new=5)
    assert (found.hits, found.queued, found.shared) == (30 * SIZE.fragments, 5 * SIZE.fragments, 0)
    waiting = submit_model(warehouse, model("second", SIZE.waiting_inputs, EVENTS))
    assert (waiting.hits, waiting.queued, waiting.shared) == (0, 0, len(SIZE.waiting_inputs) * SIZE.fragments)
    solution = read_solution(warehouse, YEAR)
    rare = -(-SIZE.inputs // 20)
    assert solution.count("load") == SIZE.inputs * SIZE.hours - rare * SIZE.hours // 2
    assert len(solution.plans) == 6  # one for each way in which files held them


def test_a_submission_reads_by_indexes(warehouse: Warehouse) -> None:
    with asked(warehouse) as found:
        submit(warehouse, "planned", known=25, new=5)
    read = list(plans(warehouse, found))
    assert len(read) > 8
    whole = [(text, plan, table) for text, plan in read for table in LARGE if reads_whole(plan, table)]
    assert not whole


def test_a_read_solution_reads_by_indexes(warehouse: Warehouse) -> None:
    """Of the manifest it reads every row of one table's current fragments: that is what is asked for."""
    with asked(warehouse) as found:
        read_solution(warehouse, YEAR)
    read = list(plans(warehouse, found))
    manifest = ("fragments", "manifest_fragments", "coverage", "memo_files")
    whole = [(text, plan, table) for text, plan in read for table in LARGE if reads_whole(plan, table)]
    assert not [one for one in whole if one[2] not in manifest], whole
    assert not [text for text in found.texts if "FROM memos" in text or "JOIN memos" in text]


def test_larger_models_take_no_more_statements(warehouse: Warehouse) -> None:
    counts = []
    for known, new in ((10, 2), (80, 16)):
        with asked(warehouse) as found:
            submit(warehouse, f"grown_{known}", known, new)
        counts.append(len(found.statements))
    assert counts[0] == counts[1]
    assert counts[0] <= 30


def test_a_submission_reloads_no_component(warehouse: Warehouse) -> None:
    with asked(warehouse) as found:
        submit(warehouse, "unloaded", known=20, new=3)
        submit(warehouse, "loaded_once", known=20, new=0)
    assert not [text for text in found.texts if text.startswith("SELECT") and "document" in text]


def test_an_unchanged_submission_writes_little(warehouse: Warehouse) -> None:
    same = model("unchanged", SIZE.real_sets[0], EVENTS)
    submit_model(warehouse, same)
    with asked(warehouse) as found:
        assert submit_model(warehouse, same).unchanged
    assert len(found.statements) <= 16
    assert len([text for text in found.texts if text.startswith(("INSERT", "UPDATE", "DELETE"))]) <= 3


#: What a page asks: conditions that few components fulfil, and places in an order.
_QUESTIONS: dict[str, Callable[[Warehouse], object]] = {
    "a column": lambda w: search_components(w, _COLUMN, sort="size", count=True, most_counted=1_000),
    "a further page": lambda w: search_components(w, after=PageKey(float(BEGAN_AT + 4_000), "8"), limit=50),
    "the oldest after a key": lambda w: search_components(w, sort="oldest", after=PageKey(float(BEGAN_AT + 4_000), "8")),
    "a constant": lambda w: search_components(w, ComponentQuery(pattern=Pattern.parse("hash_buckets(_, buckets=1018)")), count=True),
    "two operators and a column": lambda w: search_components(w, ComponentQuery(pattern=Pattern.parse("unigrams(lower(t3))"), column="c1"), count=True),
    "facets": lambda w: facets(w, _COLUMN),
    "a component": lambda w: get_component(w, search_components(w, _COLUMN, limit=1).components[0].fingerprint[:12]),
    "a preview": lambda w: plan_eviction(w, EvictionRequest(query=_COLUMN)),
    "a preview with a budget": lambda w: plan_eviction(w, EvictionRequest(query=_COLUMN, budget_bytes=10**10)),
}  # fmt: skip
_COLUMN = ComponentQuery(column="x3")


@pytest.mark.parametrize("question", list(_QUESTIONS))
def test_what_a_page_asks_reads_by_indexes(warehouse: Warehouse, question: str) -> None:
    _QUESTIONS[question](warehouse)  # names and versions of a fresh catalog
    with asked(warehouse) as found:
        _QUESTIONS[question](warehouse)
    assert len(found) <= 18, found.texts
    read = list(plans(warehouse, found))
    assert read
    small = ("models", "submissions", "fragments", "memo_files")  # a budget asks all models and files
    large = [table for table in (*LARGE, "subgraph_facts") if table not in small]
    assert not [(text, plan, table) for text, plan in read for table in large if reads_whole(plan, table)]


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_the_measurement_runs(database: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.catalog_scale",
        "--small",
        "--database",
        database,
        "--submissions",
        "3",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True, timeout=300)
    for measure in ("submit 50 inputs, 5 % new", "read solution 50 inputs x 48 hours", "search by raw column"):
        assert measure in done.stdout
