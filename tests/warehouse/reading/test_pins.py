"""A pin protects what a job reads until the job releases it or ends."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.support.processes import wait_until
from tests.warehouse.scenes import Clock, evict_component, model, start, work, write_log
from transforms.errors import NotFound
from warehouse import (
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    delete_rows,
    heartbeat_pin,
    live_pins,
    pin_solution,
    pinned_solution,
    read_fragment,
    read_solution,
    register_table,
    release_pin,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.errors import UnknownModel
from warehouse.matching.solve import priced_solution
from warehouse.memos.memos import evict_memos
from warehouse.reading.pinned import kept_alive
from warehouse.reading.pins import pin_holders

pytestmark = pytest.mark.usefixtures("log")

TTL_SECS = WarehouseConfig("x").pin_ttl_secs


def pinned_components(warehouse: Warehouse) -> set[str]:
    with warehouse.catalog.read() as connection:
        known = connection.execute(select(schema.components.c.fingerprint)).scalars().all()
        return set(pin_holders(connection, known, warehouse.clock()))


@pytest.mark.medium
def test_a_pin_names_what_the_solution_may_load(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model("one", inputs=3))
    submit_model(warehouse, model("two", inputs=5))
    work(warehouse)
    solution = read_solution(warehouse, "one")
    pin = pin_solution(warehouse, solution, "job")
    inputs = {item.fingerprint for item in solution.inputs if item.name != "price"}
    assert pin.fingerprints == inputs == pinned_components(warehouse)
    assert (pin.model, pin.model_version, pin.table, pin.holder) == ("one", 1, "log", "job")
    assert (pin.start, pin.end) == (solution.partitions[0].start, solution.partitions[-1].end)
    assert (pin.created_at, pin.expires_at) == (clock.now, clock.now + TTL_SECS)
    assert live_pins(warehouse) == (pin,)
    assert release_pin(warehouse, pin)
    assert not release_pin(warehouse, pin)
    assert (live_pins(warehouse), pinned_components(warehouse)) == ((), set())


def test_a_pin_runs_out_without_heartbeats_and_a_late_one_makes_it_again(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model())
    pin = pin_solution(warehouse, read_solution(warehouse, "ctr"), "job", ttl_secs=60)
    clock.advance(40)
    assert heartbeat_pin(warehouse, pin)
    clock.advance(59)
    assert [one.expires_in_secs(clock.now) for one in live_pins(warehouse)] == [1]
    clock.advance(1)
    assert live_pins(warehouse) == ()
    assert pinned_components(warehouse) == set()
    assert not heartbeat_pin(warehouse, pin), "it had run out"
    assert len(live_pins(warehouse)) == 1
    clock.advance(61)
    collect_garbage(warehouse, dry_run=False)
    with warehouse.catalog.read() as connection:
        assert connection.execute(select(schema.pin_components)).all() == [], "gc clears away what ran out"
    assert not heartbeat_pin(warehouse, pin)
    assert [(one.id, one.fingerprints) for one in live_pins(warehouse)] == [(pin.id, pin.fingerprints)]


@pytest.mark.medium
def test_what_was_evicted_before_the_pin_is_not_kept_for_it(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model("one", inputs=1))
    submit_model(warehouse, model("two", buckets=77, inputs=1))
    work(warehouse)
    evict_component(warehouse, read_solution(warehouse, "two").inputs[0].fingerprint)
    clock.advance(TTL_SECS + 1)
    with pinned_solution(warehouse, "one", holder="job"):
        assert collect_garbage(warehouse, dry_run=False).by_kind()["unreferenced memos"][0] == 3


@pytest.mark.parametrize("skew_secs", [0.0, -0.4 * TTL_SECS])
def test_files_unreferenced_after_the_pin_stay_readable(
    warehouse: Warehouse, clock: Clock, tmp_path: Path, skew_secs: float
) -> None:
    """Damage, compaction and clocks that differ a little: the bytes stay while the pin holds."""
    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    with pinned_solution(warehouse, "ctr", holder="job") as solution:
        (fingerprint,) = (item.fingerprint for item in solution.inputs if item.name == "input_0")
        with Warehouse.open(warehouse.config, lambda: clock.now + skew_secs) as other:
            with other.catalog.write() as connection:
                keys = dict.fromkeys(connection.execute(select(schema.memos.c.memo_key)).scalars(), fingerprint)
                files = {file: {fingerprint} for file in connection.execute(select(schema.memo_files.c.id)).scalars()}
                evict_memos(connection, keys, files, "by an older release, that knows no pins", other.clock())
            found = collect_garbage(other, dry_run=False)
        assert (found.garbage, found.pinned, found.rows) == ((), 3, 0)
        for fragment in solution.fragments:
            read_fragment(warehouse.storage, solution, fragment, on_damage=lambda *damage: pytest.fail(repr(damage)))
    assert collect_garbage(warehouse, dry_run=False).by_kind()["unreferenced memos"][0] == 3


def test_nothing_is_evicted_between_reading_and_pinning(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    kept: list[str] = []

    def solve_after_an_eviction(*args: object, **options: object) -> object:
        plan = evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint)
        assert (plan.memos, plan.pinned_memos) == (0, 3)
        kept.extend(pin.holder for pin in plan.pinned)
        return priced_solution(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("warehouse.reading.pinned.priced_solution", solve_after_an_eviction)
    with pinned_solution(warehouse, "ctr", holder="job") as solution:
        assert solution.count("load") == 6
    assert kept == ["job"]


def test_the_pin_ends_with_its_block(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    with contextlib.suppress(ZeroDivisionError), pinned_solution(warehouse, "ctr", holder="job"):
        assert len(live_pins(warehouse)) == 1
        raise ZeroDivisionError
    assert live_pins(warehouse) == ()
    with pytest.raises(UnknownModel), pinned_solution(warehouse, "none", holder="job"):
        pass
    assert "pin" not in {thread.name for thread in threading.enumerate()}


def _pinned_until(warehouse: Warehouse) -> float:
    """When the one pin runs out, or ran out."""
    with warehouse.catalog.read() as connection:
        return float(connection.execute(select(schema.pins.c.expires_at)).scalar_one())


def test_heartbeats_outlive_a_catalog_that_is_busy(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model())
    pin = pin_solution(warehouse, read_solution(warehouse, "ctr"), "job", ttl_secs=0.3)
    config = WarehouseConfig(warehouse.config.home, busy_timeout_secs=0.01)
    with Warehouse.open(config, clock) as impatient, kept_alive(impatient, pin):
        with warehouse.catalog.write():
            time.sleep(0.4)
        clock.advance(0.25)
        wait_until(lambda: _pinned_until(warehouse) >= clock.now + 0.29, "the catalog is free and a heartbeat came", {})


_JOB = """
import sys, time
from warehouse import Warehouse, WarehouseConfig, pinned_solution
with Warehouse.open(WarehouseConfig(sys.argv[1], pin_ttl_secs=1.0)) as warehouse:
    with pinned_solution(warehouse, "ctr", holder="victim"):
        print("ready", flush=True)
        time.sleep(3600)
