"""Headers and documents of frames: what is written is read, and everything else is one error."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.tables.routes.servers.frames import (
    Header,
    Kind,
    count_at,
    read_document,
    read_header,
    text_at,
    write_document,
)
from trainer.wire.frames import FrameHeader, FrameOrder, WireProtocol
from transforms.errors import DataError

MOST = 1 << 62
HEADERS = st.builds(
    Header,
    st.sampled_from(Kind),
    st.integers(0, 1000),
    st.integers(0, MOST),
    st.integers(-MOST, MOST),
    st.integers(0, 2**16 - 1),
)
UPDATE = FrameHeader(WireProtocol.ROWS, Kind.UPDATE, 1000, number=7, floor=-1, flags=1)


@given(HEADERS)
def test_a_header_is_read_from_its_frame(header):
    (head,) = FrameOrder(WireProtocol.ROWS, 1).write(
        header.kind, number=header.number, floor=header.floor, flags=header.flags
    )
    frame = FrameOrder(WireProtocol.ROWS, None).read(head)
    assert read_header(frame._replace(body_bytes=header.body_bytes), 1000) == header


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"kind": 0}, "known kind"),
        ({"kind": 0x3F}, "known kind"),
        ({"kind": 0xFF}, "known kind"),
        ({"body_bytes": 1001}, "must be short"),
        ({"body_bytes": 1 << 60}, "must be short"),
        ({"body_bytes": (1 << 64) - 1}, "must be short"),
        ({"number": MOST + 1}, "below 2"),
        ({"floor": MOST + 1}, "below 2"),
        ({"floor": -MOST - 1}, "below 2"),
    ],
)
def test_a_header_is_refused(changes, what):
    with pytest.raises(DataError, match=what):
        read_header(UPDATE._replace(**changes), 1000)


DOCUMENT = {"a": 1, "b": "é"}
MEMBERS = frozenset(DOCUMENT)


def test_a_document_is_read_as_it_was_written():
    assert read_document(write_document(DOCUMENT), MEMBERS) == DOCUMENT
    assert read_document(bytearray(write_document(DOCUMENT)), MEMBERS) == DOCUMENT
    assert read_document(memoryview(write_document(DOCUMENT)), MEMBERS) == DOCUMENT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"a"',
        b'{"a":1}',
        b'{"a":1,"b":2,"c":3}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"a":1,"b":' + b"9" * 10_000 + b"}",
    ],
)
def test_a_document_is_refused(content):
    with pytest.raises(DataError):
        read_document(content, MEMBERS)


def test_a_mutated_document_is_one_error_or_has_its_members():
    whole = write_document(DOCUMENT)
    for seed in range(scaled(5000)):
        try:
            assert read_document(mutated(whole, Random(seed)), MEMBERS).keys() == MEMBERS
        except DataError:
            continue


@pytest.mark.parametrize("value", [True, None, 1.0, "1", -1, 11, 1 << 70, float("nan"), []])
def test_a_count_is_a_whole_number_in_its_range(value):
    assert count_at({"a": 10}, "a", most=10) == 10
    with pytest.raises(DataError, match="a must be a whole number"):
        count_at({"a": value}, "a", most=10)


@pytest.mark.parametrize("value", [True, None, 1, []])
def test_a_text_is_a_text(value):
    assert text_at({"a": ""}, "a") == ""
    with pytest.raises(DataError, match="a must be a string"):
        text_at({"a": value}, "a")


def test_kinds_have_numbers_that_fit():
    assert all(0 < kind < 256 for kind in Kind)
