"""The planner against TorchRec's planner and whole tables by size, for published table sets.

    python -m benchmarks.planners FILE... [--topologies gpu:8 gpu:128] [--events-per-core 256] [--skew 1.05]
                                  [--search-secs 240] [--most-secs 580] [--answers FOLDER] [--environment .fbgemm]

TorchRec's planner runs in the environment ``.fbgemm`` (``make bench-fbgemm``). It is given the tables with their mean ids of an event and
their optimizer, the events of a core, and of the topology the cores, their memory and the bandwidths of memory and links, the same within
hosts of 8 cores and between them. It cannot be given row frequencies: those that it takes are of caches in front of a host's memory. Tables
stay in the cores' memory in all plans. TorchRec's search goes on for ``--search-secs``, and is given up after ``--most-secs``.

All plans are priced by one cost model (trainer/planning/loads.py). TorchRec gives each core a block of rows. The rows of the published sets are in
the order of their frequency, so that the first block has all frequent rows; ids of real logs are usually hashed. Its plan is therefore
priced twice: with rows spread over the cores of the blocks as a hash does it, which is the comparison that counts, and with the blocks.

TorchRec's estimator prices pooled rows, which the owner of a table sums before it sends them, where this project's engine sends distinct rows; and
it prices rows over all cores or over a host, not over some cores. The last but one column has what it says of TorchRec's plan by what it says
of the planner's where each table of that has a form in TorchRec; elsewhere how many have one.

``--answers`` keeps what TorchRec's planner answered in a folder, and reads it from there where the request is the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.partition_plans import by_size, roomy
from benchmarks.support.fbgemm_environment import FOLDER
from benchmarks.support.harness import machine
from benchmarks.support.torchrec_plan import TorchrecAnswer, read_answer, read_millis, sharding_of, with_rows_spread
from trainer.planning.loads import Loads, loads_of
from trainer.planning.plan import PartitionPlan
from trainer.planning.planner import Planned, make_plan
from trainer.planning.table_file import read_tables
from trainer.planning.tables import TableFacts
from trainer.planning.topologies import PlanTopology, topology_of
from trainer.solving.process import search_with

_ROOT = Path(__file__).resolve().parents[1]
_HOST_CORES = 8
#: Sums of a step's seconds in another order differ by less.
_EQUAL = 1e-9


def request_of(
    tables: Sequence[TableFacts], topology: PlanTopology, events_per_core: int, search_secs: int
) -> dict[str, Any]:
    """What TorchRec's planner is asked."""
    return {
        "tables": [
            {
                "name": one.name,
                "rows": one.rows,
                "columns": one.columns,
                "ids_per_event": [feature.ids_per_event for feature in one.features],
                "column_slots": one.column_slots,
                "row_slots": one.row_slots,
            }
            for one in tables
        ],
        "cores": topology.cores,
        "host_cores": min(_HOST_CORES, topology.cores),
        "events_per_core": events_per_core,
        "is_cpu": topology.name.partition(":")[0] in ("cpu", "ps"),
        "memory_bytes": topology.memory_bytes,
        "memory_bytes_per_sec": 1 / topology.rates.read_byte_secs,
        "link_bytes_per_sec": 1 / topology.rates.wire_byte_secs,
        "search_secs": search_secs,
    }


