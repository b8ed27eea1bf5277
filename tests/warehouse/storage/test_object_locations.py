"""Locations in S3 and Azure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse import Storage
from warehouse.storage.object_locations import (
    S3Settings,
    home_uri,
    is_azure,
    is_s3,
    parse_object_location,
    parse_s3_home,
)

_SETTINGS = st.builds(
    S3Settings,
    endpoint=st.sampled_from(["", "localhost:9000", "[::1]:80", "minio.example.com"]),
    scheme=st.sampled_from(["http", "https"]),
    anonymous=st.booleans(),
    region=st.sampled_from(["", "eu-west-1"]),
    retry_limit_secs=st.sampled_from([120.0, 0.5, 3600.0]),
)


@given(_SETTINGS, st.sampled_from(["", "a", "a/b c/ü"]))
def test_a_home_carries_its_settings(settings: S3Settings, name: str) -> None:
    place = f"{'anonymous@' if settings.anonymous else ''}bucket"
    location = parse_object_location(f"s3://{place}/{name}")
    uri = home_uri(location, settings)
    assert parse_s3_home(uri) == (location, settings)
    storage = Storage(uri)
    assert storage.home == uri
    assert storage.root == f"s3://{place}/{name}".rstrip("/")
    assert storage.absolute(storage.home) == storage.root
    assert not storage.is_local


def test_spellings_of_one_location() -> None:
    assert parse_object_location("s3a://bucket/x").plain == "s3://bucket/x"
    assert Storage("/").absolute("s3a://bucket/log/") == "s3://bucket/log"
    there = "abfss://logs@account1.dfs.core.windows.net/a/b"
    found = parse_object_location(there)
    assert (found.container, found.account, found.name, found.plain) == ("logs", "account1", "a/b", there)
    assert Storage("/").absolute(f"{there}/") == there
    assert parse_object_location("az://logs/a").account == ""


@pytest.mark.parametrize(
    "path",
    ["s3://", "s3:///x", "s3://b", "s3://a b/x", "s3://who@bucket/x", "az://", "az://UPPER/x", "abfss://c@host/x",
     "abfss://c@account.example.org:80/x", "abfss://@account1.dfs.core.windows.net/x"],
)  # fmt: skip
def test_what_is_no_location_is_refused(path: str) -> None:
    with pytest.raises(InputError):
        parse_object_location(path)


@given(st.sampled_from(["s3://", "s3a://", "az://", "abfss://"]), st.text(max_size=40))
def test_any_text_is_a_location_or_refused(scheme: str, text: str) -> None:
    path = scheme + text
    assert is_s3(path) != is_azure(path)
    found, refused = None, path
    try:
        found = parse_object_location(path)
    except InputError as error:
        refused = str(error.value)
    assert refused == path
    assert found is None or parse_object_location(found.plain) == found
