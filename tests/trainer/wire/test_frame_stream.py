"""Frames over a socket: whole ones, however their bytes arrive."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import PATIENCE_SECS
from trainer.errors import DamagedFrame
from trainer.wire.frame_stream import MOST_AHEAD_BYTES, FrameStream, StreamEnded
from trainer.wire.frames import HEADER_BYTES, FrameOrder, WireProtocol

SHORT_SECS = 0.05
#: Lengths of bodies around those at which a frame is not read ahead as a whole.
LENGTHS = st.one_of(
    st.integers(0, 200),
    st.integers(4000, 4200),
    st.integers(MOST_AHEAD_BYTES - HEADER_BYTES - 2, MOST_AHEAD_BYTES + 2),
    st.integers(0, 3 * MOST_AHEAD_BYTES),
)


@contextmanager
def streams(stall_secs: float = PATIENCE_SECS) -> Iterator[tuple[socket.socket, FrameOrder, FrameStream]]:
    """A socket that sends, what numbers its frames, and the frames of the other end."""
    sender, receiver = socket.socketpair()
    with sender, receiver:
        frames = FrameStream(receiver, FrameOrder(WireProtocol.ROWS, None), stall_secs=stall_secs)
        yield sender, FrameOrder(WireProtocol.ROWS, 5), frames


def send_in_pieces(sender: socket.socket, content: bytes, draw: Random) -> None:
    at = 0
    while at < len(content):
        size = draw.choice((1, HEADER_BYTES - 1, HEADER_BYTES, 1000, MOST_AHEAD_BYTES, len(content)))
        sender.sendall(content[at : at + size])
        at += size


def received(frames: FrameStream, draw: Random) -> bytes:
    """The body of the next frame, in new memory or in parts."""
    header = frames.receive_header()
    assert header is not None
    if draw.random() < 0.5:
        return bytes(frames.receive_new_body(header))
    body = memoryview(bytearray(header.body_bytes))
    cuts = sorted(draw.randrange(header.body_bytes + 1) for _ in range(draw.randrange(4)))
    bounds = zip([0, *cuts], [*cuts, header.body_bytes], strict=True)
    frames.receive_body(header, [body[first:stop] for first, stop in bounds if stop > first])
    return bytes(body)


@given(st.lists(LENGTHS, min_size=1, max_size=6), st.integers(0, 1 << 30))
def test_frames_are_received_as_they_were_sent_however_their_bytes_arrive(lengths, seed):
    draw = Random(seed)
    bodies = [draw.randbytes(length) for length in lengths]
    with streams() as (sender, order, frames):
        content = b"".join(b"".join(order.write(3, [body])) for body in bodies)
        sending = threading.Thread(target=send_in_pieces, args=(sender, content, Random(seed)))
        sending.start()
        assert [received(frames, draw) for _ in bodies] == bodies
        sending.join(PATIENCE_SECS)
        assert not frames.has_bytes(0.0)
        sender.shutdown(socket.SHUT_WR)
        assert frames.receive_header() is None


def test_a_frame_that_was_read_ahead_counts_as_bytes_that_can_be_read():
    with streams() as (sender, order, frames):
        sender.sendall(b"".join([*order.write(3, [b"one"]), *order.write(3, [b"two"])]))
        assert received(frames, Random(0)) == b"one"
        assert frames.has_bytes(0.0)
        assert received(frames, Random(0)) == b"two"
        assert not frames.has_bytes(0.0)


@pytest.mark.parametrize("size", [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, HEADER_BYTES + 999])
def test_a_frame_whose_rest_does_not_come_is_damaged_and_one_that_is_cut_off_has_ended(size):
    with streams(SHORT_SECS) as (sender, order, frames):
        sender.sendall(b"".join(order.write(3, [bytes(1000)]))[:size])
        with pytest.raises(DamagedFrame, match="rest does not come"):
            received(frames, Random(0))
    with streams() as (sender, order, frames):
        sender.sendall(b"".join(order.write(3, [bytes(1000)]))[:size])
        sender.shutdown(socket.SHUT_WR)
        with pytest.raises(StreamEnded, match="inside a frame"):
            received(frames, Random(0))


def test_a_changed_byte_of_a_body_is_found_wherever_the_body_was_received():
    for length in (10, 5000, 2 * MOST_AHEAD_BYTES):
        with streams() as (sender, order, frames):
            content = bytearray(b"".join(order.write(3, [bytes(length)])))
            content[-1] ^= 1
            sending = threading.Thread(target=sender.sendall, args=(content,))
            sending.start()
            with pytest.raises(DamagedFrame, match="body has another checksum"):
                received(frames, Random(length))
            sending.join(PATIENCE_SECS)
