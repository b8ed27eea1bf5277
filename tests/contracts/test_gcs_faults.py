"""Google Cloud Storage through a proxy that injects faults, and the number of requests."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.fault_proxy import Action, Fault, Proxy, proxied
from tests.support.gcs_server import GcsServer
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import start
from transforms.errors import DataError, StorageError
from warehouse import Storage, read_memo_file, write_memo_file
from warehouse.scheduling.backoff import Backoff, Retry
from warehouse.storage.gcs import GcsObjects
from warehouse.storage.gcs_client import is_transient_error, open_client
from warehouse.storage.locations import parse_gcs
from warehouse.tables.parquet import read_schema

UPLOAD, PIECE, READ, LOOK = r"^POST /upload", r"^PUT /upload", r"^GET /(storage|download).*alt=media", r"^GET .*/o/"
LARGE = bytes(range(251)) * 80_000


@pytest.fixture
def proxy(gcs_server: GcsServer) -> Iterator[Proxy]:
    with proxied(gcs_server.address) as proxy:
        yield proxy


@dataclass
class Scene:
    """Objects behind the proxy with a clock of their own; ``plain`` reaches the same bucket around the proxy."""

    proxy: Proxy
    objects: GcsObjects
    bucket: str
    plain: Storage
    through: Storage
    waits: list[float] = field(default_factory=list)

    def fault(self, pattern: str, action: Action, *which: int) -> None:
        self.proxy.requests.clear()
        self.proxy.faults[:] = [Fault(pattern, action, which or (1,))]

    def write(self, content: bytes, name: str = "x") -> int:
        return self.objects.publish(f"{self.bucket}/{name}", lambda file: file.write(content) and None)

    def create(self, content: bytes, name: str = "x") -> bool:
        return self.objects.create(f"{self.bucket}/{name}", lambda file: file.write(content) and None)


@pytest.fixture
def scene(gcs_server: GcsServer, proxy: Proxy) -> Scene:
    bucket = gcs_server.bucket()
    through = GcsServer(proxy.address).home(bucket, "", retry_limit_seconds=20)
    settings = parse_gcs(through).settings
    waits: list[float] = []
    backoff = Backoff(first_secs=1.0, most_secs=4.0, jitter=1.0, attempts=5, limit_secs=1000.0)
    retry = Retry(backoff, is_transient_error, sleep=waits.append, draw=lambda: 0.5, clock=lambda: 0.0)
    objects = GcsObjects(open_client(settings), retry)
    return Scene(proxy, objects, bucket, Storage(gcs_server.home(bucket, "")), Storage(through), waits)


@pytest.mark.parametrize("action", [429, 500, 502, 503, 504, 408, "refuse"])
def test_what_may_pass_is_tried_again_with_growing_waits(scene: Scene, action: Action) -> None:
    scene.fault(UPLOAD, action, 1, 2, 3)
    assert scene.write(b"123") == 3
    assert scene.proxy.count(UPLOAD) == 4
    assert scene.waits == [0.5, 1.0, 2.0]
    assert scene.plain.read_bytes("x") == b"123"


def test_one_that_does_not_pass_is_given_up_after_the_policys_attempts(scene: Scene) -> None:
    scene.fault(UPLOAD, 503, *range(1, 100))
    with pytest.raises(StorageError) as caught:
        scene.write(b"123")
    assert scene.proxy.count(UPLOAD) == 5
    assert scene.waits == [0.5, 1.0, 2.0, 2.0]
    assert caught.value.where == f"gs://{scene.bucket}/x"
    assert "5 attempts" in str(caught.value)
    assert caught.value.next_step
    assert not scene.plain.exists("x")


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_do_not_do_are_named_at_once(scene: Scene, status: int) -> None:
    for pattern, call in (
        (UPLOAD, lambda: scene.write(b"1")),
        (LOOK, lambda: scene.objects.read_bytes(f"{scene.bucket}/y")),
        (LOOK, lambda: scene.through.open_input(f"gs://{scene.bucket}/y")),
        (r"^DELETE", lambda: scene.objects.delete(f"{scene.bucket}/y")),
        (r"^GET .*/o\?", lambda: list(scene.objects.files(f"{scene.bucket}/y"))),
    ):
        scene.fault(pattern, status, *range(1, 100))
        with pytest.raises(StorageError) as caught:
            call()
        assert scene.proxy.count(pattern) == 1
        assert "credentials" in caught.value.what
        assert scene.bucket in caught.value.where


def test_an_upload_with_a_lost_answer_succeeds(scene: Scene) -> None:
    """Its second attempt is told that an object is there: its own."""
    scene.fault(UPLOAD, "lose")
    assert scene.create(b"mine")
    assert (scene.proxy.count(UPLOAD), scene.proxy.count(LOOK)) == (2, 1)
    assert not scene.create(b"theirs")
    scene.fault(UPLOAD, "lose", 2)  # the first one names generation 0, and is refused
    assert scene.write(b"again") == 5
    assert scene.plain.read_bytes("x") == b"again"


def test_an_upload_with_a_lost_answer_accepts_equal_bytes(scene: Scene) -> None:
    scene.plain.write_atomic(f"gs://{scene.bucket}/x", b"same")
    scene.fault(UPLOAD, "refuse")
    assert not scene.create(b"same")
    assert scene.proxy.count(UPLOAD) == 2


def test_a_write_never_replaces_what_it_did_not_see(scene: Scene) -> None:
    """Its answer is lost, another writer replaces the object, and the second attempt finds that one: it goes last."""
    scene.write(b"before")
    scene.fault(UPLOAD, 412, 2)  # as if somebody had been there between the look and the upload
    assert scene.write(b"after") == 5
    uploads = [request for request in scene.proxy.requests if "ifGenerationMatch" in request]
    generations = [request.partition("ifGenerationMatch=")[2].partition("&")[0] for request in uploads]
    assert generations[0] == "0"
    assert generations[1] == generations[2] != "0"
    assert scene.plain.read_bytes("x") == b"after"


@pytest.mark.parametrize("action", ["tear", "flip"])
def test_a_torn_upload_is_never_kept(scene: Scene, action: Action) -> None:
    scene.fault(UPLOAD, action)
    scene.write(b"0123456789" * 1000)
    assert scene.plain.read_bytes("x") == b"0123456789" * 1000
    scene.fault(UPLOAD, action, *range(1, 100))
    with pytest.raises(StorageError):
        scene.create(b"0123456789" * 1000, "y")
    assert not scene.plain.exists("y")


def test_a_large_upload_is_sent_in_chunks_and_only_lost_ones_again(scene: Scene) -> None:
    scene.fault(PIECE, 503, 2)
    assert scene.create(LARGE)
    assert scene.proxy.count(UPLOAD) == 1
    assert scene.proxy.count(PIECE) == 4
    assert scene.plain.read_bytes("x") == LARGE
    assert not scene.create(LARGE[::-1])
    scene.fault(UPLOAD, 500)
    assert scene.write(LARGE[::-1]) == len(LARGE)
    assert scene.plain.read_bytes("x") == LARGE[::-1]


def test_a_large_upload_with_a_lost_last_answer_succeeds(scene: Scene) -> None:
    """The server forgot the session that was finished: the object says by its token whose it is."""
    scene.fault(PIECE, "lose", 3)
    assert scene.create(LARGE)
    assert scene.proxy.count(UPLOAD) == 1
    assert scene.plain.read_bytes("x") == LARGE


def test_a_large_upload_with_a_lost_session_restarts(scene: Scene) -> None:
    scene.fault(PIECE, 410, 2)
    assert scene.create(LARGE)
    assert scene.proxy.count(UPLOAD) == 2
    assert scene.plain.read_bytes("x") == LARGE


_WRITE = """
import sys
from warehouse import Storage
Storage(sys.argv[1]).write_atomic("x", bytes(range(251)) * 80_000)
"""


def test_a_writer_killed_between_two_pieces_leaves_nothing(scene: Scene) -> None:
    scene.fault(PIECE, 503, *range(2, 100))  # so that it waits in the middle of its upload
    process = start(_WRITE, scene.through.home)
    deadline = time.monotonic() + PATIENCE_SECS
    while scene.proxy.count(PIECE) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert scene.proxy.count(PIECE) >= 2
    assert not scene.plain.exists("x")
    assert scene.plain.list("") == ()


@pytest.mark.parametrize("action", [429, 503, "refuse", "cut"])
def test_a_read_is_tried_again(scene: Scene, action: Action) -> None:
    scene.plain.write_atomic("x", b"0123456789" * 100_000)
    scene.fault(READ, action)
    assert scene.objects.read_bytes(f"{scene.bucket}/x") == b"0123456789" * 100_000
    assert scene.proxy.count(READ) == 2
    assert scene.waits == [0.5]


@pytest.mark.parametrize("action", [429, 503, "refuse", "cut"])
def test_random_reads_are_tried_again(scene: Scene, action: Action) -> None:
    scene.plain.write_atomic("x", LARGE)
    scene.fault(READ, action)
    with scene.objects.open_input(f"{scene.bucket}/x") as file:
        assert file.size() == len(LARGE)
        assert file.read_at(1_000_000, 5_000_000) == LARGE[5_000_000:6_000_000]
        assert scene.proxy.count(READ) == 2
        assert file.read_at(1000, 5_500_000) == LARGE[5_500_000:5_501_000]
        assert scene.proxy.count(READ) == 2, "what was fetched last is kept"
        file.seek(-10, io.SEEK_END)
        assert file.read() == LARGE[-10:]
        assert scene.proxy.count(READ) == 3
    assert scene.waits == [0.5]


def test_a_reader_keeps_to_its_generation(scene: Scene) -> None:
    scene.plain.write_atomic("x", LARGE)
    with scene.objects.open_input(f"{scene.bucket}/x") as file:
        scene.plain.write_atomic("x", LARGE[::-1])
        with pytest.raises(DataError, match="not there"):
            file.read_at(1000, 5_000_000)


def test_a_small_file_is_two_requests(scene: Scene) -> None:
    """One for its size and generation, one for its bytes, however many steps it is read in."""
    file = write_memo_file(scene.plain, "memo", {name: pa.array(range(1000)) for name in "abc"})
    scene.proxy.requests.clear()
    read = read_memo_file(scene.through, "memo", file.columns, file.checksum)
    assert len(read) == 3
    assert (scene.proxy.count(LOOK), scene.proxy.count(READ)) == (2, 1), scene.proxy.requests


def test_bytes_that_changed_on_the_way_are_read_again(scene: Scene) -> None:
    """The object's checksum is compared with what arrived."""
    scene.plain.write_atomic("x", b"0123456789")
    scene.fault(READ, "garble", 1, 2)
    assert scene.objects.read_bytes(f"{scene.bucket}/x") == b"0123456789"
    assert scene.proxy.count(READ) == 3


