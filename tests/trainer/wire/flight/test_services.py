from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ConfigError, NonFiniteLoss
from trainer.wire.flight.addresses import Address, check_token
from trainer.wire.flight.error_documents import RemoteError, error_document, from_bytes, to_bytes
from transforms.errors import DataError


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "example.org", "::"])
def test_off_loopback_a_service_needs_a_token(host):
    with pytest.raises(ConfigError, match="off loopback must have a token"):
        check_token(Address(host, 0), "")


@pytest.mark.parametrize("text", ["localhost:1", "127.0.0.1:65535", "[::1]:0", "10.0.0.1:80"])
def test_addresses_are_read_and_written(text):
    address = Address.parse(text)
    assert str(address) == text
    assert address.is_loopback == (not text.startswith("10."))


@pytest.mark.parametrize("text", ["", "x", ":1", "host:", "host:-1", "host:65536", "host:١", "host:1x"])
def test_other_addresses_are_refused(text):
    with pytest.raises(ConfigError, match="host:port"):
        Address.parse(text)


class Unprintable:
    def __repr__(self):
        raise ValueError("no repr")


def test_any_value_of_an_error_is_sent():
    for value in (Unprintable(), "x" * 10_000, b"\xff", None):
        found = from_bytes(to_bytes(DataError("a thing must be right", value=value)), "reader")
        assert (found.what, found.kinds[0]) == ("a thing must be right", "DataError")
        assert found.value is None or len(str(found.value)) <= 2_000


@given(st.binary(max_size=200))
def test_other_bytes_are_no_error_document(content):
    with pytest.raises(DataError, match="must send its errors as documents"):
        from_bytes(content, "reader")


@given(st.data())
def test_mutated_error_documents_are_refused_or_errors(data):
    document = error_document(NonFiniteLoss("training diverged", where="step 3"))
    name = data.draw(st.sampled_from(sorted(document)))
    document[name] = data.draw(
        st.one_of(st.none(), st.integers(), st.lists(st.text()), st.dictionaries(st.text(), st.text()))
    )
    try:
        found = from_bytes(json.dumps(document).encode(), "reader")
    except DataError:
        return
    assert isinstance(found, RemoteError)
