"""Checkpoints of servers that write and read their rows themselves: time by the number of servers, at equal rows on each.

    python -m benchmarks.server_shards [--rows N] [--servers 1,2,4,8] [--folder FOLDER]

Servers are those of ``headrace ps serve``, with all of their rows changed. Each number of servers writes its shards, writes partial ones
after 5 % of the rows were changed, loads these with their bases, and then the same rows pass through this process as a checkpoint, as they do
where servers do not reach the run. Seconds are of the wall clock; on fewer
processors than servers they grow with the number, so the seconds of the processor that each server takes are beside them. Bytes through this
process are those on its connections.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.support.harness import machine
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.shard_name import ShardName
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.local_servers import LocalServers
from trainer.run.weights.saved_tables import parted_tables
from trainer.run.weights.server_shards import ServerShards
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import TableState
from trainer.tables.routes.servers.engine import PsEngine

_TABLES, _DIM = 4, 16
_LOADED_ROWS = 1 << 17
_UPDATED_ROWS, _CHANGED_SHARE = 1 << 12, 0.05
_ASIDE_BYTES = 64 << 20
_TICKS = os.sysconf("SC_CLK_TCK")


def _command(options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "headrace", "ps", "serve", *options]


def _place_of(table: str) -> tuple[str, str]:
    return "embedding", table


def _fail(reason: str) -> None:
    raise SystemExit(f"error: servers do not write their shards: {reason}")


def _engine_on(servers: LocalServers, rows: int) -> PsEngine:
    """An engine of tables of so many rows on each server, all of them changed."""
    count = len(servers.addresses)
    features = [
        FeatureSpec(f"f{t}", TableSpec(f"t{t}", rows * count // _TABLES, _DIM, Adagrad(0.1), "sum"))
        for t in range(_TABLES)
    ]
    options = LinkOptions(Greeting(servers.token, attempt=1))
    engine = PsEngine(features, seed=1, servers=[connect_to(one, options) for one in servers.addresses], threads=1)
    rng = np.random.default_rng(2)
    for one in engine.servers:
        one.begin_load()
    for t, table in enumerate(engine.parts.tables):
        for first in range(0, table.vocabulary_size, _LOADED_ROWS):
            numbers = np.arange(first, min(first + _LOADED_ROWS, table.vocabulary_size))
            weights, slots = rng.random((2, len(numbers), _DIM), np.float32)
            state = TableState(numbers, weights, slots)
            for p in engine.parts.of_table(t):
                for server, one in enumerate(engine.servers):
                    one.load_rows(p, engine.parts.parts[p].own_state(server, state))
    for one in engine.servers:
        one.end_load()
    return engine


def _processor_secs(servers: LocalServers) -> float:
    """The seconds of the processor that all servers and their children have taken."""
    keepers = set(servers.processes.values())
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(name.partition(" ")[0]) in keepers or int(fields[1]) in keepers:
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def _timed(servers: LocalServers, work: Callable[[], object]) -> tuple[float, float]:
    """The seconds of some work, and those of the processor that each server took for it."""
    began, used = time.monotonic(), _processor_secs(servers)
    work()
    return time.monotonic() - began, (_processor_secs(servers) - used) / len(servers.addresses)


def _stored_bytes(run: Path, names: Sequence[ShardName]) -> int:
    return sum(sum(open_run(run).sizes(one.folder).values()) for one in names)


def _change(engine: PsEngine, share: float) -> None:
    """Update a share of the rows of each table, drawn at random."""
    rng = np.random.default_rng(3)
    sizes = [one.vocabulary_size for one in engine.tables]
    rows = [np.sort(rng.choice(size, int(size * share), replace=False)) for size in sizes]
    events = max(map(len, rows))
    for first in range(0, events, _UPDATED_ROWS):
        own = [one[first : first + _UPDATED_ROWS] for one in rows]
        count = max(map(len, own))
        ends = np.cumsum([len(one) for one in own])
        offsets = (
            np.stack([np.minimum(np.arange(count + 1), len(one)) for one in own])
            + (ends - [len(one) for one in own])[:, None]
        )
        batch = IdBatch(np.concatenate(own), offsets)
        activations = engine.lookup(batch)
        engine.apply_gradients(batch, (0.01 * activations + 0.001).astype(np.float32))
    engine.finish()


def _measure(count: int, rows: int, folder: Path) -> None:
    run = folder / "run"
    files = JobFiles(folder / "job")
    files.make_token()
    with LocalServers(count, _command, token_file=files.token, logs=folder / "logs", runs=str(run)) as servers:
        engine = _engine_on(servers, rows)
        shards = ServerShards(engine, _place_of, _fail)
        written: list[ShardName] = []
        saved_bytes = 0

        def commit(attempt: int) -> None:
            nonlocal saved_bytes
            engine.begin_snapshot(most_bytes=_ASIDE_BYTES)
            found = shards.write(run, attempt, attempt)
            written[:] = found.names
            saved_bytes = sum(one.saving_bytes for one in engine.servers)
            engine.end_snapshot()
            write_checkpoint(run, attempt, {"step": attempt}, {}, keep=1, shards=found)

        def pass_rows() -> None:
            tables = parted_tables(_place_of, engine, _ASIDE_BYTES)
            write_checkpoint(folder / "rows", 1, {"step": 1}, {}, tables, keep=1)
            engine.end_snapshot()

        commit_secs, commit_cpu = _timed(servers, lambda: commit(1))
        stored, whole_bytes = _stored_bytes(run, written), saved_bytes
        _change(engine, _CHANGED_SHARE)
        partial_secs, _ = _timed(servers, lambda: commit(2))
        share = _stored_bytes(run, written) / stored
        loaded_before = engine.wire_bytes
        restore_secs, restore_cpu = _timed(servers, lambda: shards.load(run, 2, written))
        loaded_bytes = engine.wire_bytes - loaded_before
        rows_secs, _ = _timed(servers, pass_rows)
        print(f"{count:7} {rows:12,} {stored / 1e6:9.1f} {commit_secs:9.2f} {commit_cpu:12.2f} {restore_secs:10.2f} {restore_cpu:12.2f} "
              f"{whole_bytes:13,} {loaded_bytes:13,} {rows_secs:12.2f} {partial_secs:10.2f} {share:10.3f}", flush=True)  # fmt: skip
        engine.close()


def main() -> None:
    """Print a line for each number of servers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000, help="on each server")
    parser.add_argument("--servers", default="1,2,4,8", help="numbers of servers")
    parser.add_argument("--folder", default="", help="of the run; a new one by default")
    asked = parser.parse_args()
    print(machine())
    print(
        "servers  rows on each  MB stored  commit s  CPU s/server  restore s  CPU s/server  bytes saving  bytes loading  rows pass: s  partial s  its share"
    )
    for count in map(int, asked.servers.split(",")):
        with tempfile.TemporaryDirectory(dir=asked.folder or None) as folder:
            _measure(count, asked.rows, Path(folder))


if __name__ == "__main__":
    main()
