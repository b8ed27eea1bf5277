"""Some changed rows of a part, as another server asks for them that takes rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.servers.requests import DIMS, TABLES, ask, body_of, open_tables, update
from trainer.errors import AttemptOver
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.session_roles import SessionRole
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.row_messages import RowSpread
from transforms.errors import DataError

SIZES = np.array([one.vocabulary_size for one in TABLES], np.int64)
SLOTS = [slot_width(one.optimizer, one.dim) for one in TABLES]


@given(st.integers(0, len(TABLES) - 1), st.sets(st.integers(0, 8)))
def test_a_request_is_read_as_it_was_written(part, rows):
    wanted = np.array(sorted(rows), np.int64)
    found, asked = messages.read_rows(body_of(messages.write_rows(part, wanted)), SIZES)
    assert (found, asked.tolist()) == (part, sorted(rows))


SPREADS = st.builds(
    lambda first, more, stride, of: RowSpread(first, first + more, stride, of % stride),
    *[st.integers(0, 3)] * 2,
    st.integers(1, 5),
    st.integers(0, 4),
)


@given(st.integers(0, len(TABLES) - 1), SPREADS)
def test_a_spread_is_read_as_it_was_written_if_the_part_has_its_rows(part, spread):
    body = body_of(messages.write_spread(part, spread))
    if spread.stop <= SIZES[part]:
        assert messages.read_spread(body, SIZES) == (part, spread)
        assert list(spread.rows) == [
            row for row in range(spread.first, spread.stop) if row % spread.stride == spread.remainder
        ]
    else:
        with pytest.raises(DataError):
            messages.read_spread(body, SIZES)


@pytest.mark.parametrize("numbers", [[3, 0, 0, 1, 0], [-1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, -1, 1, 1, 0], [0, 0, 31, 1, 0], [0, 0, 1, 0, 0], [0, 0, 1, 2, 2], [0, 0, 1, 2, -1], [0, 0, 1, -3, 0], [0, 0, 1, 1], [0, 0, 1, 1, 0, 0]])  # fmt: skip
def test_a_spread_of_other_rows_is_refused(numbers):
    with pytest.raises(DataError):
        messages.read_spread(np.array(numbers, np.int64).tobytes(), SIZES)


@pytest.mark.parametrize("numbers", [[3, 0], [-1, 0], [0, 1, -1], [0, 1, 30], [2, 2, 0, 9], [0, 2, 3, 3], [0, 2, 4, 3], [0, 2, 1], [0, 1, 1, 1], [0, -1], [0, 1 << 62], [0]])  # fmt: skip
def test_a_request_for_other_rows_is_refused(numbers):
    with pytest.raises(DataError):
        messages.read_rows(np.array(numbers, np.int64).tobytes(), SIZES)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused_with_one_error(body):
    try:
        part, rows = messages.read_rows(body, SIZES)
    except DataError:
        return
    assert 0 <= part < len(SIZES)
    assert all(0 <= row < SIZES[part] for row in rows.tolist())


def test_the_changed_rows_among_those_asked_for_are_answered():
    server = RowServer(HeldRows(None))
    session = server.begin(Greeting())
    open_tables(server, session)
    update(server, session, 1, seed=5)
    saving, copying = (server.begin(Greeting(role=role)) for role in (SessionRole.SAVES, SessionRole.COPIES))
    for p, size in enumerate(SIZES.tolist()):
        rows = np.arange(0, size, 2)
        own, slots = int(DIMS[p]), SLOTS[p]
        body = body_of(ask(server, saving, Kind.READ_STATE, messages.write_counts([p, 0, size])).body)
        changed = messages.read_part(body, own, slots)
        found = messages.read_part(body_of(ask(server, copying, Kind.READ_ROWS, messages.write_rows(p, rows)).body), own, slots)  # fmt: skip
        kept = np.isin(changed.rows, rows)
        assert found.rows.tolist() == changed.rows[kept].tolist()
        assert found.weights.tobytes() == changed.weights[kept].tobytes()
        assert found.slots.tobytes() == changed.slots[kept].tobytes()


def test_the_changed_rows_of_a_spread_are_answered():
    server = RowServer(HeldRows(None))
    session = server.begin(Greeting())
    open_tables(server, session)
    update(server, session, 1, seed=5)
    copying = server.begin(Greeting(role=SessionRole.COPIES))
    for p, size in enumerate(SIZES.tolist()):
        own, slots = int(DIMS[p]), SLOTS[p]
        for spread in (RowSpread(0, size), RowSpread(1, size, 2, 0), RowSpread(0, size, 3, 2)):
            body = ask(server, copying, Kind.READ_SPREAD, messages.write_spread(p, spread)).body
            found = messages.read_part(body_of(body), own, slots)
            every = ask(server, copying, Kind.READ_ROWS, messages.write_rows(p, np.array(spread.rows, np.int64))).body
            assert body_of(body) == body_of(every)
            assert set(found.rows.tolist()) <= set(spread.rows)


def test_another_attempt_copies_no_rows():
    server = RowServer(HeldRows(None))
    session = server.begin(Greeting(attempt=5))
    open_tables(server, session)
    for attempt in (4, 6):
        with pytest.raises(AttemptOver, match="newest attempt"):
            server.begin(Greeting(attempt=attempt, role=SessionRole.COPIES))
    copying = [server.begin(Greeting(attempt=5, role=SessionRole.COPIES)) for _ in range(2)]
    for one in copying:
        ask(server, one, Kind.READ_HELD, [])
    server.begin(Greeting(attempt=6))
    with pytest.raises(AttemptOver):
        ask(server, copying[0], Kind.READ_HELD, [])
