"""Training with hot rows beside parameter servers against all rows on the servers: bytes on the wire, steps a second, and the same bits.

    python -m benchmarks.hot_rows_wire [--globo FOLDER] [--hours 12] [--rows 100000] [--share 0.1] [--servers 2] [--rounds 3] [--delay-us 0]

Both sides train the example model of Globo's log, or of the sample log without it, with all options given; servers are processes of this machine. First all rows are on the servers, which also samples the statistics of the inputs. Then ``hot_rows`` is a share of the bytes of all tables,
shared out by these statistics, as ``headrace train`` does. Rounds repeat both alternately; bytes are those of every round, and steps a second
the medians. ``--delay-us`` puts a network between, which delays each way. At the end all weights, slots and the history of both must be equal bit for bit.

Target: fewer bytes on the wire, and no bit that differs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.many_models import GLOBO, globo, sample
from benchmarks.support.delayed_network import DelayedNetwork, Network
from benchmarks.support.harness import machine
from benchmarks.support.job_token import TOKEN
from benchmarks.support.quality_logs import EXAMPLES
from benchmarks.support.server_processes import ServerProcesses
from benchmarks.support.training_scene import OPTIONS
from headrace.cli.held_out_scoring import fragment_reader
from headrace.cli.planned_training import with_hot_rows
from headrace.feature_statistics import PROCESS, recorder
from headrace.model_file import load_models
from trainer.job.launch.run_comparison import run_differences
from trainer.options.config import TrainConfig
from trainer.options.hot_rows import HotOptions
from trainer.run.loop import train
from trainer.servers.run_servers import RunServers
from trainer.tables.hot_figures import HotFigures
from trainer.tables.routes.servers.served_engine import ServedEngine, ServedOptions
from trainer.tables.spec import FeatureSpec
from trainer.wire.flight.addresses import Address
from warehouse import ReadSolution, Warehouse, WarehouseConfig, read_solution, register_table, submit_model


@dataclass(frozen=True, slots=True)
class Scene:
    """The home of a warehouse, and the read solution of its model."""

    home: Path
    solution: ReadSolution


def make_scene(folder: Path, source: Path | None, hours: int, rows: int) -> Scene:
    """The example model of a log that is prepared here."""
    home = folder / "home"
    log = sample(folder, rows) if source is None else globo(folder, source, hours, "day")
    file, name = ("search_ads.py", "search_ctr") if source is None else ("globo.py", "news_ctr")
    model = next(one for one in load_models(EXAMPLES / file) if one.name == name)
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, "log", str(log))
        submit_model(warehouse, model, table="log")
        return Scene(home, read_solution(warehouse, model.name))


@dataclass(frozen=True, slots=True)
class Trained:
    """One run: steps a second, bytes on the wire in a step, and what hot rows have done."""

    steps_per_sec: float
    step_bytes: float
    hot: HotFigures | None


def train_once(scene: Scene, config: TrainConfig, addresses: Sequence[Address], run: int) -> Trained:
    """Train the model of a scene with its tables on servers."""
    servers, made = RunServers(tuple(addresses), TOKEN, run=run), list[ServedEngine]()

    def make(features: Sequence[FeatureSpec], seed: int, held: int, options: ServedOptions) -> ServedEngine:
        made.append(servers.engine(1, features, seed, held, options))
        return made[-1]

    with Warehouse.open(WarehouseConfig(str(scene.home))) as warehouse:
        report = train(
            scene.solution,
            fragment_reader(warehouse, scene.solution),
            config,
            make_engine=make,
            record=recorder(warehouse, PROCESS),
        )
    (engine,) = made
    steps = sum(-(-one.scores.events // config.batch_rows) for one in report.history)
    bytes_ = engine.direct.wire_bytes if report.hot is None else report.hot.wire_bytes
    engine.close()
    return Trained(steps / report.seconds, bytes_ / steps, report.hot)


def compare(scene: Scene, folder: Path, given: argparse.Namespace) -> bool:
    """Train both sides in rounds and print them; whether they have the same bits, and hot rows spare bytes."""
    found: dict[str, list[Trained]] = {"all rows on servers": [], "hot rows here": []}
    differing: list[str] = []
    plain = TrainConfig(run_dir=str(folder / "warm-up"), **OPTIONS)
    with (
        ServerProcesses(given.servers) as processes,
        DelayedNetwork(processes.addresses, Network(given.delay_us * 1e-6)) as network,
    ):
        addresses = network.addresses if given.delay_us else processes.addresses
        for number in range(given.rounds):
            runs = [folder / f"{side}-{number}" for side in ("plain", "hot")]
            for k, (side, run) in enumerate(zip(found, runs, strict=True)):
                config = replace(plain, run_dir=str(run), hot_rows=HotOptions(share=given.share) if k else None)
                config = with_hot_rows(str(scene.home), scene.solution, config)
                one = train_once(scene, config, addresses, 2 * number + k + 1)
                found[side].append(one)
                print(f"round {number + 1}/{given.rounds}  {side:<20} {one.step_bytes / 1e3:8.1f} kB a step  {one.steps_per_sec:7.1f} steps/s", flush=True)  # fmt: skip
            differing += run_differences(*runs)
    all_rows, hot = found.values()
    ratio = hot[-1].step_bytes / all_rows[-1].step_bytes
    speed = statistics.median(b.steps_per_sec / a.steps_per_sec for a, b in zip(all_rows, hot, strict=True))
    figures = hot[-1].hot
    assert figures is not None
    print(f"hot rows take {figures.memory_bytes / 1e6:.1f} MB and serve {figures.hit_share:.1%} of {figures.lookups:,} lookups; "
          f"{figures.rows_in:,} rows became hot, {figures.rows_out:,} were written back")  # fmt: skip
    print(f"bytes on the wire: {ratio:.3f}x of all rows on servers (the run itself says about {figures.wire_ratio:.3f}x); steps a second {speed:.2f}x")  # fmt: skip
    print("weights, slots and history are equal bit for bit" if not differing else f"they differ: {differing[:8]}")
    return not differing and ratio < 1


def main() -> int:
    """Measure; the exit status is 1 if bits differ, or hot rows spare nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--globo", type=Path, default=GLOBO, help="the folder of clicks_hour_*.csv.gz")
    parser.add_argument("--hours", type=int, default=12, help="of Globo's log")
    parser.add_argument("--rows", type=int, default=100_000, help="of the sample log, about")
    parser.add_argument("--share", type=float, default=0.1, help="of the bytes of all tables, for hot rows")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-us", type=int, default=0, help="each way, between the trainer and each server")
    given = parser.parse_args()
    print(machine())
    source = given.globo if any(given.globo.glob("clicks_hour_*.csv.gz")) else None
    if source is None:
        print(f"Globo's log is not at {given.globo}: the sample log takes its place")
    with tempfile.TemporaryDirectory(prefix="headrace-hot-rows-") as name:
        scene = make_scene(Path(name), source, given.hours, given.rows)
        print(f"{sum(one.rows for part in scene.solution.partitions for one in part.fragments):,} events of {scene.solution.model}, "
              f"batches of {OPTIONS['batch_rows']}, {given.servers} servers")  # fmt: skip
        return 0 if compare(scene, Path(name), given) else 1


if __name__ == "__main__":
    sys.exit(main())
