"""S3 through a proxy that injects faults, the number of requests, and what a process may not do."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.fault_proxy import Action, Fault, Proxy, proxied
from tests.support.s3_server import S3Server
from transforms.errors import DataError, StorageError
from warehouse import Storage
from warehouse.storage import objects
from warehouse.tables.parquet import read_columns, read_fragments

PUT, GET, HEAD = r"^PUT /[^?]*/x", r"^GET /[^?]*/x", r"^HEAD "


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with proxied(s3_server.address, keeps_host=True) as proxy:
        yield proxy


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.bucket()


@pytest.fixture
def plain(s3_server: S3Server, bucket: str) -> Storage:
    return Storage(s3_server.home(bucket))


@pytest.fixture
def through(proxy: Proxy, bucket: str) -> Storage:
    return Storage(S3Server(proxy.address).home(bucket, retry_limit_seconds=20))


@pytest.mark.medium
@pytest.mark.parametrize("action", [500, 503, "refuse", "lose"])
def test_a_write_is_repeated_and_wins_once(through: Storage, plain: Storage, proxy: Proxy, action: Action) -> None:
    proxy.faults[:] = [Fault(PUT, action)]
    assert through.create("x", b"mine")
    assert proxy.count(PUT) == 2
    assert plain.read_bytes("x") == b"mine"
    proxy.faults[:] = [Fault(PUT, action)]
    assert through.write_atomic("x", b"again") == 5
    assert plain.read_bytes("x") == b"again"
    assert not through.create("x", b"late")


def test_a_repeated_write_never_takes_the_place_of_another_writers(
    through: Storage, plain: Storage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.write_atomic("x", b"first")
    files, _, _ = through._resolve("x")
    find, theirs = files._find, [b"theirs"]  # type: ignore[attr-defined]

    def found_before(path: str) -> object:
        known = find(path)
        if theirs:
            plain.write_atomic("x", theirs.pop())  # after the look-up, before the upload
        return known

    monkeypatch.setattr(files, "_find", found_before)
    proxy.faults[:] = [Fault(PUT, "refuse")]
    assert through.write_atomic("x", b"ours") == 4
    assert plain.read_bytes("x") == b"ours"
    assert proxy.count(PUT) == 3  # reset, refused since another version is current, and accepted


def test_bytes_that_change_on_the_way_up_are_refused(through: Storage, plain: Storage, proxy: Proxy) -> None:
    proxy.faults[:] = [Fault(PUT, "flip", range(1, 100))]
    with pytest.raises(StorageError):
        through.write_atomic("x", b"content" * 100)
    assert not plain.exists("x")


@pytest.mark.parametrize("action", [500, 503, "refuse", "cut"])
def test_a_read_is_repeated(through: Storage, plain: Storage, proxy: Proxy, action: Action) -> None:
    content = bytes(range(251)) * 4000
    plain.write_atomic("x", content)
    proxy.faults[:] = [Fault(GET, action)]
    assert through.read_bytes("x") == content
    proxy.faults[:] = [Fault(GET, action)]
    with through.open_input("x") as file:
        assert file.read_at(1000, 500_000) == content[500_000:501_000]


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(plain: Storage) -> None:
    plain.write_atomic("x", b"1" * 1_000_000)
    with plain.open_input("x") as file:
        assert file.read_at(3, 0) == b"111"
        plain.write_atomic("x", b"2" * 1_000_000)
        with pytest.raises(StorageError):
            file.read_at(3, 900_000)


def test_columns_are_requested_at_the_same_time(through: Storage, plain: Storage, proxy: Proxy) -> None:
    table = pa.table({f"c{index}": [f"{index}-{row}" * 20 for row in range(20_000)] for index in range(12)}
                     | {"tags": [["a", str(row)] for row in range(20_000)]})  # fmt: skip
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=5_000, compression="none", use_dictionary=False)
    plain.write_atomic("x", content.getvalue())
    (fragment,) = read_fragments(plain, f"{plain.root}/x", 1_000_000)
    expected = table.select(["c1", "tags", "c9"])
    proxy.requests.clear()
    found = read_columns(through, fragment, ["c1", "tags", "c9"], coded=["c1", "c9"])
    assert found.column("tags").combine_chunks() == expected.column("tags").combine_chunks()
    assert found.column("c9").to_pylist() == expected.column("c9").to_pylist()
    # The footer in two, and each of three columns in four row groups once.
    assert proxy.count(GET) <= 14


def test_what_is_not_there_and_what_is_not_allowed(
    plain: Storage, s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="no such bucket"):
        Storage(s3_server.home(f"no-{bucket}")).list("")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    objects._shared.cache_clear()
    try:
        other = Storage(s3_server.home(bucket))
        for use in (lambda: other.exists("x"), lambda: other.list(""), lambda: other.write_atomic("x", b"1")):
            with pytest.raises(StorageError, match="credentials") as caught:
                use()
            assert "AWS_ACCESS_KEY_ID" in caught.value.next_step
    finally:
        objects._shared.cache_clear()


def test_a_fork_that_would_wait_for_ever_is_an_error(plain: Storage) -> None:
    plain.write_atomic("x", b"1")
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            plain.exists("x")
        except StorageError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_without_the_package_the_extra_is_named(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    objects._shared.cache_clear()
    for module in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, module, None)
    for path, extra in (("s3://bucket/x", "s3"), ("az://container/x", "azure")):
        with pytest.raises(StorageError, match="obstore") as caught:
            Storage(str(tmp_path)).exists(path)
        assert f"headrace[{extra}]" in caught.value.next_step


def test_azure_is_read_only(tmp_path: object) -> None:
    storage = Storage(str(tmp_path))
    with pytest.raises(StorageError, match="read-only"):
        storage.write_atomic("az://container/x", b"1")
    with pytest.raises(DataError, match="must name an object"):
        storage.read_bytes("az://container")
