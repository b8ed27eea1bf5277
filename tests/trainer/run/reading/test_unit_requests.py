from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.run.reading.unit_requests import MOST_CHOSEN_RANGE, UnitRequest, bits_of
from transforms.errors import DataError

REQUEST = UnitRequest(7, 2, "a" * 64, "date=2026-01-01/hour=03#0", 100, 50)
counts = st.integers(0, 2**62)


@given(counts, counts, counts, counts, st.text(min_size=1, max_size=50))
def test_a_ticket_holds_the_request(number, attempt, first, rows, fragment):
    request = UnitRequest(number, attempt, "0f" * 32, fragment, first, rows)
    assert UnitRequest.from_bytes(request.to_bytes()) == request


@given(st.lists(st.booleans(), min_size=1, max_size=200).filter(any))
def test_a_ticket_holds_the_rows_that_are_asked_for(chosen):
    bits = bits_of(np.array(chosen))
    request = replace(REQUEST, rows=len(chosen), row_bits=bits)
    again = UnitRequest.from_bytes(request.to_bytes())
    assert again == request
    assert again.most_events == sum(chosen)
    assert (bits == b"") == all(chosen)
    assert again.chosen is None if all(chosen) else again.chosen.tolist() == chosen


@pytest.mark.parametrize("seed", range(3))
def test_any_rows_of_the_longest_range_fit_in_a_ticket(seed):
    chosen = np.random.default_rng(seed).random(MOST_CHOSEN_RANGE) < 0.5
    request = replace(REQUEST, fragment="x" * 500, rows=len(chosen), row_bits=bits_of(chosen))
    assert UnitRequest.from_bytes(request.to_bytes()) == request


@pytest.mark.parametrize(
    "bits",
    [1, None, "?", "AAAA", base64.b64encode(zlib.compress(bytes(7))).decode(), base64.b64encode(zlib.compress(bytes(6) + b"\4")).decode(),
     base64.b64encode(zlib.compress(b"1" * 8)).decode(), base64.b64encode(zlib.compress(b"")).decode(),
     base64.b64encode(zlib.compress(bytes(1 << 20))).decode()],
)  # fmt: skip
def test_other_bits_are_refused(bits):
    """Of 50 rows: no text, no compressed bytes, no row, a row behind the range, too many bytes, none, far too many."""
    document = {**json.loads(REQUEST.to_bytes()), "row_bits": bits}
    with pytest.raises(DataError, match="row_bits"):
        UnitRequest.from_bytes(json.dumps(document).encode())


@pytest.mark.parametrize(
    "changes",
    [{"number": -1}, {"rows": 2**63}, {"rows": True}, {"rows": 1.0}, {"solution": "A" * 64}, {"solution": None},
     {"fragment": ""}, {"fragment": 3}, {"more": 1}],
)  # fmt: skip
def test_other_values_are_refused(changes):
    document = {**json.loads(REQUEST.to_bytes()), **changes}
    with pytest.raises(DataError):
        UnitRequest.from_bytes(json.dumps(document).encode())


@given(st.data())
def test_mutated_tickets_are_refused_or_well_formed(data):
    chosen = replace(REQUEST, row_bits=bits_of(np.arange(REQUEST.rows) % 3 == 1))
    content = bytearray(data.draw(st.sampled_from([REQUEST, chosen])).to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    try:
        found = UnitRequest.from_bytes(bytes(content))
    except DataError:
        return
    assert UnitRequest.from_bytes(found.to_bytes()) == found


def test_a_long_ticket_is_refused_before_it_is_parsed():
    with pytest.raises(DataError, match="JSON object"):
        UnitRequest.from_bytes(b'{"number": ' + b"1" * (1 << 20) + b"}")
    with pytest.raises(DataError, match="JSON object"):
        UnitRequest.from_bytes(b"[" * 10_000)
