"""A log with the memos of one model's inputs, and readers over it: for benchmarks of what trainers read."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.many_models import LOAD_ALL, REPOSITORY, globo, sample, worker_secs
from benchmarks.support.fleets import news_fleet, search_fleet
from benchmarks.support.job_token import TOKEN
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.reading.reader_service import ReaderService
from trainer.run.reading.unit_reader import UnitReader, read_by_solution
from trainer.run.reading.unit_requests import UnitRequest
from trainer.run.reading.warm_up import warm_up
from trainer.wire.flight.addresses import Address
from transforms.execution.memory import keep_freed_memory
from warehouse import ReadSolution, Warehouse, WarehouseConfig, read_solution, register_table, submit_model
from warehouse.storage.storage import Storage


@dataclass(frozen=True)
class Memoized:
    """A warehouse and the read solution of its model, all of whose inputs are memos."""

    home: Path
    solution: ReadSolution

    @property
    def storage(self) -> Storage:
        """The warehouse's storage."""
        return Storage(str(self.home))

    @property
    def layout(self) -> InputLayout:
        """The model's inputs."""
        inputs = [TypedInput(item.name, item.type) for item in self.solution.inputs]
        return lay_out(inputs, TrainConfig(run_dir=str(self.home / "run")))

    def reader(self, kept_bytes: int = 1 << 30) -> UnitReader:
        """A reader in this process."""
        return UnitReader(lambda _: self.solution, read_by_solution(self.storage), kept_bytes=kept_bytes)

    def requests(self, unit_rows: int) -> list[UnitRequest]:
        """The units of all fragments, in order."""
        digest, found = self.solution.digest(), list[UnitRequest]()
        for part in self.solution.partitions:
            for position, fragment in enumerate(part.fragments):
                for first in range(0, fragment.rows, unit_rows):
                    rows = min(unit_rows, fragment.rows - first)
                    found.append(UnitRequest(len(found), 1, digest, f"{part.key}#{position}", first, rows))
        return found


def memoize(folder: Path, source: Path | None, hours: int, rows: int) -> Memoized:
    """Globo's log by the day if its folder is given, else the sample log, with the memos of the first model of its fleet."""
    if source is not None:
        log, fleet = globo(folder, source, hours, "day"), news_fleet()
    else:
        log, fleet = sample(folder, rows), search_fleet()
    (model,) = fleet.models(1)
    home = folder / "home"
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, fleet.table, str(log))
        submit_model(warehouse, model, policy="all")
    worker_secs(home)
    with Warehouse.open(WarehouseConfig(str(home), rates=LOAD_ALL)) as warehouse:
        solution = read_solution(warehouse, model.name)
    (home / "solution.json").write_text(json.dumps(solution.to_document()))
    return Memoized(home, solution)


@contextmanager
def reader_process(
    home: Path, secs_per_unit: float = 0.0, kept_bytes: int = 1 << 30
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A reader in a process of its own, and its address."""
    command = [sys.executable, "-m", "benchmarks.support.memoized", str(home), str(secs_per_unit), str(kept_bytes)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


class _SlowReader(UnitReader):
    secs_per_unit = 0.0

    def pack(self, request: UnitRequest):  # type: ignore[no-untyped-def]
        time.sleep(self.secs_per_unit)
        return super().pack(request)


def main(home: str, secs_per_unit: str, kept_bytes: str) -> None:
    """Serve until the process is killed, each unit after so many seconds."""
    keep_freed_memory()
    warm_up()
    solution = ReadSolution.from_json((Path(home) / "solution.json").read_text())
    reader = _SlowReader(lambda _: solution, read_by_solution(Storage(home)), kept_bytes=int(kept_bytes))
    reader.secs_per_unit = float(secs_per_unit)
    with ReaderService(Address("127.0.0.1", 0), reader, token=TOKEN) as service:
        print(service.address, flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
