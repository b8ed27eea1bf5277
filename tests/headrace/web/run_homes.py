"""What tests of pages add to a home with runs: a run by a plan, and a fleet with jobs of each kind."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.cli.main import run
from tests.trainer.job.launch.held_jobs import hold
from trainer.job.launch.fleet_store import FleetStore, Submission
from trainer.scheduling.fleet import FleetEvent, move

#: A text that tries to be markup, to turn the text around, and to be a command of a terminal.
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"
_TABLES = {
    "tables": [{"name": "words", "rows": 500, "dim": 4, "pooling_factor": 2}, {"name": "user", "rows": 200, "dim": 4}]
}


def add_planned_run(home: Path) -> Path:
    """The run ``planned-v1`` with the tables of ``ctr-v1`` by a plan of two cores; the file of the plan."""
    tables, plan, runs = home.parent / "tables.json", home.parent / "plan.json", home / "runs"
    tables.write_text(json.dumps(_TABLES))
    place = ["--home", str(home)]
    assert run(["plan", "make", "--tables", str(tables), "--topology", "cpu:2", "--output", str(plan), *place]) == 0
    resharded = ["ckpt", "reshard", str(runs / "ctr-v1"), "--output", str(runs / "planned-v1"), "--plan", str(plan)]
    assert run([*resharded, *place]) == 0
    return plan


def add_fleet(home: Path) -> FleetStore:
    """Four jobs: one has the trained run ``ctr-v1``, one is held with the run ``held-v1``, one has a hostile output, and one waits."""
    store = FleetStore(home / "fleet")
    held = home / "runs" / "held-v1"
    hold(held)
    for name, run_dir in (("trained", home / "runs" / "ctr-v1"), ("held", held), ("odd", None), ("waits", None)):
        arguments = ("ctr", "--hosts", "1", *(() if run_dir is None else ("--run-dir", str(run_dir))))
        store.submit(Submission(name, 1, 0, arguments, str(home), str(home), "" if run_dir is None else str(run_dir)))
    _move(store, 1, FleetEvent.START, FleetEvent.FINISH)
    _move(store, 2, FleetEvent.START, FleetEvent.HOLD)
    _move(store, 3, FleetEvent.START)
    store.log_path(3).parent.mkdir(exist_ok=True)
    hostile = HOSTILE.encode() + b"\n\xff\xfe broken \xf0\x28\n" + b"y" * 10_000
    store.log_path(3).write_bytes(b"first\n" + hostile + b"\nlast\n")
    return store


def _move(store: FleetStore, number: int, *events: FleetEvent) -> None:
    for event in events:
        reason = HOSTILE if event is FleetEvent.HOLD else ""
        store.update(number, lambda one, event=event, reason=reason: move(one, event, reason=reason))  # type: ignore[misc]
