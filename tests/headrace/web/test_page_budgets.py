"""What each page may cost on a warehouse with thousands of rows: bytes of HTML, and statements of SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.support.catalogs import Size, made
from tests.headrace.web.pages import Browser, served
from tests.support.statements import asked
from warehouse import Failure, Warehouse, WarehouseConfig, fail_tasks, lease_tasks, quarantine_groups, read_solution
from warehouse.quarantine.query import TaskQuery

pytestmark = pytest.mark.medium

SIZE = Size(900, fragments=3, real=180, hours=120, inputs=200, in_file=60, waiting=60)


@dataclass(frozen=True)
class Budget:
    """What a page may cost; ``why``: the reason for more than 100,000 bytes or 12 statements."""

    bytes: int = 100_000
    statements: int = 12
    why: str = ""


_FACETS = "rows of components have nine statements, what narrows them four, and a condition is looked up for both"
_DECISIONS = "the page explains what a submission would decide, and reads what a submission reads"
_SHARES = "shares of workers follow from models, waiting tasks and clients, as at a lease"

#: The budget of each page by its address; ``{fingerprint}`` is a component, ``{task}`` a failed task.
BUDGETS = {
    "/": Budget(statements=20, why="each figure of the warehouse has a statement; none is there for each row"),
    "/graphs": Budget(statements=13, why=_FACETS),
    "/graphs?sort=size": Budget(statements=13, why=_FACETS),
    "/graphs?operator=hash_buckets&sort=saved": Budget(statements=17, why=_FACETS),
    "/graphs?pattern=hash_buckets(_)": Budget(statements=19, why=_FACETS),
    "/graphs/{fingerprint}": Budget(),
    "/graphs/{fingerprint}/drawing.svg": Budget(),
    "/graphs/{fingerprint}/memos": Budget(),
    "/graphs/{fingerprint}/memos.svg": Budget(),
    "/models": Budget(),
    "/models/year": Budget(),
    "/models/year/memos": Budget(statements=20, why=_DECISIONS),
    "/models/year/memos.svg": Budget(statements=20, why=_DECISIONS),
    "/tables": Budget(statements=2),
    "/tables/events": Budget(),
    "/tables/hours": Budget(),
    "/tables/events/columns/x0": Budget(
        statements=16,
        why="each kind of file that may hold values has a statement, and so have the columns that are joined from it",
    ),
    "/evict": Budget(statements=0),
    "/evict?table=hours": Budget(),
    "/evictions": Budget(),
    "/queue": Budget(statements=15, why=_SHARES),
    "/queue/history.svg": Budget(statements=15, why=_SHARES),
    "/quarantine": Budget(),
    "/quarantine/tasks": Budget(),
    "/quarantine/{task}": Budget(),
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with (
        made("sqlite", SIZE, tmp_path_factory.mktemp("budgets")) as (url, home),
        Warehouse.open(WarehouseConfig(str(home), catalog_url=url, retry_backoff_secs=0.0)) as opened,
    ):
        for _ in range(3):
            for task in lease_tasks(opened, "worker"):
                failure = Failure("raised", f"ValueError: {task.fingerprint}", "lower", "lower(query)")
                fail_tasks(opened, [(task, failure)], worker="worker")
        yield opened


@pytest.fixture(scope="module")
def browser(warehouse: Warehouse) -> Iterator[Browser]:
    with served(warehouse, allow_changes=True) as opened:
        yield opened.enter()


@pytest.mark.parametrize("path", BUDGETS)
def test_a_page_keeps_its_budget(path: str, browser: Browser, warehouse: Warehouse) -> None:
    fingerprint = read_solution(warehouse, "year").inputs[0].fingerprint if "{" in path else ""
    task = quarantine_groups(warehouse, TaskQuery(), limit=1)[0].example
    with asked(warehouse) as found:
        answer = browser.get(path.format(fingerprint=fingerprint, task=task))
    budget = BUDGETS[path]
    print(f"{path}: {len(answer.text):,} bytes, {len(found)} statements")
    assert answer.status == 200
    assert len(answer.text.encode()) <= budget.bytes
    assert len(found) <= budget.statements, "\n".join(found.texts)
    assert budget.why or (budget.bytes <= Budget.bytes and budget.statements <= Budget.statements)


def test_pages_of_lists_are_full(browser: Browser) -> None:
    """The budgets are those of pages with as many rows as they show."""
    for path in ("/graphs", "/quarantine", "/tables/hours"):
        assert browser.get(path).text.count("<tr>") > 50, path
