"""Documents with other bytes or values than were written, for tests of what reads them."""

from __future__ import annotations

from hypothesis import strategies as st

#: Any JSON value.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def changed_bytes(data: st.DataObject, whole: bytes) -> bytes:
    """A document after one to four changes of a byte or cuts."""
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        if data.draw(st.booleans()):
            changed[at] = data.draw(st.integers(0, 255))
        else:
            del changed[at : at + data.draw(st.integers(1, 20))]
    return bytes(changed)
