"""A server takes the rows that it owns from other servers, which train meanwhile: no row passes through a training process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from trainer.checkpoints.shard_rows import ColumnRange
from trainer.errors import ConfigError, ServerLost
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.copy_orders import CopyOrder, CopyProgress, CopySources
from trainer.servers.loads.live_server import LivePart, LiveServer
from trainer.servers.loads.named_links import ConnectNamed
from trainer.servers.loads.owned_rows import OwnedRows
from trainer.servers.loads.sliced_values import SliceValues, joined_values
from trainer.servers.loads.whole_tables import WholePart, is_whole, load_whole_tables
from trainer.servers.session_roles import SessionRole
from trainer.tables.engine import ChangedRows, TableState
from trainer.tables.routes.servers.table_documents import HeldTable, HeldTables
from trainer.tables.state_checks import check_state
from transforms.arrays import Array

#: The rows of a part that are asked for at once.
_WINDOW_BYTES = 8 << 20
#: Servers that are read at once.
_MOST_READS = 32
#: How long one request of a copy works, at least one window.
_REQUEST_SECS = 1.0


class TableCopier:
    """Follows one order to copy at a time, some windows at each request, inside a load.

    Connections are made when they are needed, and again after :meth:`disconnect`.
    """

    def __init__(self, connect: ConnectNamed, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect, self._clock = connect, clock
        self._sources: _Sources | None = None
        self._steps: Iterator[tuple[int, int]] = iter(())
        self._rows: list[int] = []
        self._is_done = False

    def begin(self, order: CopyOrder, rows: HeldRows) -> None:
        """Begin an order. Raises :class:`ConfigError` for one of other tables."""
        self.forget()
        self._sources = _Sources(order, rows, partial(self._links, order.sources))
        self._rows, self._is_done = [0] * len(rows.saved_parts), False
        self._steps = self._sources.load_whole() if order.is_whole else self._sources.load_all()

    def go_on(self, check: Callable[[], None]) -> None:
        """Work on the order for a while; ``check`` ends a wait for another server.

        Raises :class:`ConfigError` for servers with other tables, :class:`ServerLost` for one that does not answer, and what others refuse.
        """
        self._begun(check)
        until = self._clock() + _REQUEST_SECS
        try:
            for part, count in self._steps:
                self._rows[part] += count
                if self._clock() >= until:
                    return
        except BaseException:
            self.forget()  # what was begun is over, and is not done
            raise
        self._is_done = True

    def _begun(self, check: Callable[[], None]) -> _Sources:
        if self._sources is None:
            raise ServerLost("an order to copy must come first")
        self._sources.check = check
        return self._sources

    def copy_rows(self, part: int, own: Array, check: Callable[[], None]) -> int:
        """Take some rows of a part again, int64 and ascending, from the sources of the last order; returns how many of them are changed."""
        return self._begun(check).load_rows(part, own)

    @property
    def progress(self) -> CopyProgress:
        """What was done of the order."""
        return CopyProgress(tuple(self._rows), self._is_done)

    def disconnect(self) -> None:
        """End the connections to other servers."""
        if self._sources is not None:
            self._sources.disconnect()

    def forget(self) -> None:
        """End the connections, and forget the order."""
        if self._sources is not None:
            self._sources.close()
        self._sources, self._steps = None, iter(())

    def _links(self, sources: CopySources, check: Callable[[], None]) -> list[LiveServer]:
        greeting = Greeting(attempt=sources.attempt, role=SessionRole.COPIES)
        opened: list[LiveServer] = []
        try:
            for connect in self._connect(greeting, sources.named, check):
                opened.append(LiveServer(connect(False)))
        except BaseException:
            for one in opened:
                one.close()
            raise
        return opened


@dataclass(frozen=True, slots=True)
class _Slice:
    """Columns of a table that some sources have: the number of their part, and those among the sources that give its rows."""

    columns: ColumnRange
    q: int
    givers: tuple[int, ...]


#: What a source is asked for of a part, by its own numbers of rows; None: nothing.
_Ask = Callable[[LiveServer, int], ChangedRows | None]


class _Sources:
    """The other servers of an order, and what is taken from them.

    Attributes:
        check: ends a wait for another server.
    """

    def __init__(
        self, order: CopyOrder, rows: HeldRows, connect: Callable[[Callable[[], None]], list[LiveServer]]
    ) -> None:
        self.check: Callable[[], None] = lambda: None
        self._order, self._rows, self._connect = order, rows, connect
        self._opened: list[LiveServer] = []
        self._gives = [frozenset(given) for given in order.gives]
        self._by_table: dict[str, list[int]] = {}
        held = rows.held
        sizes = [one.table.vocabulary_size for one in held.tables]
        if len(order.rows) != len(sizes) or any(count > size for count, size in zip(order.rows, sizes, strict=True)):
            raise ConfigError("tables must be copied into the tables of a server", value=order.rows[:8],
                              allowed=f"rows of {len(sizes)} parts, at most {sizes[:8]}")  # fmt: skip
        self._pool = ThreadPoolExecutor(min(len(order.gives), _MOST_READS), "copy")

    @property
    def servers(self) -> list[LiveServer]:
        """The connected servers. Raises :class:`ConfigError` for servers with other tables."""
        if not self._opened:
            self._opened = self._connect(lambda: self.check())
            first, *others = [one.held for one in self._opened]
            if any(_alike(one) != _alike(first) for one in others):
                raise ConfigError("servers must hold the same tables to be copied from")
            self._by_table = {}
            for q, one in enumerate(first.tables):
                self._by_table.setdefault(one.origin.table, []).append(q)
        return self._opened

    def disconnect(self) -> None:
        """End the connections; they are made again when they are needed."""
        opened, self._opened = self._opened, []
        for one in opened:
            one.close()

    def close(self) -> None:
        """End the connections and the threads."""
        self.disconnect()
        self._pool.shutdown()

    def load_all(self) -> Iterator[tuple[int, int]]:
        """Take all changed rows of the tables that are not taken as wholes; yields the number of a part, and rows that were taken."""
        held = self._rows.held
        for p, one in enumerate(held.tables):
            if is_whole(held, p):
                continue
            own, slices = OwnedRows.of(one.origin, self._order.rows[p]), self._slices(one)
            step = max(_WINDOW_BYTES // (4 * int(self._rows.dims[p] + self._rows.slot_dims[p]) + 8), 1)
            for first in range(0, own.count, step):
                stop = min(first + step, own.count)
                yield p, self._load(p, slices, own, partial(_read_window, own, first, stop))

    def load_rows(self, p: int, own_rows: Array) -> int:
        """Take some rows of a part."""
        held = self._rows.held
        if not 0 <= p < len(held.tables) or is_whole(held, p):
            raise ConfigError("rows must be copied of a table that is not taken as a whole", value=p)
        own = OwnedRows.of(held.tables[p].origin, self._order.rows[p])
        return self._load(p, self._slices(held.tables[p]), own, partial(_read_some, own.whole(own_rows)))

    def load_whole(self) -> Iterator[tuple[int, int]]:
        """Take all hashed and pruned tables at the moment of the snapshot of the sources; yields as :meth:`load_all`."""
        held, parts = self._rows.held, dict[int, WholePart]()
        there = {(one.table, one.section): k for k, one in enumerate(self.servers[0].held.saved_parts)}
        for p, saved in enumerate(held.saved_parts):
            if not is_whole(held, saved.table):
                continue
            (one,) = self._slices(held.tables[saved.table])
            own = OwnedRows.of(held.tables[saved.table].origin, self._order.rows[saved.table])
            if (number := there.get((one.q, saved.section))) is None:
                raise ConfigError("servers must hold the same tables to be copied from", value=saved.section)
            sources = [LivePart(self.servers[k], number) for k in one.givers]
            mine = [k for k, source in enumerate(sources) if own.remainder(source.rows) is not None]
            parts[p] = WholePart(sources, mine, own)
        for p, count, _ in load_whole_tables(self._rows, parts, self._order.server, self._order.servers):
            yield p, count

    def _slices(self, own: HeldTable) -> list[_Slice]:
        """The slices of columns of a table, as sources have them, that have columns of a part. Raises :class:`ConfigError`."""
        wanted, found = ColumnRange(own.origin.first_column, own.table.dim), list[_Slice]()
        tables = self.servers[0].held.tables
        for q in self._by_table.get(own.origin.table, []):
            one = tables[q]
            columns = ColumnRange(one.origin.first_column, one.table.dim)
            if columns.shared_with(wanted) is None:
                continue
            if one.table.optimizer != own.table.optimizer or (one.limits is None) != (own.limits is None):
                raise ConfigError(
                    "tables must be copied from the same tables on other servers", where=f"table {own.origin.table}"
                )
            givers = tuple(k for k, given in enumerate(self._gives) if q in given)
            found.append(_Slice(columns, q, givers))
        shared = [one.columns.shared_with(wanted) for one in found]
        if sum(one.columns for one in shared if one is not None) != wanted.columns:
            raise ConfigError(
                "servers must have all columns of a table that is copied from them", where=f"table {own.origin.table}"
            )
        return sorted(found, key=lambda one: one.columns.first_column)

    def _load(self, p: int, slices: Sequence[_Slice], own: OwnedRows, ask: _Ask) -> int:
        """Load what all sources answer of a part; returns the number of rows.

        A row that is changed in some slices of its columns and not yet in others is left out: its update has been noted.
        """
        servers = self.servers

        def ask_server(k: int) -> list[tuple[int, ChangedRows]]:
            """What a server gives of each slice; a connection is used by one thread."""
            found = [(s, ask(servers[k], one.q)) for s, one in enumerate(slices) if k in one.givers]
            return [(s, rows) for s, rows in found if rows is not None]

        givers = sorted({k for one in slices for k in one.givers})
        by_slice: list[list[ChangedRows]] = [[] for _ in slices]
        for found in self._pool.map(ask_server, givers):
            for s, rows_ in found:
                by_slice[s].append(rows_)
        if not all(by_slice):
            return 0
        joined = [_joined(found) for found in by_slice]
        rows = reduce(np.intersect1d, [one.rows for one in joined])
        values = [SliceValues(one.columns, *_among(found, rows)) for one, found in zip(slices, joined, strict=True)]
        held = self._rows.held.tables[p]
        mine, numbers = own.own(rows)
        if not len(rows):
            return 0
        if not mine.all():
            raise ConfigError(
                "other servers must give the rows that they are asked for", where=f"table {held.origin.table}"
            )
        wanted = ColumnRange(held.origin.first_column, held.table.dim)
        state = TableState(numbers, *joined_values(values, wanted, f"table {held.origin.table}"))
        check_state(held.table, state)
        self._rows.load(p, ChangedRows(state.rows, state.weights, state.slots))
        return len(numbers)


def _alike(held: HeldTables) -> tuple[object, ...]:
    """What all servers of a training have in common: their parts, whatever rows of them each has."""
    parts = [(one.origin.table, one.origin.first_column, one.table.dim) for one in held.tables]
    return parts, [(one.table, one.section, one.dim, one.slot_dim) for one in held.saved_parts]


def _read_window(own: OwnedRows, first: int, stop: int, server: LiveServer, q: int) -> ChangedRows | None:
    """The changed rows of a source among the owned ones from ``first`` up to ``stop``."""
    spread = own.among(server.origin_rows(q), first, stop)
    return None if spread is None else server.read_now(q, spread)


def _read_some(rows: Array, server: LiveServer, q: int) -> ChangedRows | None:
    """The changed rows of a source among some of the table."""
    _, numbers = server.origin_rows(q).own(rows)
    return server.read_rows(q, numbers) if len(numbers) else None


def _joined(found: Sequence[ChangedRows]) -> ChangedRows:
    """The rows of some servers, ascending."""
    rows, weights, slots = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("rows", "weights", "slots")
    )
    order = np.argsort(rows, kind="stable")
    return ChangedRows(rows[order], weights[order], slots[order])


def _among(found: ChangedRows, rows: Array) -> tuple[Array, Array]:
    """The weights and slots of some of the rows."""
    if len(found.rows) == len(rows):
        return found.weights, found.slots
    at = np.searchsorted(found.rows, rows)
    return found.weights[at], found.slots[at]
