"""The tables of one parameter server, as the engine uses them: open, fetch, update, save and load."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from trainer.errors import BadBatch, NonFiniteLoss, ServerLost
from trainer.tables.engine import ChangedRows, RowValues, TableState
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.outputs import OutputPool
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import (
    OPENED_MEMBERS,
    Kind,
    count_at,
    draw_generation,
    read_document,
    read_object,
    write_document,
)
from trainer.tables.routes.servers.history_pieces import CANDIDATES, checked, read_history
from trainer.tables.routes.servers.row_messages import RowNumbers
from trainer.tables.routes.servers.server_link import Answer, Connect, Request, ServerLink
from trainer.tables.routes.servers.table_documents import HeldTables
from trainer.tables.stores.hashed.saved_history import LoadedHistory
from trainer.tables.stores.pruned.saved_parts import SavedPart
from trainer.tables.wire import encoded_values
from trainer.tables.wire.settings import WireSettings
from transforms.arrays import Array
from transforms.errors import DataError, HeadraceError

_LOG = logging.getLogger(__name__)

#: The bytes of rows in one message of a load.
_LOAD_BYTES = 4 << 20
#: Encoded answers and updates that are kept, beside those in use.
_KEPT = 4


class RemoteTables:
    """The tables of one server.

    Requests that change rows are not waited for: a server answers in order, so a later request sees what they did. Their errors are raised
    by the next call. Fetches may be on their way at once: see :meth:`begin_fetch`. ``wire``: how the rows and values of fetches and updates are encoded; all else is sent as it is.
    """

    def __init__(self, connect: Connect, held: HeldTables, wire: WireSettings | None = None) -> None:
        self._connect, self._link, self._document = connect, connect(False), held.to_document()
        self._saving: ServerLink | None = None
        self._saving_lock = threading.Lock()
        self._wire, self._memory = wire or WireSettings(), OutputPool(spare=0.25, kept=_KEPT)
        self._tables = tuple(one.table for one in held.tables)
        self._saved = held.saved_parts
        self.is_hashed = tuple(one.limits is not None for one in held.tables)
        self._has_history = tuple(held.pruning is not None or one for one in self.is_hashed)
        self.dims = np.array([one.dim for one in self._tables], np.int64)
        self.slot_dims = np.array([slot_width(one.optimizer, one.dim) for one in self._tables], np.int64)
        self._is_saving_old = self._has_snapshot = False
        self._updates = self._sent = self._generation = self._loads = self._bytes_before = 0
        self.open()

    def open(self) -> None:
        """Open the tables: rows that the server has of them stay, and the numbers of updates go on from those that it has made."""
        answer = self._call(Request(Kind.OPEN, [write_document(self._document)]), Kind.OPENED)
        self._updates = self._opened(answer)

    def reconnect(self, connect: Connect, *, keeps_rows: bool) -> None:
        """Open the tables over another connection. A snapshot is read to its end over the earlier one.

        Raises :class:`ServerLost` if ``keeps_rows``, and the server was started again without the rows that it had.
        """
        before = self._generation
        self._bytes_before = self.wire_bytes
        self._link.close()
        self._connect, self._link, self._is_saving_old = connect, connect(False), True
        self._sent = 0
        self.open()
        if keeps_rows and self._generation != before:
            raise ServerLost("the server has lost its rows", value="it was started without them",
                             next_step="run training again: it goes on from its last checkpoint")  # fmt: skip

    @property
    def link(self) -> ServerLink:
        """The connection."""
        return self._link

    @property
    def wire_bytes(self) -> int:
        """Bytes that were sent and received over this connection and earlier ones, but for snapshots."""
        return self._bytes_before + self._link.sent_bytes + self._link.received_bytes

    @property
    def updates(self) -> int:
        """The number of the last update that was sent."""
        return self._updates

    @property
    def generation(self) -> int:
        """The generation of the server's rows when the tables were opened or loaded: it changes when rows are loaded or lost."""
        return self._generation

    @property
    def saved_parts(self) -> tuple[SavedPart, ...]:
        """What is saved and loaded, by the numbers that the requests for it name; those of the tables come first."""
        return self._saved

    def rows_of(self, part: int) -> int:
        """The rows of a part on this server."""
        return self._saved[part].rows

    def begin_fetch(self, numbers: RowNumbers, space: Sequence[Array], floor: int, *, exact: bool = False) -> int:
        """Ask for the weights of rows; they are in ``space`` after :meth:`end_fetch` of the number that is returned, and after :meth:`finish`.

        Args:
            numbers: the rows.
            space: arrays for their values, one after the other; no piece of a message is in two of them.
            floor: the update that all clients must have made before.
            exact: values are not encoded.
        """
        flag = 0 if exact else encoded_values.FLAG_OF[self._wire.values]
        body, flags = messages.write_numbers(numbers), numbers.flags | flag
        if not flag:
            return self._send(Request(Kind.FETCH, body, space, floor=floor, flags=flags))
        floats = encoded_values.floats_of_pieces(numbers.counts, self.dims)
        pieces, buffer = encoded_values.split_pieces(space, floats), self._space_of(floats, flag)
        decode = partial(encoded_values.decode_pieces, buffer, pieces, flag)
        return self._send(
            Request(Kind.FETCH, body, [buffer], floor=floor, flags=flags, answer_flags=flag, decode=decode)
        )

    def end_fetch(self, number: int) -> None:
        """Wait for the answer to a fetch, and to what was sent before it. Raises the first error among them."""
        while not self.is_ended(number):
            self._link.receive()

    def is_ended(self, number: int) -> bool:
        """Whether the answer to a fetch is here."""
        return self._sent - self._link.waiting >= number

    def _send(self, request: Request) -> int:
        """Send a request; returns how many were sent over the connection."""
        self._sent += 1
        self._link.send(request)
        return self._sent

    def numbers_of(self, rows: Array, counts: Array, *, short: bool) -> RowNumbers:
        """Rows of parts, int64, as they are sent; ``short``: all rows of this server have numbers of 32 bits."""
        if self._wire.ids == "unique":
            return messages.encode_rows(rows, counts)
        return RowNumbers(rows.astype(np.int32) if short else rows, counts)

    def update(
        self, numbers: RowNumbers, rates: Array, values: Sequence[Array], number: int | None = None, lookups: Array | None = None
    ) -> None:  # fmt: skip
        """Send the summed gradients of rows, in pieces. Raises :class:`NonFiniteLoss` for sums that cannot be encoded.

        Args:
            numbers: the rows.
            rates: the learning rate of each part.
            values: the sums.
            number: of the update; None: the next one.
            lookups: int32, how often each row was looked up, if the tables need it.
        """
        flag = encoded_values.FLAG_OF[self._wire.values]
        if flag:
            values = [self._encoded(values, encoded_values.floats_of_pieces(numbers.counts, self.dims), flag)]
        number = self._updates + 1 if number is None else number
        self._updates = max(self._updates, number)
        body = messages.write_gradients(numbers, rates, values, lookups)
        self._send(Request(Kind.UPDATE, body, number=number, flags=numbers.flags | flag))

    def read_values(self, numbers: RowNumbers) -> list[tuple[Array, Array]]:
        """The weights [rows, dim] and slots of rows, int64, of each part, as all that was sent before leaves them."""
        widths = (self.dims, self.slot_dims)
        found = RowValues(*(np.empty(int((numbers.counts * dims).sum()), np.float32) for dims in widths))
        self._send(Request(Kind.READ_VALUES, messages.write_numbers(numbers), [found.weights, found.slots]))
        self.finish()
        messages.check_values(found)
        weights, slots = (
            messages.split_by_part(flat, numbers.counts, dims)
            for flat, dims in zip((found.weights, found.slots), widths, strict=True)
        )
        return list(zip(weights, slots, strict=True))

    def write_values(self, numbers: RowNumbers, values: RowValues) -> None:
        """Replace the values of rows, int64, without waiting for the server: the next update, as numbers go."""
        self._updates += 1
        self._send(Request(Kind.WRITE_VALUES, messages.write_values(numbers, values), number=self._updates))

    def _encoded(self, values: Sequence[Array], floats: Sequence[int], flag: int) -> Array:
        buffer = self._space_of(floats, flag)
        try:
            encoded_values.encode_pieces(encoded_values.split_pieces(values, floats), buffer, flag)
        except BadBatch as error:
            raise NonFiniteLoss(
                "training diverged: the summed gradient of a row is infinite", value=error.value
            ) from None
        return buffer

    def _space_of(self, floats: Sequence[int], flag: int) -> Array:
        return self._memory.take_bytes(encoded_values.encoded_bytes(floats, flag))

    def finish(self) -> None:
        """Wait for the answers to all requests that were sent. Raises the first error among them."""
        while self._link.waiting:
            self._link.receive()

    def begin_snapshot(self, most_bytes: int) -> tuple[int, ...]:
        """Begin a snapshot after all updates that were sent; returns the rows of each of :attr:`saved_parts`."""
        assert not self._has_snapshot, "the rows of one snapshot must not be read as those of another: end it first"
        self.finish()
        if self._is_saving_old and self._saving is not None:
            self._saving.close()
            self._saving = None
        self._is_saving_old = False
        answer = self._save(Request(Kind.BEGIN_SNAPSHOT, messages.write_counts([most_bytes])), Kind.COUNTS)
        self._has_snapshot = True
        return messages.read_counts(answer.body, len(self._saved))

    def read_snapshot(self, part: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a part from ``first`` to ``stop`` at the moment of the snapshot, as the server numbers them."""
        return self._changed_rows(Kind.READ_SNAPSHOT, part, first, stop)

    def read_state(self, part: int, first: int, stop: int) -> ChangedRows:
        """As :meth:`read_snapshot`, as they are now."""
        return self._changed_rows(Kind.READ_STATE, part, first, stop)

    def _read_part(self, answer: Answer, part: int) -> ChangedRows:
        return messages.read_part(answer.body, self._saved[part].dim, self._saved[part].slot_dim)

    def _changed_rows(self, kind: Kind, part: int, first: int, stop: int) -> ChangedRows:
        found = self._read_part(self._save(Request(kind, messages.write_counts([part, first, stop])), Kind.PART), part)
        if len(found.rows) and not (first <= int(found.rows[0]) and int(found.rows[-1]) < stop):
            raise DataError("the server must return the requested rows", value=found.rows[:4].tolist())
        return found

    def read_aged(self, part: int, first: int, stop: int) -> ChangedRows:
        """The changed rows of a hashed part at the moment of the snapshot from one rank by id to another; their ages are beside them."""
        answer = self._save(Request(Kind.READ_SNAPSHOT, messages.write_counts([part, first, stop])), Kind.PART)
        found, ages = messages.read_aged_part(answer.body, int(self.dims[part]), int(self.slot_dims[part]))
        if len(found.rows) != stop - first or (len(found.rows) and int(found.rows[-1]) >= self.rows_of(part)):
            raise DataError("the server must return the requested rows", value=found.rows[:4].tolist())
        return replace(found, beside=(ages,))

    def read_history(self, part: int, candidates: int) -> Iterator[KeptHistory]:
        """What a hashed part with so many candidates has beside its rows at the moment of the snapshot, some candidates at a time.

        Those of a pruned part are its other numbers.
        """
        return read_history(self._save, part, candidates, self._has_history)

    def ask_saving(self, kind: Kind, document: dict[str, Any]) -> object:
        """Send a document over the connection of snapshots; returns the JSON value of the answer."""
        return read_object(self._save(Request(kind, [write_document(document)]), Kind.DOCUMENT).body)

    @property
    def saving_bytes(self) -> int:
        """The bytes that were sent and received over the connection of snapshots, since it was made."""
        saving = self._saving
        return 0 if saving is None else saving.sent_bytes + saving.received_bytes

    def end_snapshot(self) -> None:
        """End the snapshot, if there is one. A server that does not answer ends it by itself, as its connection is closed."""
        self._has_snapshot = False
        if self._saving is None:
            return
        try:
            self._save(Request(Kind.END_SNAPSHOT), Kind.DONE)
        except HeadraceError as error:
            _LOG.info("the snapshot of a server was not ended: %s", error.what)

    def _save(self, request: Request, expected: Kind) -> Answer:
        """A request on a connection of its own: rows are read in another thread while training goes on."""
        with self._saving_lock:
            if self._saving is None:
                self._saving = self._connect(True)
            try:
                self._saving.send(request)
                return checked(self._saving.receive(), expected)
            except BaseException:  # such as the end of the attempt: nothing takes the answer any more
                self._saving.close()
                self._saving = None
                raise

    def load(self, states: Iterable[tuple[int, TableState, LoadedHistory | None]]) -> None:
        """Replace all rows by these of each of :attr:`saved_parts`, with the history of a hashed or pruned one; other rows have their initial values."""
        self.begin_load()
        for part, state, history in states:
            self.load_part(part, state, history)
        self.end_load()

    def load_part(self, part: int, state: TableState, history: LoadedHistory | None) -> None:
        """Load a part as a whole, with the history of a hashed one, inside a load."""
        if history is not None:
            self._load_history(part, history)
        self.load_rows(part, state, None if history is None else history.ages)

    def begin_load(self) -> None:
        """Begin to replace all rows: they have their initial values, and cannot be used before :meth:`end_load`."""
        self._loads = draw_generation() >> 1
        self._call(Request(Kind.BEGIN_LOAD, number=self._loads), Kind.DONE)

    def load_rows(self, part: int, state: TableState, ages: Array | None = None) -> None:
        """Replace rows of a part, ascending, inside a load; those that were loaded before, too. ``ages``: of the rows of a hashed part."""
        step = self.rows_in(part, _LOAD_BYTES)
        for first in range(0, len(state.rows), step):
            window = slice(first, first + step)
            rows = ChangedRows(state.rows[window], state.weights[window], state.slots[window])
            own = None if ages is None else ages[window]
            self._call(
                Request(Kind.LOAD_ROWS, messages.write_load(part, rows, own), number=self._next_load()), Kind.DONE
            )

    def _load_history(self, part: int, history: LoadedHistory) -> None:
        kept = history.kept
        for first in range(0, max(len(kept.candidates), 1), CANDIDATES):
            own = replace(kept, candidates=kept.candidates[first : first + CANDIDATES])
            body = messages.write_history(part, own, first)
            self._call(Request(Kind.LOAD_HISTORY, body, number=self._next_load()), Kind.DONE)

    def _next_load(self) -> int:
        """The number of the next request of a load, by which a server makes a repeated one once."""
        self._loads += 1
        return self._loads

    def ask_loading(self, kind: Kind, document: dict[str, Any] | None) -> object:
        """Send a document, or null, as the next request of a load; returns the JSON value of the answer."""
        request = Request(kind, [write_document(document)], number=self._next_load())
        return read_object(self._call(request, Kind.DOCUMENT).body)

    def copy_rows(self, part: int, rows: Array) -> int:
        """Let the server take some rows of a part, int64 and ascending, from those that it copies from; returns how many of them are changed."""
        answer = self._call(
            Request(Kind.COPY_ROWS, messages.write_rows(part, rows), number=self._next_load()), Kind.COUNTS
        )
        return messages.read_counts(answer.body, 1)[0]

    def end_load(self) -> None:
        """End a load: the rows are another generation, and updates are numbered from 1 on."""
        ending = Request(Kind.END_LOAD, number=self._next_load(), floor=draw_generation())
        self._updates = self._opened(self._call(ending, Kind.OPENED))

    def rows_in(self, part: int, bytes_: int) -> int:
        """The rows of a part in a message of about so many bytes, their ages included; at least 1."""
        return max(bytes_ // (4 * (self._saved[part].dim + self._saved[part].slot_dim) + 16), 1)

    def close(self) -> None:
        """End the connections."""
        for link in (self._link, self._saving):
            if link is not None:
                link.close()

    def _opened(self, answer: Answer) -> int:
        """The number of the last update of this client that the server has made."""
        document = read_document(answer.body, OPENED_MEMBERS)
        self._generation = count_at(document, "generation")
        return count_at(document, "applied")

    def _call(self, request: Request, expected: Kind) -> Answer:
        self.finish()
        self._send(request)
        return checked(self._link.receive(), expected)
