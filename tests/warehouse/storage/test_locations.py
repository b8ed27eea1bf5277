from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warehouse import Storage
from warehouse.storage.locations import GcsLocation, GcsSettings, at_emulator, parse_gcs
from warehouse.storage.object_reader import WINDOW_BYTES, ObjectReader

_SETTINGS = st.builds(
    GcsSettings,
    endpoint=st.sampled_from(["", "localhost:4443", "[::1]:80", "storage-x.p.googleapis.com"]),
    scheme=st.sampled_from(["http", "https"]),
    anonymous=st.booleans(),
    project=st.sampled_from(["", "a-project", "example.com:p"]),
    retry_limit_secs=st.sampled_from([120.0, 0.5, 3600.0]),
)


@given(_SETTINGS, st.sampled_from(["", "a", "a/b c/ü"]))
def test_a_home_carries_its_settings(settings: GcsSettings, name: str) -> None:
    location = GcsLocation("bucket", name, settings)
    assert parse_gcs(location.uri) == location
    storage = Storage(location.uri)
    assert storage.home == location.uri
    assert storage.root == f"gs://bucket/{name}".rstrip("/")
    assert Storage(storage.home).home == storage.home
    assert storage.absolute(storage.home) == storage.root


def test_an_emulator_serves_a_home_that_names_no_endpoint() -> None:
    assert at_emulator("gs://b/h", "") == "gs://b/h"
    for host in ("http://localhost:4443", "localhost:4443/"):
        assert at_emulator("gs://b/h", host) == "gs://anonymous@b/h?endpoint_override=localhost:4443&scheme=http"
    assert at_emulator("gs://b/h?endpoint_override=there:1", "http://here:2") == "gs://b/h?endpoint_override=there:1"


def test_a_public_bucket_keeps_its_anonymous_login_beside_a_local_home(tmp_path: object) -> None:
    storage = Storage(str(tmp_path))
    assert storage.absolute("gs://anonymous@public/log/") == "gs://anonymous@public/log"
    assert storage.absolute("gs://mine/log/") == "gs://mine/log"
    assert Storage("gs://anonymous@b").absolute("gs://anonymous@public/log") == "gs://public/log"


@given(
    st.integers(0, 3 * WINDOW_BYTES),
    st.lists(st.tuples(st.integers(0, 3 * WINDOW_BYTES), st.integers(0, 2 * WINDOW_BYTES)), max_size=10),
)
def test_ranges_are_read_as_from_memory(size_bytes: int, ranges: list[tuple[int, int]]) -> None:
    content = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        assert 0 <= start < end <= size_bytes
        fetched.append((start, end))
        return content[start:end]

    reader = ObjectReader(fetch, size_bytes)
    for start, length in ranges:
        reader.seek(start)
        assert reader.read(length) == content[start : start + length]
        assert reader.tell() >= min(start, size_bytes)
    assert len(fetched) <= len(ranges)
    if size_bytes <= WINDOW_BYTES:
        assert len(fetched) <= 1


@given(st.lists(st.tuples(st.integers(-5, 3 * WINDOW_BYTES), st.integers(-5, 3 * WINDOW_BYTES)), max_size=6), st.data())
def test_ranges_that_are_held_need_no_further_request(ranges: list[tuple[int, int]], data: st.DataObject) -> None:
    content = (bytes(range(251)) * (3 * WINDOW_BYTES // 251 + 1))[: 3 * WINDOW_BYTES]
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        fetched.append((start, end))
        return content[start:end]

    reader = ObjectReader(fetch, len(content))
    reader.hold(ranges, lambda spans: [content[start:end] for start, end in spans])
    for start, end in ranges:
        if 0 <= start < end <= len(content):
            first = data.draw(st.integers(start, end - 1))
            reader.seek(first)
            assert reader.read(end - first) == content[first:end]
    assert not fetched
    reader.seek(0)
    assert reader.read() == content
