"""Checkpoints of servers that write and read their rows themselves: time by the number of servers, at equal rows on each.

    python -m benchmarks.server_shards [--rows N] [--servers 1,2,4,8] [--kinds dense,hashed,pruned] [--rounds N] [--folder FOLDER]

Servers are those of ``headrace ps serve``, with all of their rows changed. Each number of servers writes its shards. Then 5 % of the rows are changed,
and the same moment is written as partial shards, and as full ones of another run. The partial shards are loaded with their bases, the full ones too;
the best of some rounds counts of each. Then the same rows pass through this process as a checkpoint, as they do where servers do not reach the run. Seconds are
of the wall clock; on fewer processors than servers they grow with the number, so the seconds of the processor that each server takes are beside them.
Bytes through this process are those on its connections.

Hashed tables are full, with admission at the second update: of the changed rows a tenth are new ids, which take the places of others. Of pruned
tables half of the rows have places, which a round of the change gives to others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.support.harness import machine
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.local_servers import LocalServers
from trainer.options.pruning import PruningOptions
from trainer.run.weights.saved_tables import parted_tables
from trainer.run.weights.server_shards import ServerShards
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import NO_SECTIONS, TableSections, TableState
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.saved_history import AGES, CANDIDATES, STEPS
from trainer.tables.stores.pruned.history import PrunedHistory
from transforms.arrays import Array

_TABLES, _DIM = 4, 16
_HASHED_IDS, _KEPT_SHARE = 1 << 62, 0.5
_UPDATED_ROWS, _CHANGED_SHARE = 1 << 12, 0.05
_ASIDE_BYTES = 64 << 20
_T = TypeVar("_T")
_TICKS = os.sysconf("SC_CLK_TCK")


def _command(options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "headrace", "ps", "serve", *options]


def _place_of(table: str) -> tuple[str, str]:
    return "embedding", table


def _fail(reason: str) -> None:
    raise SystemExit(f"error: servers do not write their shards: {reason}")


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """An engine, and the ids of each table that may be changed.

    Attributes:
        engine: on servers, with all rows changed.
        ids: int64, ascending: those that have rows.
        new_ids: ids without rows.
    """

    engine: PsEngine
    ids: tuple[Array, ...]
    new_ids: tuple[Array, ...]


def _engine_on(servers: LocalServers, kind: str, rows: int) -> Scene:
    """An engine of tables of so many rows on each server, all of them changed."""
    count = len(servers.addresses)
    own = rows * count // _TABLES
    vocabulary = _HASHED_IDS if kind == "hashed" else own
    features = [FeatureSpec(f"f{t}", TableSpec(f"t{t}", vocabulary, _DIM, Adagrad(0.1), "sum")) for t in range(_TABLES)]
    options = LinkOptions(Greeting(servers.token, attempt=1))
    links = [connect_to(one, options) for one in servers.addresses]
    limits = {one.table.name: TableLimits(own, admit_after=2) for one in features} if kind == "hashed" else None
    steps = -(-int(own * _CHANGED_SHARE) // _UPDATED_ROWS)
    pruning = PruningOptions(_KEPT_SHARE, round_steps=steps, spare_share=0.0) if kind == "pruned" else None
    engine = PsEngine(features, seed=1, servers=links, threads=1, hashed=limits, pruning=pruning)
    rng = np.random.default_rng(2)
    stride = (_HASHED_IDS // own) | 1 if kind == "hashed" else 1  # odd: ids are spread over all servers
    all_ids = [np.arange(own) * stride for _ in features]
    engine.load_state(
        {one.table.name: _state(kind, ids, count, rng) for one, ids in zip(features, all_ids, strict=True)}
    )
    new_ids = tuple(ids + 8 * count if kind == "hashed" else ids[:0] for ids in all_ids)
    return Scene(engine, tuple(all_ids), new_ids)


def _state(kind: str, ids: Array, servers: int, rng: np.random.Generator) -> TableState:
    """Random rows of a table, with what a table of its kind has beside them."""
    if kind == "pruned":
        importance = rng.random((len(ids), 1), np.float32) + np.float32(0.1)
        sections = PrunedHistory(ids, importance[:, 0], 1.0, 0, 0).sections()
        ids = ids[np.sort(np.argsort(-importance[:, 0])[: int(_KEPT_SHARE * len(ids))])]
    elif kind == "hashed":
        ages = rng.integers(0, 1_000, len(ids))
        sections = TableSections(
            arrays={AGES: ages, STEPS: np.full(servers, 1_000), CANDIDATES: np.zeros(0, np.uint64)}
        )
    else:
        sections = NO_SECTIONS
    weights, slots = rng.random((2, len(ids), _DIM), np.float32)
    return TableState(ids, weights, slots, sections)


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


def _timed(servers: LocalServers, work: Callable[[], _T]) -> tuple[float, float, _T]:
    """The seconds of some work, those of the processor that each server took for it, and its result."""
    began, used = time.monotonic(), _processor_secs(servers)
    found = work()
    return time.monotonic() - began, (_processor_secs(servers) - used) / len(servers.addresses), found


def _stored_bytes(run: Path, names: Sequence[ShardName]) -> int:
    return sum(sum(open_run(run).sizes(one.folder).values()) for one in names)


def _change(scene: Scene, share: float) -> None:
    """Update a share of the rows of each table, drawn at random, new ids among them, each of these twice: it has a row then."""
    rng, rows = np.random.default_rng(3), []
    for ids, new in zip(scene.ids, scene.new_ids, strict=True):
        count = int(len(ids) * share)
        coming = rng.choice(new, count // 10 if len(new) else 0, replace=False)
        changed = np.sort(np.concatenate([rng.choice(ids, count - len(coming), replace=False), coming]))
        rows.append([*np.array_split(changed, -(-count // _UPDATED_ROWS)), *([np.sort(coming)] if len(coming) else [])])
    engine = scene.engine
    for own in zip(*rows, strict=True):
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


def _measure(kind: str, count: int, rows: int, rounds: int, folder: Path) -> None:
    run, whole = folder / "runs" / "one", folder / "runs" / "whole"
    files = JobFiles(folder / "job")
    files.make_token()
    with LocalServers(
        count, _command, token_file=files.token, logs=folder / "logs", runs=str(folder / "runs")
    ) as servers:
        scene = _engine_on(servers, kind, rows)
        engine = scene.engine
        shards = ServerShards(engine, _place_of, _fail)
        saved_bytes = 0

        def commit(target: Path, attempt: int) -> Callable[[], WrittenShards]:
            def work() -> WrittenShards:
                nonlocal saved_bytes
                engine.begin_snapshot(most_bytes=_ASIDE_BYTES)
                found = shards.write(target, attempt, attempt)
                saved_bytes = sum(one.saving_bytes for one in engine.servers)
                engine.end_snapshot()
                write_checkpoint(target, attempt, {"step": attempt}, {}, keep=1, shards=found)
                return found

            return work

        def pass_rows() -> None:
            tables = parted_tables(_place_of, engine, _ASIDE_BYTES)
            write_checkpoint(folder / "rows", 1, {"step": 1}, {}, tables, keep=1)
            engine.end_snapshot()

        commit_secs, commit_cpu, _ = _timed(servers, commit(run, 1))
        whole_bytes = saved_bytes
        _change(scene, _CHANGED_SHARE)
        partial, full = list[tuple[float, float, WrittenShards]](), list[tuple[float, float, WrittenShards]]()
        for attempt in range(2, 2 + rounds):
            partial.append(_timed(servers, commit(run, attempt)))
            shutil.rmtree(whole, ignore_errors=True)  # without a published base every shard is full
            full.append(_timed(servers, commit(whole, 1)))
        stored, written = full[-1][2].names, partial[-1][2]
        if len(written.bases) != count:
            raise SystemExit("error: the shards are not partial")
        size_bytes = _stored_bytes(whole, stored)
        share = _stored_bytes(run, written.names) / size_bytes
        loaded_before = engine.wire_bytes
        restored = [_timed(servers, lambda: shards.load(run, 1 + rounds, written.names))]
        loaded_bytes = engine.wire_bytes - loaded_before
        of_full = [_timed(servers, lambda: shards.load(whole, 1, stored))]
        for _ in range(rounds - 1):
            restored.append(_timed(servers, lambda: shards.load(run, 1 + rounds, written.names)))
            of_full.append(_timed(servers, lambda: shards.load(whole, 1, stored)))
        rows_secs, _, _ = _timed(servers, pass_rows)
        partial_secs, partial_cpu, full_secs, full_cpu, restore_secs, restore_cpu, of_full_secs, of_full_cpu = (
            min(one[k] for one in found) for found in (partial, full, restored, of_full) for k in (0, 1)
        )
        print(f"{kind:6} {count:7} {rows:12,} {size_bytes / 1e6:9.1f} {commit_secs:9.2f} {commit_cpu:12.2f} {restore_secs:10.2f} {restore_cpu:12.2f} "
              f"{of_full_secs:10.2f} {of_full_cpu:12.2f} {whole_bytes:13,} {loaded_bytes:13,} {rows_secs:12.2f} {full_secs:7.2f} {partial_secs:10.2f} "
              f"{partial_secs / full_secs:6.2f} {full_cpu:7.2f} {partial_cpu:10.2f} {share:10.3f}", flush=True)  # fmt: skip
        engine.close()


def main() -> None:
    """Print a line for each kind of tables and number of servers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000, help="on each server")
    parser.add_argument("--servers", default="1,2,4,8", help="numbers of servers")
    parser.add_argument("--kinds", default="dense", help="of tables: some of dense,hashed,pruned")
    parser.add_argument("--rounds", type=int, default=3, help="of partial and full shards of one moment")
    parser.add_argument("--folder", default="", help="of the runs; a new one by default")
    asked = parser.parse_args()
    print(machine())
    print(
        "kind   servers  rows on each  MB stored  commit s  CPU s/server  restore s  CPU s/server  of full s  CPU s/server  bytes saving  bytes loading  rows pass: s"
        "  full s  partial s  ratio  full CPU  partial CPU  its share"
    )
    for kind in asked.kinds.split(","):
        for count in map(int, asked.servers.split(",")):
            with tempfile.TemporaryDirectory(dir=asked.folder or None) as folder:
                _measure(kind, count, asked.rows, asked.rounds, Path(folder))


if __name__ == "__main__":
    main()
