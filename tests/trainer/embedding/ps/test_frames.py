"""Headers and documents of frames: what is written is read, and everything else is one error."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.embedding.ps.frames import (
    HEADER_BYTES,
    Header,
    Kind,
    count_at,
    read_document,
    read_header,
    text_at,
    write_document,
)
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
UPDATE = Header(Kind.UPDATE, 1000, 7, -1, 1)


def changed(at: int, value: bytes) -> bytes:
    content = bytearray(UPDATE.to_bytes())
    content[at : at + len(value)] = value
    return bytes(content)


@given(HEADERS)
def test_a_header_is_read_as_it_was_written(header):
    assert read_header(header.to_bytes(), 1000) == header
    assert len(header.to_bytes()) == HEADER_BYTES


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "whole header"),
        (UPDATE.to_bytes()[:-1], "whole header"),
        (UPDATE.to_bytes() + b"\0", "whole header"),
        (changed(0, b"HRPX"), "release's format"),
        (changed(4, b"\2"), "release's format"),
        (changed(5, b"\0"), "known kind"),
        (changed(5, b"\x17"), "known kind"),
        (changed(5, b"\xff"), "known kind"),
        (changed(8, struct.pack("<Q", 1001)), "must be short"),
        (changed(8, struct.pack("<Q", 1 << 60)), "must be short"),
        (changed(8, b"\xff" * 8), "must be short"),
        (changed(16, struct.pack("<Q", MOST + 1)), "below 2"),
        (changed(24, struct.pack("<q", MOST + 1)), "below 2"),
        (changed(24, struct.pack("<q", -MOST - 1)), "below 2"),
    ],
)
def test_a_header_is_refused(content, what):
    with pytest.raises(DataError, match=what):
        read_header(content, 1000)


def test_a_mutated_header_is_one_error_or_within_its_limits():
    for seed in range(scaled(5000)):
        content = mutated(UPDATE.to_bytes(), Random(seed))[:HEADER_BYTES]
        try:
            found = read_header(content, 1000)
        except DataError:
            continue
        assert found.body_bytes <= 1000
        assert 0 <= found.number <= MOST
        assert found.to_bytes() == content


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
    with pytest.raises(DataError, match="a must be a text"):
        text_at({"a": value}, "a")


def test_kinds_have_numbers_that_fit():
    assert all(0 < kind < 256 for kind in Kind)
    assert replace(UPDATE, kind=Kind.ERROR).to_bytes()[5] == Kind.ERROR