def ask_torchrec(request: dict[str, Any], python: Path, most_secs: float) -> bytes:
    """The answer of TorchRec's planner, which runs in an environment of its own; a refusal if it takes too long."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [str(python), "-m", "benchmarks.support.side_of_torchrec_planner"]
    try:
        done = subprocess.run(command, cwd=_ROOT, env=environment, input=json.dumps(request).encode(), capture_output=True,
                              timeout=most_secs, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return json.dumps({"refused": f"no plan within {most_secs:.0f} s", "secs": most_secs}).encode()
    if done.returncode:
        raise SystemExit(f"TorchRec's planner ended with status {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done.stdout


def answer_file(answers: Path, request: dict[str, Any]) -> Path:
    """Where the answer to a request is kept."""
    return answers / f"{hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]}.json"


def kept_answer(request: dict[str, Any], python: Path, most_secs: float, answers: Path | None) -> bytes:
    """The answer in the folder ``answers``, if there is one for this request, else a new one, which is kept there."""
    if answers is None:
        return ask_torchrec(request, python, most_secs)
    file = answer_file(answers, request)
    if not file.exists():
        answers.mkdir(parents=True, exist_ok=True)
        file.write_bytes(ask_torchrec(request, python, most_secs))
    return file.read_bytes()


@dataclass(frozen=True, eq=False)
class Compared:
    """The plans of one table set on one topology.

    Attributes:
        planned, planner_secs: the planner's plan, and what it took.
        by_size: the loads of whole tables by size.
        answer: what TorchRec's planner answered.
        spread, blocks: the loads of its plan; None without one.
    """

    planned: Planned
    planner_secs: float
    by_size: Loads
    answer: TorchrecAnswer
    spread: Loads | None
    blocks: Loads | None

    def ratios(self) -> list[float | None]:
        """The steps of the others by the planner's: by size, TorchRec's with rows spread, and with blocks."""
        own = self.planned.loads.step_secs
        return [None if one is None else one.step_secs / own for one in (self.by_size, self.spread, self.blocks)]


#: The answer of TorchRec's side to a request.
Ask = Callable[[dict[str, Any]], bytes]


def compare(tables: Sequence[TableFacts], topology: PlanTopology, request: dict[str, Any], ask: Ask) -> Compared:
    """All plans of one set."""
    events = request["events_per_core"] * topology.cores
    began = time.perf_counter()
    planned = make_plan(tables, topology, events, search=search_with(5.0))
    took = time.perf_counter() - began
    answer = read_answer(ask(request), "TorchRec", tables, topology.cores)
    spread = blocks = None
    if answer.blocks is not None:
        blocks = loads_of(answer.blocks, tables, topology, events)
        spread = loads_of(with_rows_spread(answer.blocks), tables, topology, events)
    sized = loads_of(by_size(tables, topology), tables, topology, events)
    return Compared(planned, took, sized, answer, spread, blocks)


def torchrec_estimate(compared: Compared, request: dict[str, Any], ask: Ask) -> str:
    """What TorchRec's estimator says of its own plan by what it says of the planner's; else how many tables of that it has a form for."""
    plan, answer = compared.planned.plan, compared.answer
    forms = [sharding_of(one, plan.cores, request["host_cores"]) for one in plan.tables]
    if answer.blocks is None or not all(forms):
        return f"{sum(map(bool, forms))} of {len(forms)}"
    sent = [sent_plan(plan, forms), sent_plan(answer.blocks, answer.shardings)]
    own, others = read_millis(ask({**request, "plans": sent}), "TorchRec's estimator", len(sent))
    return f"{others / own:.2f}x"


def sent_plan(plan: PartitionPlan, shardings: Sequence[str]) -> list[dict[str, Any]]:
    """A plan as it is sent to TorchRec's estimator."""
    return [
        {"name": one.name, "sharding": sharding, "cores": [core for part in one.slices for core in part.cores]}
        for one, sharding in zip(plan.tables, shardings, strict=True)
    ]


def row_of(name: str, compared: Compared, estimate: str) -> str:
    """The line of one set on one topology."""
    ratios = "".join(f"{'-':>9}" if one is None else f"{one:8.2f}x" for one in compared.ratios())
    imbalances = "".join(
        f"{'-':>8}" if one is None else f"{one.imbalance:8.3f}"
        for one in (compared.planned.loads, compared.by_size, compared.spread)
    )
    ways = ", ".join(f"{count} {name}" for name, count in Counter(compared.answer.shardings).most_common())
    topology = compared.planned.topology.name
    return (
        f"{name[:38]:<38} {topology:>9} {ratios}  {imbalances}  {compared.planner_secs:6.1f} {compared.answer.secs:7.1f}  {estimate:>10}  "
        + (compared.answer.refused.splitlines()[0][:160] if compared.answer.refused else ways)
    )


def summary_of(topology: str, found: Sequence[Compared]) -> str:
    """The geometric means of the sets on one topology, and the least ratios."""
    parts = []
    for k, name in enumerate(("by size", "TorchRec", "TorchRec's blocks")):
        ratios = [one for one in (compared.ratios()[k] for compared in found) if one is not None]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            worse = sum(one < 1 - _EQUAL for one in ratios)
            parts.append(
                f"{name} {mean:.3f}x (least {min(ratios):.4f}x, shorter than ours in {worse} of {len(ratios)})"
            )
    return f"{topology}, geometric means of steps by ours: {'; '.join(parts)}"


def main() -> None:
    """Compare the plans of all files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--topologies", nargs="+", default=["gpu:8", "gpu:128"])
    parser.add_argument("--events-per-core", type=int, default=256)
    parser.add_argument("--skew", type=float, default=1.05)
    parser.add_argument("--search-secs", type=int, default=240)
    parser.add_argument("--most-secs", type=int, default=580)
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--environment", type=Path, default=FOLDER)
    options = parser.parse_args()
    python = options.environment.absolute() / "bin" / "python"
    if not python.exists():
        sys.exit(f"TorchRec is missing: {python} must exist; make bench-fbgemm installs it in .fbgemm")
    print(machine())
    print(
        f"{'tables':<38} {'topology':>9}   by size TorchRec   blocks  imbalance: ours, by size, TorchRec; secs   its secs"
    )

    def ask(request: dict[str, Any]) -> bytes:
        return kept_answer(request, python, options.most_secs, options.answers)

    for text in options.topologies:
        found = []
        for file in options.files:
            tables = read_tables(Path(file).read_bytes(), file, skew=options.skew)
            topology = roomy(tables, topology_of(text))
            request = request_of(tables, topology, options.events_per_core, options.search_secs)
            found.append(compare(tables, topology, request, ask))
            print(row_of(Path(file).stem, found[-1], torchrec_estimate(found[-1], request, ask)), flush=True)
        print(summary_of(text, found), flush=True)


if __name__ == "__main__":
    main()
