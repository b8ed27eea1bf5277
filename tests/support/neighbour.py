"""Another process of the machine, which has no token and tries everything on the ports that it finds, until its standard input ends.

``python -m tests.support.neighbour PARENT`` finds the ports on which the descendants of the process PARENT listen, as any local process finds those of all
processes in ``/proc/net/tcp``; so a test does not disturb other services of its machine. It prints ``TRIED`` once each kind of attempt has got an answer,
and at the end a JSON object of what it got by kind of attempt: the greetings that were taken, and the refusals.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np

from trainer.errors import ServerLost
from trainer.servers.client_updates import Greeting, attempt_number
from trainer.servers.server_status import read_status
from trainer.servers.session_roles import SessionRole
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Kind, write_document
from trainer.wire.byte_streams import receive_into
from trainer.wire.flight.addresses import Address
from trainer.wire.frames import HEADER_BYTES, FrameOrder, WireProtocol, read_frame_header
from transforms.errors import HeadraceError

TRIED = "tried everything once"
_SECS = 2.0
#: An update of no row, as any client could send it.
_EMPTY = b"".join(messages.write_gradients(messages.RowNumbers(np.zeros(0, np.int32), np.zeros(1, np.int64)), np.ones(1, np.float32), [np.zeros(0, np.float32)]))  # fmt: skip
_TOKENS = ("", "token", "\ud800", "x" * 43)
#: What a session without a token asks for: its kinds of requests in one stream.
ATTEMPTS = {
    "status": (Kind.STATUS,),
    "update": (Kind.UPDATE,) * 20,
    "write": (Kind.WRITE_VALUES,),
    "load": (Kind.OPEN, Kind.BEGIN_LOAD, Kind.LOAD_ROWS, Kind.END_LOAD),
    "save": (Kind.BEGIN_SNAPSHOT, Kind.READ_SNAPSHOT, Kind.READ_STATE, Kind.END_SNAPSHOT),
    "move": (Kind.BEGIN_SNAPSHOT, Kind.READ_SNAPSHOT, Kind.BEGIN_LOAD, Kind.END_LOAD),
    "pool": (Kind.KEEP, Kind.FETCH, Kind.FLUSH),
}


def descendants(parent: int) -> set[int]:
    found, left = set[int](), [parent]
    while left:
        one = left.pop()
        with suppress(OSError):
            for path in Path(f"/proc/{one}/task").glob("*/children"):
                new = {int(number) for number in path.read_text().split()} - found
                found |= new
                left += new
    return found


def listening_ports(processes: set[int]) -> set[int]:
    """The ports on loopback on which the processes listen."""
    inodes = set()
    for one in processes:
        with suppress(OSError):
            for path in Path(f"/proc/{one}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(path.readlink().name.removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and line[9] in inodes}


def attempt(port: int, name: str, role: SessionRole, token: str, run: int) -> str:
    """What a server says to a greeting and the requests after it, sent at once: the kind of its first answer."""
    greeting = Greeting(token, 0, 1, attempt_number(run, 1), role=role)
    body = write_document(greeting.to_document())
    order = FrameOrder(WireProtocol.ROWS, 7)
    sent = b"".join(order.write(Kind.HELLO, [body]))
    for number, kind in enumerate(ATTEMPTS[name], 1):
        sent += b"".join(order.write(kind, [_EMPTY], number=number))
    with socket.create_connection(("127.0.0.1", port), _SECS) as stream:
        stream.settimeout(_SECS)
        stream.sendall(sent)
        head = bytearray(HEADER_BYTES)
        if receive_into(stream, memoryview(head)) < len(head):
            return "ended"
        return Kind(read_frame_header(head, WireProtocol.ROWS).kind).name


def try_everything(parent: int, found: Counter[str]) -> None:
    for port in listening_ports(descendants(parent)):
        for name in ATTEMPTS:
            for role in SessionRole:
                for token in _TOKENS:
                    with suppress(OSError, HeadraceError):
                        found[f"{name}: {attempt(port, name, role, token, int(time.time() * 1000))}"] += 1
        try:
            read_status(Address("127.0.0.1", port), patience_secs=_SECS)
            found["the status was read"] += 1
        except (HeadraceError, ServerLost, OSError):
            found["the status was refused"] += 1


def main() -> None:
    found, tried = Counter[str](), False
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        try_everything(int(sys.argv[1]), found)
        if not tried and all(found[f"{name}: {Kind.ERROR.name}"] for name in ATTEMPTS):
            tried = True
            print(TRIED, flush=True)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
