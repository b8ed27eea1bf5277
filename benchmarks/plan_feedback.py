"""The seconds of a step on a log whose use of tables changes, by plans of the tables: fixed, following the data, and clairvoyant.

    python -m benchmarks.plan_feedback [--hours 10] [--drift 4] [--rows 40000] [--repeats 1] [--steady] [--quick]

Two hosts train a log with 16 lists of ids, half of them long. Plan A is the planner's best for the first hours. From hour ``--drift`` on the tables that
plan A has put on the first host are those with long lists, and all others have one id. All runs train the first two hours by plan A (*spread*: without a
plan); then *fixed* goes on by plan A, *follows* with ``--plan auto``, *clairvoyant* by plan A up to the change and by the best plan for the hours after it,
to which the checkpoint was resharded in between (not counted). *steady* is ``--plan auto`` on a log without a change. A step is timed between the
looks of an observer at the job's controller.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from benchmarks.many_models import worker_secs
from benchmarks.support.drifting_lists import DIM, facts, lists_model, names, write_lists
from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import START
from trainer.job.control.controller_client import ControllerClient, is_away, is_other_service
from trainer.job.control.job_files import JobFiles
from trainer.job.feedback.plan_log import PlanLog
from trainer.job.launch.job_spec import JobSpec
from trainer.planning.loads import loads_of
from trainer.planning.plan import PartitionPlan, cyclic_plan
from trainer.planning.plan_document import plan_bytes
from trainer.planning.planner import make_plan
from trainer.planning.topologies import topology_of
from transforms.errors import HeadraceError, NotFound
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model

_BATCH = 1024
#: All options that Headrace would choose from the data, so that no candidate is tried.
_OPTIONS = {
    "batch_rows": _BATCH, "dim": DIM, "deep": True, "linear": False, "network": "dcn", "cross_layers": 1, "top_mlp": [32],
    "dense_learning_rate": 0.003, "embedding_learning_rate": 0.03, "initial_bias": 0.0, "dense_scaling": {}, "passes": 1,
    "partitions_per_epoch": 1, "statistics_share": 0.1,
}  # fmt: skip
_HOSTS = 2
#: The hours that all runs train by the first plan.
_BEGUN = 2


@dataclass
class StepSecs:
    """The first and the last look at each epoch: its step, and when."""

    looks: dict[int, list[tuple[int, float]]] = field(default_factory=dict)

    def look(self, client: ControllerClient) -> None:
        """Look at the job once."""
        try:
            status = client.status()
        except HeadraceError as error:
            if is_away(error) or is_other_service(error):  # it has not begun, or has ended
                return
            raise
        for one in status.members:
            if (
                one.rank == 0
                and one.progress is not None
                and one.progress.attempt == status.attempt
                and one.progress.step
            ):
                self.looks.setdefault(status.epoch, []).append((one.progress.step, time.monotonic()))

    def by_epoch(self) -> dict[int, float]:
        """The seconds of a step of each epoch that was seen at two steps."""
        ends = {epoch: (found[0], found[-1]) for epoch, found in self.looks.items() if found[-1][0] > found[0][0]}
        return {epoch: (last[1] - first[1]) / (last[0] - first[0]) for epoch, (first, last) in ends.items()}


@dataclass(frozen=True)
class Scene:
    """A warehouse with the log, and where its runs are."""

    folder: Path
    home: Path

    def train(self, run: Path, hours: int, *more: str) -> tuple[dict[int, float], float]:
        """Train up to an hour by the command: the seconds of a step by epoch, and those of the command."""
        end = (START + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M")
        options = self.folder / "options.json"
        options.write_text(json.dumps(_OPTIONS))
        command = [sys.executable, "-m", "headrace", "train", "lists", "--home", str(self.home), "--config", str(options), "--run-dir", str(run),
                   "--end", end, "--hosts", str(_HOSTS), "--readers", "1", "--json", *more]  # fmt: skip
        seen, began = StepSecs(), time.monotonic()
        with (
            open(self.folder / "errors.txt", "w") as errors,
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors) as running,
        ):
            client: ControllerClient | None = None
            while running.poll() is None:
                if client is None:
                    client = _client(run)
                else:
                    seen.look(client)
                time.sleep(0.05)
            if client is not None:
                client.close()
        if running.returncode:
            raise SystemExit((self.folder / "errors.txt").read_text()[-4000:])
        return seen.by_epoch(), time.monotonic() - began


def _client(run: Path) -> ControllerClient | None:
    """A client of the job's controller; None before the job is made."""
    files = JobFiles(run)
    try:
        return ControllerClient.of_run(files, job=JobSpec.read(files).job)
    except NotFound:
        return None


def scene_of(folder: Path, hours: int, rows: int, long: Sequence[Sequence[str]]) -> Scene:
    """A warehouse with memos of all hours."""
    write_lists(folder / "log", hours, rows, long)
    home = folder / "home"
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, "lists", str(folder / "log"))
        submit_model(warehouse, lists_model(), policy="all")
    worker_secs(home)
    return Scene(folder, home)


def plan_file(folder: Path, name: str, plan: PartitionPlan) -> str:
    """A plan as a file."""
    place = folder / f"{name}.json"
    place.write_bytes(plan_bytes(plan))
    return str(place)


