from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.run.reading.unit_requests import UnitRequest
from transforms.errors import DataError

REQUEST = UnitRequest(7, 2, "a" * 64, "date=2026-01-01/hour=03#0", 100, 50)
counts = st.integers(0, 2**62)


@given(counts, counts, counts, counts, st.text(min_size=1, max_size=50))
def test_a_ticket_holds_the_request(number, attempt, first, rows, fragment):
    request = UnitRequest(number, attempt, "0f" * 32, fragment, first, rows)
    assert UnitRequest.from_bytes(request.to_bytes()) == request


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
    content = bytearray(REQUEST.to_bytes())
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
