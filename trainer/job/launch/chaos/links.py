"""TCP proxies between the processes of a job, whose connections can be cut, slowed and damaged. They run in one thread of this process."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from trainer.job.launch.chaos.wire_damage import DamagedStream, DamageKind, Direction, DrawDamage, Piece
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import DataError

_T = TypeVar("_T")
_PIECE_BYTES = 1 << 18
_HOST = "127.0.0.1"
#: A connection that ends in this time after its bytes were damaged is counted.
_SOON_SECS = 10.0
#: A socket that is closed with this option resets its connection.
_RESET = struct.pack("ii", 1, 0)

#: The address to which a new connection is made. Raises :class:`Unreachable` if there is none now.
FindUpstream = Callable[[], Address]


class Link:
    """One proxy. Made by :meth:`Links.open`.

    Attributes:
        damages: how often each kind of damage was done.
        endings: how many connections ended soon after each kind of damage.
        connections: how many were made.
    """

    def __init__(self, find_upstream: FindUpstream) -> None:
        self._find_upstream = find_upstream
        self._open = asyncio.Event()
        self._open.set()
        self._cuts = 0
        self._delay_secs = 0.0
        self._draw: DrawDamage | None = None
        self._is_once = False
        self._damaged: dict[int, tuple[DamageKind, float]] = {}  # the last damage of connections, and when
        self.damages: Counter[DamageKind] = Counter()
        self.endings: Counter[DamageKind] = Counter()
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = Address(_HOST, 0)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, _HOST, 0)
        self.address = Address(_HOST, self._server.sockets[0].getsockname()[1])

    async def cut(self, *, is_reset: bool) -> None:
        """Let no byte pass until :meth:`heal`; with ``is_reset`` the connections are reset too."""
        self._cuts += 1
        self._open.clear()
        if is_reset:
            self._reset()

    async def heal(self) -> None:
        """End one cut; bytes pass after the last one."""
        self._cuts -= 1
        if not self._cuts:
            self._open.set()

    async def delay(self, secs: float) -> None:
        """Let each piece of a stream wait from now on; 0 ends it."""
        self._delay_secs = secs

    async def damage(self, draw: DrawDamage | None, *, is_once: bool = False) -> None:
        """Damage the bytes from now on, of open connections too; None, or with ``is_once`` the first damage, ends it."""
        self._draw, self._is_once = draw, is_once

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        self._reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reset(self) -> None:
        for writer in self._writers:
            connection = writer.get_extra_info("socket")
            with suppress(OSError):  # it may be closed
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        number = self.connections
        self.connections += 1
        try:
            await self._open.wait()
            upstream = self._find_upstream()
            far_reader, far_writer = await asyncio.open_connection(upstream.host, upstream.port)
            self._writers.add(far_writer)
            try:
                await asyncio.gather(
                    self._pump(reader, far_writer, number, Direction.REQUESTS),
                    self._pump(far_reader, writer, number, Direction.ANSWERS),
                )
            finally:
                self._writers.discard(far_writer)
                far_writer.transport.abort()
        except (OSError, Unreachable, DataError, asyncio.CancelledError):
            pass  # the connection ends, as that of a process that has ended, or with the link
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()
            self._count_ending(number)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int, direction: Direction
    ) -> None:
        draw: DrawDamage | None = None
        damaged: DamagedStream | None = None
        while content := await reader.read(_PIECE_BYTES):
            if self._delay_secs:
                await asyncio.sleep(self._delay_secs)
            await self._open.wait()
            if draw is not self._draw:
                draw = self._draw
                damaged = (
                    None
                    if draw is None
                    else DamagedStream(draw(connection, direction), partial(self._count, connection))
                )
            for piece in [Piece(content)] if damaged is None else damaged.damage(content):
                if piece.delay_secs:
                    await asyncio.sleep(piece.delay_secs)
                writer.write(piece.content)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    def _count(self, connection: int, kind: DamageKind) -> None:
        self.damages[kind] += 1
        self._damaged[connection] = kind, time.monotonic()
        if self._is_once:
            self._draw = None

    def _count_ending(self, connection: int) -> None:
        kind, at_secs = self._damaged.pop(connection, (None, 0.0))
        if kind is not None and time.monotonic() - at_secs <= _SOON_SECS:
            self.endings[kind] += 1


class Links:
    """The proxies of a job; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._links: list[Link] = []

    def open(self, find_upstream: FindUpstream) -> Link:
        """A proxy on a port of its own."""

        async def start() -> Link:
            link = Link(find_upstream)
            await link.start()
            return link

        link = self._run(start())
        self._links.append(link)
        return link

    def cut(self, link: Link, *, is_reset: bool) -> None:
        """Cut a link; :meth:`heal` ends it."""
        self._run(link.cut(is_reset=is_reset))

    def heal(self, link: Link) -> None:
        """End a cut."""
        self._run(link.heal())

    def delay(self, link: Link, secs: float) -> None:
        """Let each piece of a link's streams wait for a time; 0 ends it."""
        self._run(link.delay(secs))

    def damage(self, link: Link, draw: DrawDamage | None, *, is_once: bool = False) -> None:
        """Damage the bytes of a link from now on, such as by :func:`~trainer.job.launch.chaos.wire_damage.random_damage`.

        None ends it, or with ``is_once`` the first damage.
        """
        self._run(link.damage(draw, is_once=is_once))

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future: Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(30.0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links:
            self._run(link.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
