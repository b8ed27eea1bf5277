from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.job.control.messages import (
    MOST_REQUEST_BYTES,
    Answer,
    JobStatus,
    Peer,
    Progress,
    RoleCall,
    RoleReport,
    answer_bytes,
    read_answer,
    read_role_call,
    role_call_bytes,
)
from trainer.scheduling.buffer_control import BufferSample
from trainer.scheduling.events import (
    CommitFailed,
    Drained,
    Failed,
    Joined,
    Left,
    PartWritten,
    Position,
    Released,
    Role,
    RoleKind,
)
from trainer.scheduling.holds import ErrorDocument
from trainer.scheduling.orders import (
    AskPosition,
    Commit,
    EndEpoch,
    GiveUp,
    Leave,
    Refuse,
    Rejoin,
    StartEpoch,
    WritePart,
)
from transforms.errors import DataError

HOST = Role(RoleKind.HOST, "h0")
ERROR = ErrorDocument(("OSError",), "no", 28, None)
EVENTS = (
    Joined(0.0, HOST, 7, "1.0", 1),
    Left(0.0, HOST, 7),
    Failed(0.0, HOST, 7, 3, ERROR),
    Position(0.0, HOST, 7, 3, 10),
    Drained(0.0, HOST, 7, 3, 20),
    PartWritten(0.0, HOST, 7, 3, "part"),
    CommitFailed(0.0, 3, ERROR, HOST, 7),
)
REPORT = RoleReport(
    "127.0.0.1:80", BufferSample(0.0, 0.5, 10, 1.0, 2, 20, 0.5, 0.1, 9), Progress(3, 4, 5, 6, 7.0, {"loss": 0.5})
)
CALL = RoleCall("job", HOST, 7, REPORT, EVENTS, "key", 1.0)
START = StartEpoch(3, 1, 0, 10, ("h0", "h1"), None, Commit(1, 2, 0), "plan")
ORDERS = (START, AskPosition(3), EndEpoch(3, 5, None), EndEpoch(3, 5, 1.5), WritePart(2, 0, 9), GiveUp(2), Leave("x"),
          Rejoin(4), Refuse("y"))  # fmt: skip
ANSWER = Answer(1, 2, "key", ORDERS, (Peer(Role(RoleKind.READER, "r0"), 3, "127.0.0.1:81"),))


def test_messages_are_read_as_they_were_written():
    assert read_role_call(role_call_bytes(CALL)) == CALL
    assert read_answer(answer_bytes(ANSWER)) == ANSWER
    empty = RoleCall("", HOST, 0)
    assert read_role_call(role_call_bytes(empty)) == empty


def test_figures_of_numpy_are_sent_and_those_that_are_not_finite_are_not():
    progress = Progress(3, np.int64(4), 5, 6, 7.0, {"loss": float("nan"), "norm": np.float32(0.5), "rate": np.inf})
    sent = read_role_call(role_call_bytes(RoleCall("job", HOST, 7, RoleReport("", None, progress))))
    assert sent.report.progress == Progress(3, 4, 5, 6, 7.0, {"norm": 0.5})


def refused(**changes) -> str:
    document = json.loads(role_call_bytes(CALL)) | changes
    with pytest.raises(DataError) as caught:
        read_role_call(json.dumps(document).encode())
    return f"{caught.value.what} {caught.value.where} {caught.value.allowed}"


def test_a_role_speaks_for_itself_only():
    events = json.loads(role_call_bytes(CALL))["events"]
    other = {"kind": "host", "name": "h1"}
    for event in events:
        assert "sender" in refused(events=[event | {"role": other}])
        assert "sender" in refused(events=[event | {"incarnation": 8}])
    assert "event of a role" in refused(events=[{"kind": "released", "at_secs": 0.0}])
    assert "event of a role" in refused(events=[{"kind": "published", "at_secs": 0.0, "attempt": 3}])
    assert Released.kind not in {one.kind for one in EVENTS}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"role": {"kind": "host", "name": ""}}, "name of a role"),
        ({"role": {"kind": "host", "name": "../x"}}, "name of a role"),
        ({"role": {"kind": "host", "name": "x" * 65}}, "name of a role"),
        ({"role": {"kind": "king", "name": "h0"}}, "role"),
        ({"incarnation": 2**60, "events": []}, "incarnation"),
        ({"incarnation": -1}, "incarnation"),
        ({"wait_secs": 1e9}, "wait"),
        ({"wait_secs": -1}, "wait"),
        ({"wait_secs": "inf"}, "wait"),
        ({"known": "x" * 1000}, "key"),
        ({"more": 1}, "absent: an object here has job"),
        ({"events": [{}]}, "kind"),
        ({"events": [{"kind": "left"}] * 65}, "few events"),
        ({"events": None}, "list"),
        ({"report": {"address": "x" * 301, "buffer": None, "progress": None}}, "address"),
        ({"report": {}}, "an object with address"),
    ],
)
def test_bad_messages_are_refused(changes, text):
    assert text in refused(**changes)


def test_long_texts_are_refused():
    part = {"kind": "part written", "at_secs": 0.0, "role": {"kind": "host", "name": "h0"}, "incarnation": 7, "attempt": 1, "part": "x" * 5000}  # fmt: skip
    assert "text" in refused(events=[part])
    numbers = [[str(n), 0.0] for n in range(8193)]
    progress = {"attempt": 0, "step": 0, "events": 0, "unit": None, "event_secs": 0.0, "numbers": numbers}
    assert "figures" in refused(report={"address": "", "buffer": None, "progress": progress})


@given(st.binary(max_size=300))
def test_other_bytes_are_no_message(content):
    for read in (read_role_call, read_answer, JobStatus.read):
        with pytest.raises(DataError):
            read(content)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"1" * 10_000, b"NaN", b'{"a":1e999}', b"\xff", b"", b"null"])
def test_hostile_json_is_refused(content):
    for read in (read_role_call, read_answer, JobStatus.read):
        with pytest.raises(DataError):
            read(content)


def test_mutated_messages_are_refused_or_read():
    """Changed bytes and changed values give a message of valid values, or one kind of error."""
    draw = random.Random(3)
    for good, read, write in ((CALL, read_role_call, role_call_bytes), (ANSWER, read_answer, answer_bytes)):
        content = write(good)
        for number in range(scaled(5000)):
            mutated = _bytes(content, draw) if number % 2 else _values(content, draw)
            try:
                found = read(mutated)
            except DataError:
                continue
            assert read(write(found)) == found
            assert len(write(found)) < MOST_REQUEST_BYTES


def _bytes(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 4])):
        start = draw.randrange(len(data))
        stop = start + draw.choice([0, 1, 1, 3, 40])
        data[start:stop] = draw.choice([b"", draw.randbytes(stop - start), b'"', b"9", b"[", b"-", b"e9", b"\\u0000"])
    return bytes(data)


_VALUES = (
    None,
    True,
    -1,
    2**53,
    2**63,
    2**70,
    0.5,
    -0.0,
    "",
    "inf",
    "x" * 5000,
    [],
    {},
    [[]],
    ["h0"],
    {"kind": "host"},
)


def _values(content: bytes, draw: random.Random) -> bytes:
    document = json.loads(content)
    at = document
    while isinstance(at, (dict, list)) and at:
        key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if not isinstance(at[key], (dict, list)) or not at[key] or draw.random() < 0.2:
            if isinstance(at, dict) and draw.random() < 0.2:
                del at[key]
            else:
                at[key] = draw.choice(_VALUES)
            break
        at = at[key]
    return json.dumps(document).encode()