"""


@pytest.mark.slow
def test_the_pin_of_a_killed_job_runs_out(tmp_path: Path) -> None:
    with Warehouse.open(WarehouseConfig(str(tmp_path / "other"))) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log2", hours=1)))
        submit_model(warehouse, model(inputs=1))
        process = start(_JOB, warehouse.config.home)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        first = _pinned_until(warehouse)
        wait_until(lambda: _pinned_until(warehouse) > first + 2.0, "its heartbeats keep it", {"the job": process})
        process.send_signal(signal.SIGKILL)
        process.communicate()
        wait_until(lambda: live_pins(warehouse) == (), "its pin has run out", {})


@pytest.mark.medium
def test_what_a_job_reads_is_noted_and_an_older_version_stays_readable(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    before = read_solution(warehouse, "ctr")
    delete_rows(warehouse, "log", where=[("clicked", "true")])
    with pinned_solution(warehouse, "ctr", holder="job", table_version=1) as then:
        assert then == before
        with pinned_solution(warehouse, "ctr", holder="job") as now:
            assert (now.table_version, now.rows < then.rows) == (2, True)
    with warehouse.catalog.read() as connection:
        reads = connection.execute(select(schema.reads.c.rows).order_by(schema.reads.c.id)).scalars().all()
    assert reads == [then.rows, now.rows]
    with pytest.raises(NotFound) as caught:
        read_solution(warehouse, "ctr", table_version=3)
    assert (caught.value.value, caught.value.allowed) == (3, "1 to 2")
