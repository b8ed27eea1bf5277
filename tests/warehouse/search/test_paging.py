from __future__ import annotations

from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.support.examples import scaled
from transforms.errors import InputError
from warehouse.search.paging import PageKey

_FINGERPRINTS = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(st.integers(0, 10**17) | st.floats(0, 1e18), _FINGERPRINTS)
@settings(max_examples=scaled(300))
def test_a_key_that_is_written_and_read_is_the_same(value: float, fingerprint: str) -> None:
    key = PageKey(value, fingerprint)
    assert PageKey.parse(key.text) == key
    assert type(PageKey.parse(key.text).value) is type(value)


@given(st.text(max_size=30) | st.text("0123456789.e+-~abcdef", max_size=40))
@settings(max_examples=scaled(500))
def test_any_text_is_a_key_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        key = PageKey.parse(text)
        assert PageKey.parse(key.text) == key


@pytest.mark.parametrize(
    "text",
    ["", "5", "~ab", "5~", "5~xyz", "nan~ab", "1e999~ab", "5~ab~", "5~" + "a" * 65, "1.2.3~ab", "9" * 19 + "~ab"],
)
def test_refusals(text: str) -> None:
    with pytest.raises(InputError, match="must be the key of a page"):
        PageKey.parse(text)
