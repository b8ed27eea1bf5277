"""The adaptive policy over time: it drops what stops paying, and makes it again once it pays."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import FREE_READS, Clock, model, start, work
from transforms.errors import InputError
from warehouse import (
    ComponentQuery,
    EvictionRequest,
    Warehouse,
    explain_model,
    pinned_solution,
    plan_eviction,
    read_solution,
    run_eviction,
    settle_storage,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.costs.accounts import load_account
from warehouse.eviction.evict import Settled
from warehouse.memos.memos import UNPAID
from warehouse.planning.rates import Prices
from warehouse.planning.regret import Account, bound_secs

pytestmark = pytest.mark.usefixtures("log")
DAY = 86_400.0


@pytest.fixture
def some(warehouse: Warehouse) -> Warehouse:
    """A price at which daily reads pay for storage, and reads once a month do not."""
    rates = replace(FREE_READS, memo_write_secs=0.0, memo_write_column_secs=0.0, raw_column_secs=0.0)
    config = replace(warehouse.config, rates=rates, prices=Prices(byte_month=5e-13))
    return Warehouse(config, warehouse.catalog, warehouse.storage, warehouse.clock)


def read(warehouse: Warehouse, name: str = "ctr") -> int:
    """Train on the whole table; returns how many inputs were computed."""
    with pinned_solution(warehouse, name, holder="job") as solution:
        return solution.count("compute")


def states(warehouse: Warehouse) -> dict[str, int]:
    of = schema.memos.c
    with warehouse.catalog.read() as connection:
        return {row[0]: row[1] for row in connection.execute(select(of.state, func.count()).group_by(of.state))}


@pytest.mark.medium
def test_it_keeps_while_data_is_read_drops_after_and_makes_again(some: Warehouse, clock: Clock) -> None:
    assert submit_model(some, model(), policy="adaptive").queued == 6
    work(some)
    for _ in range(4):
        assert read(some) == 0
        clock.advance(DAY)
        assert settle_storage(some) == Settled(), "it is read every day"
    clock.advance(25 * DAY)
    assert settle_storage(some) == Settled(dropped=6)
    assert states(some) == {"EVICTED": 6}
    assert settle_storage(some) == Settled(), "the account is settled once a day"
    assert {one.reason_code for one in explain_model(some, "ctr")} == {"not_kept", "raw"}
    for _ in range(3):
        assert read(some) == 6
        clock.advance(DAY)
    again = settle_storage(some)
    for _ in range(9):
        if again.queued:
            break
        read(some)
        read(some)
        clock.advance(DAY)
        again = settle_storage(some)
    assert again == Settled(queued=6), "the regret of not having kept it exceeds the price of storage"
    assert work(some) == 6
    assert read(some) == 0


_KILLED = """
import os, signal, sys
from dataclasses import replace
from tests.warehouse.scenes import FREE_READS, Clock
from warehouse import Warehouse, WarehouseConfig
from warehouse.eviction import evict
from warehouse.planning.rates import Prices
home, point, when, now = sys.argv[1:]

def killing(*args, **options):
    result = original(*args, **options) if when == "after" else None
    os.kill(os.getpid(), signal.SIGKILL)
    return result

original = getattr(evict, point)
setattr(evict, point, killing)
rates = replace(FREE_READS, memo_write_secs=0.0, memo_write_column_secs=0.0, raw_column_secs=0.0)
config = WarehouseConfig(home, read_threads=1, rates=rates, prices=Prices(byte_month=5e-13))
with Warehouse.open(config, Clock(float(now))) as warehouse:
    evict.settle_storage(warehouse)
