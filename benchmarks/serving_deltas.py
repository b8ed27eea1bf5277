"""Deltas of served weights against full snapshots: bytes and seconds of writing, applying and verifying them, on one disk in one run.

    python -m benchmarks.serving_deltas [--rows N] [--changed SHARE] [--folder PATH] [--saved-model]

A commit of a table of N rows with 32 columns and Adagrad's slots is written; then one in which a share of the rows, drawn at random, has other
weights, all slots are others, and a thousandth of the rows is new and another one gone. The first is exported as a full snapshot, the second
both as a delta and, to another chain, as a full snapshot, without quantization and with fp16 and int8. Each is applied to a state of rows. With
--saved-model the delta is applied to a SavedModel with the table, beside saving that SavedModel with TensorFlow again. Each export and
application runs in a process of its own, on files that are not in the memory of the system; its most memory is given beyond that of its start.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.options.config import TrainConfig
from trainer.serving.deltas.row_values import QUANTIZE
from transforms.arrays import Array
from warehouse.storage.durable_files import sync_path

_COLUMNS = 32
_PIECE_ROWS = 1 << 16
#: One row of so many is new in the second commit, and one of the first is gone.
_NEW_OR_GONE = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall and CPU seconds of one step, the bytes that it wrote, and the most memory beyond that at its start."""

    secs: float
    cpu_secs: float
    size_bytes: int
    peak_bytes: int


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--changed", type=float, default=0.05)
    options.add_argument("--folder", default="")
    options.add_argument("--saved-model", action="store_true")
    options.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.step:
        print(json.dumps(_step(*given.step)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder or None) as folder:
        _measure(Path(folder), given.rows, given.changed, with_saved_model=given.saved_model)


def _measure(folder: Path, rows: int, changed: float, *, with_saved_model: bool) -> None:
    for epochs in (1, 2):
        _write_commit(folder / "run", rows, epochs, changed)
    row_bytes = 8 + 4 * _COLUMNS
    print(f"{rows:,} rows of {_COLUMNS} columns, {rows * row_bytes / 1e6:.0f} MB with ids; {changed:.0%} changed")
    for quantize in QUANTIZE:
        _measure_chain(folder, quantize)
    if with_saved_model:
        _measure_saved_model(folder, rows)


def _measure_chain(folder: Path, quantize: str) -> None:
    run, chain, again = folder / "run", folder / f"chain-{quantize}", folder / f"again-{quantize}"
    first = _apart(folder, "full", run, chain, 1, quantize)
    delta = _apart(folder, "delta", run, chain)
    full = _apart(folder, "full", run, again, 2, quantize)
    errors = ", ".join(f"{one['largest_error']:.2g}" for one in _manifest(chain)["tables"])
    print(f"{quantize}: full snapshot {_text(full)}; delta {_text(delta)}; size of the delta {delta.size_bytes / full.size_bytes:.3f}, "
          f"CPU time {delta.cpu_secs / full.cpu_secs:.2f} of the full snapshot's; largest error {errors}")  # fmt: skip
    applied_first = _apart(folder, "apply", chain, folder / "state", 0)
    applied = _apart(folder, "apply", chain, folder / "state")
    applied_full = _apart(folder, "apply", again, folder / "other")
    verified = _apart(folder, "verify", chain)
    is_equal = _digests(folder / "state") == _digests(folder / "other")
    print(f"{quantize}: applied to rows: full snapshot {_text(applied_first)} and {_text(applied_full)}; delta {_text(applied)}; "
          f"chain of {(first.size_bytes + delta.size_bytes) / 1e6:.0f} MB verified in {verified.secs:.2f} s; states bit-equal: {is_equal}")  # fmt: skip
    if quantize == "none":
        state = sum(path.stat().st_size for path in chain.glob(".rows-*/*"))
        print(
            f"digests of all rows for the next delta: {state / 1e6:.0f} MB, {state / full.size_bytes:.2f} of a full snapshot"
        )
    for path in (again, folder / "state", folder / "other"):
        shutil.rmtree(path)


def _measure_saved_model(folder: Path, rows: int) -> None:
    saved = _apart(folder, "save", folder / "run", folder / "model", rows)
    delta = _apart(folder, "apply", folder / "chain-none", folder / "model")
    print(f"SavedModel: written with TensorFlow from memory {_text(saved)}; delta applied {_text(delta)}")


def _text(found: Measured) -> str:
    return f"{found.secs:.2f} s, {found.cpu_secs:.2f} s of CPU, {found.size_bytes / 1e6:.1f} MB, memory {found.peak_bytes / 1e6:.0f} MB"


def _manifest(chain: Path) -> Any:
    (path,) = chain.glob("000001-*/manifest.json")
    return json.loads(path.read_bytes())


def _digests(state: Path) -> list[str]:
    """The digests of the files of a state of rows."""
    paths = sorted(state.glob("rows-*/*"))
    return [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths]


def _write_commit(run: Path, rows: int, epochs: int, changed: float) -> None:
    """A commit of a single process, with a document that has what links need."""
    identity = {"config": TrainConfig("run").to_document(), "table": "log", "label": "clicked", "inputs": [], "partitions": []}  # fmt: skip
    document = {"identity": identity, "step": epochs, "position": {"epochs_done": epochs, "data_digest": ""}}
    own = rows - len(range(epochs - 1, rows, _NEW_OR_GONE))
    kinds = (
        ArrayKind("embedding/rows/table", "<i8", (own,)),
        ArrayKind("embedding/weights/table", "<f4", (own, _COLUMNS)),
        ArrayKind("embedding/slots/table", "<f4", (own, _COLUMNS)),
    )
    dense = {"dense/weights/000": np.full((256, 256), epochs, np.float32)}
    write_checkpoint(run, epochs, document, dense, (PartedArrays(kinds, _pieces(rows, epochs, changed)),), keep=2)


def _pieces(rows: int, epochs: int, changed: float) -> Iterator[tuple[Array, Array, Array]]:
    """Ascending rows of a commit; those whose number modulo a thousand is the epoch's place are not in it."""
    for first in range(0, rows, _PIECE_ROWS):
        draw = np.random.default_rng(first)
        own = np.arange(first, min(first + _PIECE_ROWS, rows), dtype=np.int64)
        weights = draw.normal(size=(len(own), _COLUMNS)).astype(np.float32)
        if epochs > 1:
            weights[draw.random(len(own)) < changed] += np.float32(0.01)
        kept = own % _NEW_OR_GONE != epochs - 1
        slots = np.random.default_rng(first + epochs).random((int(kept.sum()), _COLUMNS), np.float32)
        yield own[kept], weights[kept], slots


def _forget(folder: Path) -> None:
    """Have the system drop the content of files from its memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _apart(folder: Path, *words: object) -> Measured:
    """Run a step in a process of its own."""
    _forget(folder)
    command = [sys.executable, "-m", "benchmarks.serving_deltas", "--step", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _step(kind: str, *words: str) -> dict[str, float]:
    """One step in this process: the seconds, bytes and memory of :class:`Measured`."""
    from trainer.serving.deltas.row_digests import digest_rows

    digest_rows(np.zeros((1, 1), np.float32))  # compiled before the clock starts
    if kind == "save" or (kind == "apply" and (Path(words[1]) / "saved_model.pb").exists()):
        from headrace.terminal.quiet import import_quietly

        import_quietly("trainer.serving.saved_model_weights")
    work = {"full": _export, "delta": _export, "apply": _apply, "verify": _verify, "save": _save}[kind](*words)
    before = _begin_peak()
    began, cpu = time.perf_counter(), time.process_time()
    size_bytes = work()
    secs, cpu_secs = time.perf_counter() - began, time.process_time() - cpu
    return {"secs": secs, "cpu_secs": cpu_secs, "size_bytes": size_bytes, "peak_bytes": _peak_bytes() - before}


def _export(run: str, chain: str, epochs: str = "", quantize: str = "") -> Callable[[], int]:
    """A full snapshot of a commit, or a delta without one."""
    from trainer.checkpoints.local_run import LocalRun
    from trainer.serving.deltas.export_links import export_delta, export_full

    files = LocalRun(Path(run) / "checkpoints")

    def work() -> int:
        link = export_full(files, Path(chain), epochs=int(epochs), quantize=quantize) if epochs else export_delta(files, Path(chain))  # fmt: skip
        assert link is not None
        return sum(size for size, _ in link.manifest.array_files().values())

    return work


def _apply(chain: str, target: str, until: str = "") -> Callable[[], int]:
    from trainer.serving.apply_chain import apply_chain

    def work() -> int:
        done = apply_chain(Path(chain), Path(target), until=int(until) if until else None)
        return _size_bytes(done.place)

    return work


def _verify(chain: str) -> Callable[[], int]:
    from trainer.serving.deltas.verify_chain import verify_chain

    def work() -> int:
        found = list(verify_chain(Path(chain)))
        assert not any(one.problem for one in found)
        return sum(one.size_bytes for one in found)

    return work


def _save(run: str, target: str, rows: str) -> Callable[[], int]:
    """The SavedModel of the first commit, whose weights are in memory before the clock starts."""
    import tensorflow as tf

    from trainer.checkpoints.local_run import LocalRun
    from trainer.checkpoints.read import open_commit
    from trainer.serving.deltas.chain import Position
    from trainer.serving.deltas.commit_weights import dense_arrays, weight_stream
    from trainer.serving.deltas.model_digest import model_digest_of
    from trainer.serving.saved_model_document import EXTRA
    from trainer.serving.served_model import ServedModel, ServedTable
    from trainer.tables.optimizers import SGD
    from trainer.tables.spec import Normal, TableSpec
    from trainer.tables.tpu.initial_rows import initial_rows

    files = LocalRun(Path(run) / "checkpoints")
    commit = open_commit(files, "epoch-000001")
    spec = TableSpec("table", int(rows), _COLUMNS, SGD(1.0), initializer=Normal(0.0, 0.01))
    table = initial_rows(spec, 0, np.arange(int(rows), dtype=np.int64))
    for piece in weight_stream(files, commit, "embedding", "table", _COLUMNS).pieces:
        table[piece.ids] = piece.values[0]
    module, module.scorer = tf.Module(), tf.Module()
    module.scorer.deep_tables = {"table": tf.Variable(table)}
    module.scorer.layers = [tf.Variable(one) for one in dense_arrays(files, commit).values()]
    position = Position(model_digest_of(commit.document), 1, commit.digest)
    served = ServedModel(position, 0, (ServedTable("embedding", spec),), tuple(dense_arrays(files, commit)))

    def work() -> int:
        tf.saved_model.save(module, target)
        (Path(target) / EXTRA).parent.mkdir()
        (Path(target) / EXTRA).write_text(json.dumps({"served": served.to_document()}), encoding="utf-8")
        for path in Path(target).rglob("*"):
            sync_path(path)
        return _size_bytes(Path(target))

    return work


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _begin_peak() -> int:
    """Begin to record the most memory of this process again; the memory that it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    """The most memory of this process; that of ``resource`` would be the parent's at first."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    main()
