"""Frames: what is written is read, and every other byte, length, order and repetition is one error."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.errors import DamagedFrame
from trainer.job.launch.chaos.wire_damage import DamagedStream, DamageKind, DamageSettings, Direction, random_damage
from trainer.wire.frames import (
    HEADER_BYTES,
    FrameHeader,
    FrameOrder,
    WireProtocol,
    check_body,
    checksum_of,
    read_frame_header,
)

SESSION = 0x1234_5678_9ABC_DEF0
FULL = (1 << 64) - 1
HEADERS = st.builds(
    FrameHeader,
    st.just(WireProtocol.HOSTS),
    st.integers(0, 255),
    st.integers(0, FULL),
    st.integers(0, FULL),
    st.integers(0, FULL),
    st.integers(0, FULL),
    st.integers(0, FULL),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1),
)


def read_stream(content: bytes) -> list[tuple[FrameHeader, bytes]]:
    """The frames at the beginning of a stream, up to its end or its first damage; a frame that is not whole is damage."""
    order, at, found = FrameOrder(WireProtocol.HOSTS, SESSION), 0, []
    while at < len(content):
        header = order.read(content[at : at + HEADER_BYTES])
        at += HEADER_BYTES
        if header.body_bytes > len(content) - at:
            raise DamagedFrame("the stream ends inside a frame")
        body = content[at : at + header.body_bytes]
        check_body(header, [body])
        at += header.body_bytes
        found.append((header, body))
    return found


def written_stream(bodies) -> list[bytes]:
    order = FrameOrder(WireProtocol.HOSTS, SESSION)
    return [b"".join(order.write(3, [body], number=k, floor=-k, flags=k)) for k, body in enumerate(bodies)]


@given(HEADERS)
def test_a_header_is_read_as_it_was_written(header):
    assert read_frame_header(header.to_bytes(), WireProtocol.HOSTS) == header
    assert len(header.to_bytes()) == HEADER_BYTES


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_a_body_has_one_checksum_however_it_is_cut(parts):
    whole = b"".join(parts)
    assert checksum_of(parts) == checksum_of([whole]) == checksum_of([bytearray(whole), memoryview(b"")])


def test_a_stream_is_read_as_it_was_written():
    bodies = [b"", b"a", bytes(1000), b"b" * 77]
    found = read_stream(b"".join(written_stream(bodies)))
    assert [body for _, body in found] == bodies
    assert [(one.number, one.floor, one.flags, one.sequence) for one, _ in found] == [
        (0, 0, 0, 0),
        (1, -1, 1, 1),
        (2, -2, 2, 2),
        (3, -3, 3, 3),
    ]


def test_each_flipped_bit_is_found():
    """Of the header and of the body, the lengths and the checksums among them."""
    whole = b"".join(written_stream([b"gradients of a row", b"more"]))
    for at in range(len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[at] ^= 1 << bit
            with pytest.raises(DamagedFrame):
                read_stream(bytes(content))


def test_each_dropped_or_repeated_byte_is_found():
    whole = b"".join(written_stream([b"gradients of a row", b"more"]))
    for at, run in itertools.product(range(len(whole) - 1), (1, 2, 7)):
        if at + run >= len(whole):
            continue
        with pytest.raises(DamagedFrame):
            read_stream(whole[:at] + whole[at + run :])
        with pytest.raises(DamagedFrame):
            read_stream(whole[: at + run] + whole[at:])


def test_frames_that_are_dropped_repeated_or_reordered_are_found():
    one, two, three = written_stream([b"equal", b"equal", b"equal"])
    for frames in ([two], [one, three], [one, one], [one, two, two, three], [two, one, three], [one, three, two]):
        with pytest.raises(DamagedFrame, match="place in the stream"):
            read_stream(b"".join(frames))
    assert len(read_stream(one + two)) == 2, "the end of a stream is told by its protocol"


def test_a_frame_of_another_connection_or_protocol_is_found():
    (head,) = FrameOrder(WireProtocol.HOSTS, SESSION + 1).write(3)
    with pytest.raises(DamagedFrame, match="place in the stream"):
        FrameOrder(WireProtocol.HOSTS, SESSION).read(head)
    with pytest.raises(DamagedFrame, match="protocol"):
        FrameOrder(WireProtocol.ROWS, SESSION).read(head)
    order = FrameOrder(WireProtocol.HOSTS, None)
    order.read(head)
    with pytest.raises(DamagedFrame, match="place in the stream"):
        order.read(read_frame_header(head, WireProtocol.HOSTS)._replace(session=SESSION, sequence=1).to_bytes())


def test_the_end_that_is_connected_to_writes_in_the_session_of_the_other():
    client, server = FrameOrder(WireProtocol.ROWS, SESSION), FrameOrder(WireProtocol.ROWS, None)
    server.read(client.write(1)[0])
    answer = client.read(server.write(2)[0])
    assert (answer.kind, answer.session, answer.sequence) == (2, SESSION, 0)


def test_the_bytes_of_another_program_are_found():
    for content in (b"GET / HTTP/1.1\r\n" * 8, bytes(HEADER_BYTES), b"HRPS" + bytes(HEADER_BYTES)):
        with pytest.raises(DamagedFrame, match="format is not that of this release"):
            read_frame_header(content[:HEADER_BYTES], WireProtocol.ROWS)
    with pytest.raises(DamagedFrame, match="not whole"):
        read_frame_header(bytes(HEADER_BYTES - 1), WireProtocol.ROWS)


def test_thousands_of_mutated_streams_are_read_up_to_their_damage():
    """What is read before the damage is what was written; nothing else is."""
    bodies = [b"", b"x" * 30, bytes(range(200)), b"end"]
    frames = written_stream(bodies)
    refused = 0
    for seed in range(scaled(20_000)):
        content = mutated(b"".join(frames), Random(seed), frames)
        try:
            found = read_stream(content)
        except DamagedFrame:
            refused += 1
            continue
        assert [body for _, body in found] == bodies[: len(found)]
    assert refused > scaled(20_000) // 2


@pytest.mark.parametrize("kind", [one for one in DamageKind if one is not DamageKind.DELAY])
def test_random_damage_of_each_kind_is_found(kind):
    bodies = [Random(k).randbytes(Random(k).randrange(300)) for k in range(20)]
    whole = b"".join(written_stream(bodies))
    refused = 0
    for seed in range(scaled(2000)):
        points = random_damage(DamageSettings(seed, mean_bytes=1000, kinds=(kind,)))(0, Direction.REQUESTS)
        content = b"".join(one.content for one in DamagedStream(points).damage(whole))
        try:
            found = read_stream(content)
        except DamagedFrame:
            refused += 1
            continue
        assert [body for _, body in found] == bodies[: len(found)]
        assert content == whole or content == b"".join(written_stream(bodies)[: len(found)])
    assert refused > scaled(2000) // 2