def runs_of(scene: Scene, first: str, second: str, given: argparse.Namespace, k: int) -> Mapping[str, dict[int, float]]:
    """The seconds of a step by hour of each kind of run."""
    hours, found = given.hours, {}
    for kind in ("spread", "fixed", "follows", "clairvoyant"):
        run = scene.folder / f"{kind}-{k}"
        by_a = () if kind == "spread" else ("--plan", first)
        secs, _ = scene.train(run, _BEGUN, *by_a)
        if kind == "clairvoyant":
            more, _ = scene.train(run, given.drift, *by_a)
            other = scene.folder / f"resharded-{k}"
            command = [
                sys.executable,
                "-m",
                "headrace",
                "ckpt",
                "reshard",
                str(run),
                "--output",
                str(other),
                "--plan",
                second,
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rest, _ = scene.train(other, hours, "--plan", second)
            secs |= more | rest
        else:
            later = ("--plan", "auto") if kind == "follows" else by_a
            secs |= scene.train(run, hours, *later)[0]
        found[kind] = secs
        print(
            f"{kind:<12}" + "".join(f"{secs.get(hour, float('nan')) * 1e3:>8.1f}" for hour in range(hours)), flush=True
        )
        if kind == "follows":
            _print_moves(run)
    return found


def _print_moves(run: Path) -> None:
    log = PlanLog.read(run)
    moves = [one for one in log.changes if one.reason == "pays"]
    print(f"  {len(moves)} moves by {log.looks} commits")
    for one in moves:
        pause = "not measured" if one.pause_secs is None else f"{one.pause_secs:.1f} s"
        print(f"  after commit {one.commit}: a step by the model {one.step_secs * 1e3:.1f} to {one.new_step_secs * 1e3:.1f} ms, imbalance {one.imbalance:.2f} to"
              f" {one.new_imbalance:.2f}, {one.saved_secs:.1f} s lost, {one.move_secs:.1f} s expected for the move, {pause} taken")  # fmt: skip


def _print_prices(first: PartitionPlan, second: PartitionPlan, after: Sequence[str]) -> None:
    """Print what the cost model says of a step after the change."""
    later, topology = facts(after), topology_of(f"cpu:{_HOSTS}")
    spread = cyclic_plan([(one.name, one.rows, one.columns) for one in later], _HOSTS)
    print("tables of a step after the change, by the cost model:")
    for name, plan in (("plan A", first), ("the best plan", second), ("rows spread", spread)):
        loads = loads_of(plan, later, topology, _BATCH)
        print(
            f"  {name:<14}{loads.step_secs * 1e3:>6.1f} ms, the busiest host has {loads.imbalance:.2f} of the mean load"
        )


def main() -> None:
    """Print the seconds of a step by hour, and the ratios after the change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=10)
    parser.add_argument("--drift", type=int, default=4, help="the first hour with the other lists")
    parser.add_argument("--rows", type=int, default=40_000, help="events of an hour")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steady", action="store_true", help="only the log without a change")
    parser.add_argument("--quick", action="store_true", help="few rows, to test the script")
    given = parser.parse_args()
    rows = 4_000 if given.quick else given.rows
    print(machine())
    topology = topology_of(f"cpu:{_HOSTS}")
    before = names()[::2]
    plan_a = make_plan(facts(before), topology, _BATCH).plan
    after = [one.name for one in plan_a.tables if one.slices[0].cores[0] == 0]
    plan_b = make_plan(facts(after), topology, _BATCH).plan
    _print_prices(plan_a, plan_b, after)
    with tempfile.TemporaryDirectory(prefix="headrace-feedback-") as name:
        folder = Path(name)
        files = [plan_file(folder, kind, plan) for kind, plan in (("a", plan_a), ("b", plan_b))]
        if not given.steady:
            _print_drift(folder, files, before, after, rows, given)
        steady = scene_of(folder / "steady", given.hours, rows, [before] * given.hours)
        run = folder / "steady-run"
        steady.train(run, _BEGUN, "--plan", files[0])
        steady.train(run, given.hours, "--plan", "auto")
        print("steady log")
        _print_moves(run)


def _print_drift(
    folder: Path,
    files: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
    rows: int,
    given: argparse.Namespace,
) -> None:
    """Print the seconds of a step on a log whose long lists change."""
    drift = scene_of(
        folder / "drift", given.hours, rows, [before if h < given.drift else after for h in range(given.hours)]
    )
    print(f"milliseconds of a step of {_BATCH:,} events by hour; the lists change at hour {given.drift}")
    late: dict[str, list[float]] = {}
    for k in range(given.repeats):
        for kind, secs in runs_of(drift, files[0], files[1], given, k).items():
            own = [secs[hour] for hour in range(given.hours - 3, given.hours) if hour in secs]
            late.setdefault(kind, []).append(statistics.median(own) if own else float("nan"))
    best = statistics.median(late["clairvoyant"])
    print("median of the last three hours, by that of the clairvoyant plan:")
    for kind, each in late.items():
        print(f"  {kind:<12}{statistics.median(each) / best:>6.2f}x")


if __name__ == "__main__":
    main()
