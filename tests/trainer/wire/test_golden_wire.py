"""The bytes between processes stay what they are while their version does: those of the previous release are kept, and read.

Processes of two releases speak only if they have the version of frames in common; otherwise a job is stopped at a commit, and goes on under the
other release. So a change of these bytes needs another version in :mod:`trainer.wire.frames`. ``HEADRACE_WRITE_GOLDENS=1`` writes them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.job.control.test_messages import EVENTS, HOST
from trainer.job.control.messages import RoleCall, RoleReport, read_role_call, role_call_bytes
from trainer.tables.batches import IdBatch
from trainer.tables.engine import ChangedRows, RowValues
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.row_messages import ENCODED_ROWS, RowNumbers, encode_rows
from trainer.tables.wire import id_positions
from trainer.tables.wire.encoded_values import FP14, FP16, decode_pieces, encode_pieces, encoded_bytes
from trainer.wire.flight.sealed_actions import open_request, seal_request
from trainer.wire.frames import HEADER_BYTES, FrameOrder, WireProtocol, check_body

GOLDENS = Path(__file__).parent / "goldens" / "wire.json"
DIMS, SLOTS = np.array([2, 3], np.int64), np.array([2, 1], np.int64)
ROWS, COUNTS = np.array([3, 9, 70_000], np.int64), np.array([2, 1], np.int64)
WEIGHTS = np.array([0.5, -1.25, 3.0, 0.125, 2.0, -7.0, 1.5], np.float32)
CHANGED = ChangedRows(ROWS[:2], WEIGHTS[:4].reshape(2, 2), WEIGHTS[3:7].reshape(2, 2))
BATCH = IdBatch(np.array([7, 900, 900, 70_000, 7], np.int64), np.array([[0, 2, 3], [3, 3, 5]], np.int64),
                np.array([1, 2, 1, 0.5, 1], np.float32))  # fmt: skip


def joined(parts) -> bytes:
    return b"".join(bytes(one) for one in parts)


def encoded(flag: int) -> bytes:
    buffer = np.empty(encoded_bytes([len(WEIGHTS)], flag), np.uint8)
    encode_pieces([WEIGHTS], buffer, flag)
    return buffer.tobytes()


def frame() -> bytes:
    return joined(FrameOrder(WireProtocol.ROWS, 11).write(3, [b"a body", b" in parts"], number=5, floor=-2, flags=4))


WRITTEN = {
    "frame": frame(),
    "request of an action": seal_request("join", b"content", 13),
    "call of a role": role_call_bytes(RoleCall("a job", HOST, 7, RoleReport("127.0.0.1:1"), EVENTS)),
    "rows": joined(messages.write_numbers(RowNumbers(ROWS.astype(np.int32), COUNTS))),
    "rows as differences": joined(messages.write_numbers(encode_rows(ROWS, COUNTS))),
    "gradients": joined(messages.write_gradients(
        encode_rows(ROWS, COUNTS), np.array([0.1, 0.2], np.float32), [WEIGHTS], np.array([1, 2, 3], np.int32))),
    "values": joined(messages.write_values(RowNumbers(ROWS, COUNTS), RowValues(WEIGHTS, WEIGHTS[:5]))),
    "saved rows": joined(messages.write_part(CHANGED, np.array([4, 5], np.int64))),
    "rows to load": joined(messages.write_load(0, CHANGED)),
    "counts": joined(messages.write_counts([4, 1 << 40])),
    "fp16 values": encoded(FP16),
    "fp14 values": encoded(FP14),
    "ids": id_positions.encode(BATCH),
}  # fmt: skip


def test_the_wire_has_the_bytes_of_its_version():
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        GOLDENS.write_text(json.dumps({name: one.hex() for name, one in WRITTEN.items()}, indent=1) + "\n")
    changed = [name for name, one in WRITTEN.items() if golden(name) != one]
    assert not changed, "a process of another release reads other bytes: give trainer/wire/frames.py another version"


def golden(name: str) -> bytes:
    return bytes.fromhex(json.loads(GOLDENS.read_text())[name])


def test_a_kept_frame_is_read():
    content, order = golden("frame"), FrameOrder(WireProtocol.ROWS, None)
    header = order.read(content[:HEADER_BYTES])
    check_body(header, [content[HEADER_BYTES:]])
    assert (header.kind, header.number, header.floor, header.flags, header.session) == (3, 5, -2, 4, 11)
    assert content[HEADER_BYTES:] == b"a body in parts"
    assert open_request(golden("request of an action")) == ("join", b"content", 13)


def test_a_kept_call_is_read():
    call = read_role_call(golden("call of a role"))
    assert (call.job, call.role, call.incarnation) == ("a job", HOST, 7)
    assert call.events == EVENTS


@pytest.mark.parametrize(("name", "flags"), [("rows", 0), ("rows as differences", ENCODED_ROWS)])
def test_kept_rows_are_read(name, flags):
    found = messages.read_numbers(golden(name), len(COUNTS), flags)
    assert (found.rows.tolist(), found.counts.tolist()) == (ROWS.tolist(), COUNTS.tolist())


def test_kept_updates_and_values_are_read():
    found = messages.read_gradients(golden("gradients"), DIMS, ENCODED_ROWS, has_lookups=True)
    assert found.numbers.rows.tolist() == ROWS.tolist()
    assert (found.values.tolist(), found.lookups.tolist()) == (WEIGHTS.tolist(), [1, 2, 3])
    assert found.rates.tolist() == np.array([0.1, 0.2], np.float32).tolist()
    numbers, values = messages.read_values(golden("values"), DIMS, SLOTS)
    assert (numbers.rows.tolist(), values.weights.tolist()) == (ROWS.tolist(), WEIGHTS.tolist())
    assert messages.read_counts(golden("counts"), 2) == (4, 1 << 40)


def test_kept_saved_rows_are_read():
    part, ages = messages.read_aged_part(golden("saved rows"), 2, 2)
    number, load, none = messages.read_load(golden("rows to load"), DIMS, np.array([2, 2], np.int64))
    assert (ages.tolist(), number, none) == ([4, 5], 0, None)
    for found in (part, load):
        assert found.rows.tolist() == CHANGED.rows.tolist()
        assert found.weights.tolist() == CHANGED.weights.tolist()
        assert found.slots.tolist() == CHANGED.slots.tolist()


@pytest.mark.parametrize(("name", "flag", "share"), [("fp16 values", FP16, 2**-11), ("fp14 values", FP14, 2**-9)])
def test_kept_rounded_values_are_read(name, flag, share):
    found = np.empty_like(WEIGHTS)
    decode_pieces(np.frombuffer(golden(name), np.uint8), [found], flag)
    np.testing.assert_allclose(found, WEIGHTS, atol=share * float(np.abs(WEIGHTS).max()))


def test_kept_ids_are_read():
    found = id_positions.decode(golden("ids"))
    assert (found.ids.tolist(), found.offsets.tolist()) == (BATCH.ids.tolist(), BATCH.offsets.tolist())
    assert found.weights.tolist() == BATCH.weights.tolist()