def test_a_delete_whose_answer_was_lost_has_deleted(scene: Scene) -> None:
    scene.write(b"1")
    scene.fault(r"^DELETE", "lose")
    assert scene.objects.delete(f"{scene.bucket}/x")
    assert scene.proxy.count(r"^DELETE") == 2
    assert not scene.objects.delete(f"{scene.bucket}/x")


def test_listing_is_tried_again(scene: Scene) -> None:
    for name in ("a", "b"):
        scene.write(b"1", name)
    scene.fault(r"^GET .*/o\?", 503, 1, 2)
    assert [file.path for file in scene.objects.files(f"{scene.bucket}/")] == [
        f"{scene.bucket}/{name}" for name in ("a", "b")
    ]
    assert scene.proxy.count(r"^GET .*/o\?") == 3


def test_a_missing_bucket_is_an_error(scene: Scene) -> None:
    nothing = Storage(scene.plain.home.replace(scene.bucket, f"no-{scene.bucket}"))
    for call in (lambda: nothing.write_atomic("x", b"1"), lambda: nothing.write_atomic("x", LARGE),
                 lambda: nothing.list("x"), lambda: nothing.folder_exists(nothing.root)):  # fmt: skip
        with pytest.raises(StorageError, match="no such bucket"):
            call()
    with pytest.raises(DataError, match="not there"):
        nothing.read_bytes("x")


def test_a_store_that_refuses_says_nothing_about_the_bytes(scene: Scene) -> None:
    """Memos are not taken for damaged, nor logs for corrupt, because a server did not answer."""
    storage = Storage(GcsServer(scene.proxy.address).home(scene.bucket, "", retry_limit_seconds=1))
    file = write_memo_file(scene.plain, "memo", {"a": pa.array(range(100_000))})
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": range(100_000)}), buffer)
    scene.plain.write_atomic("log.parquet", buffer.getvalue())
    scene.fault(READ, 503, *range(1, 100))
    with pytest.raises(StorageError, match="rejected the request"):
        read_memo_file(storage, "memo", ["a"], file.checksum)
    with pytest.raises(StorageError, match="rejected the request"):
        read_schema(storage, "log.parquet")
    scene.fault(READ, 403, *range(1, 100))
    with pytest.raises(StorageError, match="credentials"):
        read_schema(storage, "log.parquet")