"""


@pytest.mark.medium
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", ["settle_account", "run_eviction", "evict_memos", "queue_worthwhile"])
def test_killed_while_settling(some: Warehouse, clock: Clock, point: str, when: str) -> None:
    """Whatever was done by then, reads go on, and the next day does the rest."""
    if some.config.catalog_url:
        pytest.skip("the child opens a catalog in the home")
    submit_model(some, model(), policy="adaptive")
    work(some)
    clock.advance(30 * DAY)
    process = start(_KILLED, some.config.home, point, when, str(clock()))
    assert process.wait(PATIENCE_SECS) == -signal.SIGKILL, process.stderr and process.stderr.read()
    assert verify_warehouse(some).findings == ()
    is_dropped = point == "queue_worthwhile" or (point, when) == ("run_eviction", "after")
    assert states(some) == ({"EVICTED": 6} if is_dropped else {"READY": 6})
    with some.catalog.read() as connection:
        settled_at = load_account(connection, "log")[1]
    assert settled_at == (None if point == "settle_account" else clock())
    clock.advance(DAY)
    assert settle_storage(some) == Settled(dropped=0 if is_dropped else 6)
    assert read(some) == 6
    assert verify_warehouse(some).findings == ()


def test_dropping_has_a_plan_and_a_reason(some: Warehouse, clock: Clock) -> None:
    submit_model(some, model(), policy="adaptive")
    work(some)
    clock.advance(30 * DAY)
    request = EvictionRequest(query=ComponentQuery(table="log"), unpaid=True)
    planned = plan_eviction(some, request)
    assert (planned.memos, planned.done) == (6, False)
    assert "storage that is not worth its price" in planned.request
    assert settle_storage(some).dropped == 6
    of = schema.memos.c
    with some.catalog.read() as connection:
        whys = set(connection.execute(select(of.evicted_why)).scalars())
    assert len(whys) == 1
    assert next(iter(whys)).startswith(UNPAID)


def test_a_pinned_memo_and_memos_of_other_policies_stay(some: Warehouse, clock: Clock) -> None:
    submit_model(some, model("kept", "ads", inputs=1))
    submit_model(some, model(), policy="adaptive")
    work(some)
    clock.advance(30 * DAY)
    with pinned_solution(some, "ctr", holder="job"):
        clock.advance(1.0)
        with some.catalog.read() as connection:
            assert connection.execute(select(func.count()).select_from(schema.pins)).scalar_one() == 1
        assert settle_storage(some).dropped == 0
    clock.advance(30 * DAY)
    assert settle_storage(some).dropped == 3, "the other three belong to the policy all"
    assert read_solution(some, "kept").count("compute") == 0


@pytest.mark.medium
def test_memos_evicted_by_hand_are_not_made_again(some: Warehouse, clock: Clock) -> None:
    submit_model(some, model(), policy="adaptive")
    work(some)
    run_eviction(some, EvictionRequest(query=ComponentQuery(table="log")), why="wrong")
    for _ in range(5):
        read(some)
        clock.advance(DAY)
        assert settle_storage(some) == Settled()
    assert submit_model(some, model()).queued > 0, "a submission queues them"


def test_the_account_has_what_was_paid_and_what_the_others_would_have(some: Warehouse, clock: Clock) -> None:
    submit_model(some, model(), policy="adaptive")
    work(some)
    clock.advance(10.0)
    assert read(some) == 0
    clock.advance(2 * DAY)
    settle_storage(some)
    with some.catalog.read() as connection:
        account, settled_at = load_account(connection, "log")
    assert settled_at == clock()
    assert account.own_secs == pytest.approx(account.all_secs, rel=0.5), "it kept everything"
    assert account.none_secs > 0
    assert account.own_secs <= bound_secs(account)
    clock.advance(2 * DAY)
    settle_storage(some)
    with some.catalog.read() as connection:
        later, _ = load_account(connection, "log")
    assert later.none_secs == account.none_secs, "nothing was read"
    assert later.all_secs > account.all_secs, "but storage is paid"


def test_explain_states_the_prices(some: Warehouse) -> None:
    submit_model(some, model(), policy="adaptive")
    work(some)
    reasons = {one.reason for one in explain_model(some, "ctr") if one.reason_code == "ready"}
    assert len(reasons) == 2
    assert all("requests a day expected of data that is new; they save" in reason for reason in reasons)
    assert all("storing pays for" in reason for reason in reasons)


def test_a_table_without_the_policy_has_no_account(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model())
    clock.advance(3 * DAY)
    assert settle_storage(warehouse) == Settled()
    with warehouse.catalog.read() as connection:
        assert load_account(connection, "log") == (Account(), None)


def test_a_request_of_unpaid_memos_has_no_budget() -> None:
    with pytest.raises(InputError, match="no budget"):
        EvictionRequest(unpaid=True, budget_bytes=1)
