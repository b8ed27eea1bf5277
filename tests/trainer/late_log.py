"""A synthetic log with late labels, late rows and deletions.

Also a program: ``python late_log.py <run_dir> <stage> <batches>`` trains on it, for tests that kill a training process. At stage
0 some labels have not come, at stage 1 they have, with late rows and retractions. After so many batches it stands still
(0: never).
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.trainer.synthetic import Synthetic, config, fragment_table
from trainer.run.progress.data_changes import ChangePolicy
from warehouse.tables.table import Overlay


class Log(Synthetic):
    """A synthetic log whose labels, rows and retractions come and go; ``version`` goes into the changed digests."""

    def __init__(self, partitions: int = 3, rows: int = 100) -> None:
        super().__init__(partitions, rows)
        self.stored = dict(self.tables)
        self.live = {path: np.ones(table.num_rows, bool) for path, table in self.tables.items()}

    def _change(self, path: str, **changes) -> None:
        parts = [
            replace(part, fragments=tuple(replace(f, **changes) if f.path == path else f for f in part.fragments))
            for part in self.solution.partitions
        ]
        self.solution = replace(self.solution, partitions=tuple(parts))

    def _fragment(self, path: str):
        return next(f for part in self.solution.partitions for f in part.fragments if f.path == path)

    def _redigest(self, path: str, column: str, version: str) -> None:
        self._change(path, digests={**self._fragment(path).digests, column: version})

    def label(self, path: str, values: list[int | None], version: str) -> None:
        table = self.stored[path]
        self.stored[path] = table.set_column(table.num_columns - 1, "__label__", pa.array(values, pa.int64()))
        self._redigest(path, "clicked", version)

    def hide(self, path: str, rows) -> list[int | None]:
        """Make labels null; returns what they were."""
        known = self.stored[path]["__label__"].to_pylist()
        self.label(path, [None if k in set(rows) else value for k, value in enumerate(known)], "hidden")
        return known

    def retract(self, path: str, rows, version: str) -> None:
        self.live[path] = np.ones(self.stored[path].num_rows, bool)
        self.live[path][list(rows)] = False
        vector = Overlay("deleted", f"{path}.arrow", version) if len(rows) else None
        self._change(path, deletions=vector, deleted_rows=len(rows))

    def append(self, partition: int, rows: int, seed: int) -> str:
        part = self.solution.partitions[partition]
        path = f"{part.key}/late-{seed}.parquet"
        self.stored[path] = fragment_table(seed, rows)
        self.live[path] = np.ones(rows, bool)
        first = part.fragments[0]
        digests = {name: f"{seed}-{name}" for name in first.digests}
        # Late files may come before those that were there.
        fragments = (replace(first, path=path, fragment_id=path, rows=rows, digests=digests, deletions=None,
                             deleted_rows=0), *part.fragments)  # fmt: skip
        parts = list(self.solution.partitions)
        parts[partition] = replace(part, fragments=fragments)
        self.solution = replace(self.solution, partitions=tuple(parts))
        return path

    def read(self, fragment) -> pa.Table:
        table, live = self.stored[fragment.path], self.live[fragment.path]
        return table.append_column("__row__", pa.array(np.arange(table.num_rows))).filter(pa.array(live))

    def read_labels(self, fragment) -> pa.Table:
        table, live = self.stored[fragment.path], self.live[fragment.path]
        return table.select(["__label__"]).append_column("__live__", pa.array(live))

    def train(self, run_dir: Path, **options: Any) -> Any:
        """Train on the log as it stands; ``stop`` and ``progress`` are those of the trainer, others of its options or policy."""
        from trainer.run.loop import train

        changes = ChangePolicy(options.pop("accept_changed", False), options.pop("train_labels", False))
        stop, progress = options.pop("stop", None), options.pop("progress", None)
        return train(self.solution, self.read, config(run_dir, **{"batch_rows": 64, **options}), stop=stop, progress=progress,
                     read_labels=self.read_labels, changes=changes)  # fmt: skip


def at_stage(stage: int) -> Log:
    """The log of the killed runs."""
    log = Log(3, 100)
    shown = log.hide("hour=00/1.parquet", range(0, 117, 5))
    log.hide("hour=02/0.parquet", range(40))
    if stage:
        log.label("hour=00/1.parquet", shown, "come")
        log.append(1, 400, seed=77)
        log.retract("hour=01/0.parquet", range(10), "some")
    return log


def main(run_dir: str, stage: str, batches: str) -> None:
    """Train, printing one JSON line an event of the run, flushed."""
    left = itertools.count(int(batches) - 1, -1)

    def tell(event: Any) -> None:
        print(json.dumps({"kind": event.kind, "events": event.events}), flush=True)
        while event.kind == "batch" and next(left) == 0:
            time.sleep(3600)

    report = at_stage(int(stage)).train(Path(run_dir), passes=2, deterministic=True, batch_rows=32, progress=tell)
    print(json.dumps({"kind": "report", "report": report.to_document()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
