"""Some changed rows of a part, as a copy of tables asks for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.servers.requests import DIMS, TABLES, ask, body_of, open_tables, update
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.session_roles import SessionRole
from trainer.tables.optimizers import slot_width
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Kind
from transforms.errors import DataError

SIZES = np.array([one.vocabulary_size for one in TABLES], np.int64)
SLOTS = [slot_width(one.optimizer, one.dim) for one in TABLES]


@given(st.integers(0, len(TABLES) - 1), st.sets(st.integers(0, 8)))
def test_a_request_is_read_as_it_was_written(part, rows):
    wanted = np.array(sorted(rows), np.int64)
    found, asked = messages.read_rows(body_of(messages.write_rows(part, wanted)), SIZES)
    assert (found, asked.tolist()) == (part, sorted(rows))


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
    saving = server.begin(Greeting(role=SessionRole.SAVES))
    for p, size in enumerate(SIZES.tolist()):
        rows = np.arange(0, size, 2)
        own, slots = int(DIMS[p]), SLOTS[p]
        body = body_of(ask(server, saving, Kind.READ_STATE, messages.write_counts([p, 0, size])).body)
        changed = messages.read_part(body, own, slots)
        found = messages.read_part(body_of(ask(server, saving, Kind.READ_ROWS, messages.write_rows(p, rows)).body), own, slots)  # fmt: skip
        kept = np.isin(changed.rows, rows)
        assert found.rows.tolist() == changed.rows[kept].tolist()
        assert found.weights.tobytes() == changed.weights[kept].tobytes()
        assert found.slots.tobytes() == changed.slots[kept].tobytes()
