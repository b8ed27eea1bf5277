"""Bytes on the wire with and without compression of ids and values, its speed on one core, and its effect on AUC.

    python -m benchmarks.wire_compression [--bytes] [--speed] [--quality --data FOLDER [--seeds N]]

Bytes: batches of 4,096 events of 26 tables with 1 M rows, whose ids follow a bounded power law. Three messages are counted: ids from a
data loader to an embedding worker; distinct row numbers, rows and summed gradients between the worker and 4 servers; combined
activations and their gradients between the worker and a dense worker. Without compression ids and row numbers have 8 bytes, lengths of
bags and values 4; a row is fetched once a batch, and its number is sent once. The last columns compare with a wire that fetches a row
for each id. Speed: gigabytes of float32 a second, and nanoseconds for an id, medians. Quality: DLRM is trained in time order with
each encoding of values and the same seeds (:mod:`benchmarks.support.wire_quality`). Without an option all parts run that need no data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import public_logs
from benchmarks.support.wire_quality import ENCODINGS, measure_quality
from trainer.tables.batches import IdBatch
from trainer.tables.wire import fp14_blocks, fp16_blocks, id_positions, row_numbers
from trainer.tables.wire.scaled_blocks import BLOCK_VALUES

Array = np.ndarray[Any, np.dtype[Any]]

TARGET = 0.45
_TABLES, _ROWS, _EVENTS, _SERVERS = 26, 1_000_000, 4096, 4
_POWERS, _VALENCIES, _DIMS = (1.05, 1.2), (1, 20), (16, 32, 64)
_ID_BYTES, _LENGTH_BYTES, _FLOAT_BYTES = 8, 4, 4
_BLOCKS = (16, 64, BLOCK_VALUES, 256, 1024)
_MEASURED_LOGS = ("globo", "movielens")


@dataclass(frozen=True, slots=True)
class Bytes:
    """The bytes of the messages of a batch.

    Attributes:
        ids: from data loader to worker.
        rows: the numbers of distinct rows, to servers.
        values: rows and gradients, from and to servers.
        combined: activations and gradients, to and from dense workers.
    """

    ids: int
    rows: int
    values: int
    combined: int

    @property
    def servers(self) -> int:
        """The bytes to and from servers."""
        return self.rows + self.values

    @property
    def whole(self) -> int:
        """All bytes."""
        return self.ids + self.servers + self.combined


def make_batch(power: float, valency: int, seed: int = 0) -> IdBatch:
    """A batch of equal bags; ids are ranks of a bounded power law, spread over the table by a multiplication."""
    count, rest = _TABLES * _EVENTS * valency, 1 - power
    draw = np.random.default_rng(seed).random(count)
    ranks = np.minimum(((_ROWS**rest - 1) * draw + 1) ** (1 / rest), _ROWS).astype(np.int64) - 1
    starts = np.arange(_TABLES)[:, None] * _EVENTS * valency
    return IdBatch(ranks * 387_420_489 % _ROWS, (starts + np.arange(_EVENTS + 1) * valency).astype(np.int64))


def rows_by_server(batch: IdBatch) -> list[tuple[Array, Array]]:
    """The distinct rows that each server has, ascending in each table, with their numbers by table."""
    distinct = [np.unique(batch.ids[ends[0] : ends[-1]]) for ends in batch.offsets]
    found = []
    for server in range(_SERVERS):
        own = [rows[rows % _SERVERS == server] // _SERVERS for rows in distinct]
        found.append((np.concatenate(own), np.array([len(one) for one in own])))
    return found


def bytes_of(batch: IdBatch, dim: int) -> tuple[Bytes, Bytes, dict[str, Bytes]]:
    """The plain bytes of a batch, those if each id fetches its row, and those with ids and values encoded, by encoding of values."""
    servers = rows_by_server(batch)
    floats = [len(rows) * dim for rows, _ in servers]
    combined, count = batch.offsets.shape[0] * batch.rows * dim, len(batch.ids)
    plain = Bytes(
        ids=_ID_BYTES * count + _LENGTH_BYTES * _TABLES * batch.rows,
        rows=_ID_BYTES * sum(len(rows) for rows, _ in servers),
        values=2 * _FLOAT_BYTES * sum(floats),
        combined=2 * _FLOAT_BYTES * combined,
    )
    row_bytes = 0
    for rows, counts in servers:
        row_bytes += row_numbers.encode(rows, counts, np.empty(row_numbers.most_bytes(len(rows), _TABLES), np.uint8))
    id_bytes = len(id_positions.encode(batch))
    encoded = {
        # The size of values depends on their number only.
        name: Bytes(id_bytes, row_bytes, 2 * sum(map(one.encoded_bytes, floats)), 2 * one.encoded_bytes(combined))
        for name, one in ENCODINGS.items()
    }
    repeated = replace(plain, rows=_ID_BYTES * count, values=2 * _FLOAT_BYTES * count * dim)
    return plain, repeated, encoded


def measure_bytes() -> bool:
    """Print the bytes of each case; whether some encoding of values is within the target in all of them, with all messages."""
    print(
        "shares of the plain bytes: ids; row numbers; to and from servers (s.) and all messages (all), with ids or values or both encoded"
    )
    print("power bags dim distinct   ids  rows  ids only s./all  fp16 only s./all  both, fp16 s./all  both, fp14 s./all  "
          "all, fp16 and fp14, of a row for each id")  # fmt: skip
    met: dict[str, list[bool]] = {name: [] for name in ENCODINGS}
    for power, valency, dim in product(_POWERS, _VALENCIES, _DIMS):
        batch = make_batch(power, valency)
        plain, repeated, encoded = bytes_of(batch, dim)
        for name, found in met.items():
            found.append(encoded[name].whole <= TARGET * plain.whole)
        fp16, fp14 = encoded["fp16"], encoded["fp14"]
        ids_only = replace(fp16, values=plain.values, combined=plain.combined)
        values_only = replace(fp16, ids=plain.ids, rows=plain.rows)
        shares = "".join(
            f"{one.servers / plain.servers:11.3f} {one.whole / plain.whole:5.3f} "
            for one in (ids_only, values_only, fp16, fp14)
        )
        print(f"{power:5.2f} {valency:4} {dim:3} {plain.rows / _ID_BYTES / len(batch.ids):8.2f} {fp16.ids / plain.ids:5.2f} {fp16.rows / plain.rows:5.2f}"
              f"{shares}{fp16.whole / repeated.whole:8.3f} {fp14.whole / repeated.whole:5.3f}", flush=True)  # fmt: skip
    for name, found in met.items():
        print(f"ids and values ({name}) encoded, all messages: at most {TARGET}x in {sum(found)} of {len(found)} cases")
    return any(all(found) for found in met.values())


def _secs(run: Callable[[], object], rounds: int = 15) -> float:
    """The median seconds of a call, after one that compiles."""
    run()
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def measure_speed() -> None:
    """Print the speed of values by size and block, then that of ids and row numbers."""
    _measure_values()
    for power in _POWERS:
        for valency in _VALENCIES:
            _measure_ids(power, valency)


def _measure_values() -> None:
    draw = np.random.default_rng(0)
    for count in (1 << 18, 1 << 24):
        # Rows and gradients have many magnitudes: each 32 values have their own.
        spread = np.repeat(np.exp(draw.normal(-7, 2, count // 32)), 32)
        values = (draw.normal(0, 1, count) * spread).astype(np.float32)
        out, halves = np.empty_like(values), values.astype(np.float16)
        rivals = (lambda: values.astype(np.float16), lambda: halves.astype(np.float32), lambda: np.copyto(out, values))  # noqa: B023
        speeds = [values.nbytes / _secs(run) / 1e9 for run in rivals]
        print(
            f"{values.nbytes / 1e6:.1f} MB: numpy to float16 {speeds[0]:.1f} GB/s, back {speeds[1]:.1f}; a copy {speeds[2]:.1f}"
        )
        for block in _BLOCKS:
            by_block = partial(fp16_blocks.encode, block=block), partial(fp16_blocks.decode, block=block)
            _print_values(f"fp16, blocks of {block}", values, fp16_blocks.encoded_bytes(count, block), *by_block)
        _print_values("fp14", values, fp14_blocks.encoded_bytes(count), fp14_blocks.encode, fp14_blocks.decode)


def _print_values(
    name: str, values: Array, size: int, encode: Callable[[Array, Array], None], decode: Callable[[Array, Array], None]
) -> None:
    buffer, out = np.empty(size, np.uint8), np.empty_like(values)
    speeds = [values.nbytes / _secs(run) / 1e9 for run in (lambda: encode(values, buffer), lambda: decode(buffer, out))]
    errors = np.abs(out - values)[values != 0] / np.abs(values[values != 0])
    print(f"  {name:21} {size / values.nbytes:.4f}x the bytes; encode {speeds[0]:.1f} GB/s, decode {speeds[1]:.1f}; relative error: "
          f"root mean square {np.sqrt(np.mean(errors.astype(np.float64) ** 2)):.1e}, above 2^-10 {np.mean(errors > 2.0**-10):.1e} of the values",
          flush=True)  # fmt: skip


def _measure_ids(power: float, valency: int) -> None:
    batch = make_batch(power, valency)
    content = id_positions.encode(batch)
    ends = batch.offsets[:, [0, -1]].tolist()

    def unique() -> None:
        for first, stop in ends:
            np.unique(batch.ids[first:stop], return_inverse=True)

    rows, counts = rows_by_server(batch)[0]
    out = np.empty(row_numbers.most_bytes(len(rows), len(counts)), np.uint8)
    encoded = out[: row_numbers.encode(rows, counts, out)].copy()
    ids_secs = [
        _secs(run) for run in (lambda: id_positions.encode(batch), lambda: id_positions.decode(content), unique)
    ]
    rows_secs = [
        _secs(run)
        for run in (lambda: row_numbers.encode(rows, counts, out), lambda: row_numbers.decode(encoded, counts))
    ]
    of_ids, of_rows = (
        [secs * 1e9 / len(one) for secs in found] for found, one in ((ids_secs, batch.ids), (rows_secs, rows))
    )
    print(f"power {power}, bags of {valency}: encode {of_ids[0]:.1f} ns/id, decode {of_ids[1]:.1f}, np.unique alone {of_ids[2]:.1f}; "
          f"row numbers {of_rows[0]:.1f} and {of_rows[1]:.1f} ns", flush=True)  # fmt: skip


def main() -> int:
    """Measure and print; the exit status is 1 if a case is above the target of bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.quality and options.data is None:
        parser.error("--quality needs --data")
    both = not (options.bytes or options.speed or options.quality)
    print(machine())
    is_met = measure_bytes() if options.bytes or both else True
    if options.speed or both:
        measure_speed()
    if options.quality:
        for log in (one for one in public_logs(options.data) if one.name in _MEASURED_LOGS):
            measure_quality(log, options.seeds)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
