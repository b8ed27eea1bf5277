"""A warehouse with home and logs in a bucket: a real worker writes the bytes of a local home."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.analysis.analyze import analyze_model
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import fill, memo_files, memo_values, memos, model, open_home, write_log
from tests.support.fault_proxy import Fault, proxied
from tests.support.gcs_server import GcsServer
from tests.warehouse.scenes import evict_component
from transforms.errors import DataError, InputError, StorageError
from transforms.expressions.expression import text
from transforms.ranges import between
from warehouse import WarehouseConfig, collect_garbage, read_fragment, read_solution
from warehouse.matching.submit import submit_model
from warehouse.queue.depths import queue_depths
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution
from warehouse.storage.layout import COMPACTION
from warehouse.storage.storage import Storage
from warehouse.tables.register import register_table
from warehouse.warehouse import Warehouse


def upload(storage: Storage, folder: Path, location: str) -> None:
    """Every file of a folder, under the same relative name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.write_atomic(f"{location}/{path.relative_to(folder)}", path.read_bytes())


@pytest.fixture
def bucket(gcs_server: GcsServer, tmp_path: Path) -> str:
    """A bucket with the sample log in it."""
    bucket = gcs_server.bucket()
    upload(Storage(gcs_server.home(bucket)), write_log(tmp_path / "log"), f"gs://{bucket}/log")
    return bucket


def open_bucket(server: GcsServer, bucket: str, tmp_path: Path) -> Warehouse:
    return Warehouse.open(WarehouseConfig(server.home(bucket), catalog_url=f"sqlite:///{tmp_path}/catalog.db"))


def without_lease(path: str) -> str:
    """A memo file's path up to its fragment; what follows differs from lease to lease."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.partition('-')[0]}"


def fragments(solution: ReadSolution) -> list[SolutionFragment]:
    return [fragment for partition in solution.partitions for fragment in partition.fragments]


def work(warehouse: Warehouse) -> int:
    return run_worker(warehouse, WorkerConfig("worker"), until_idle=True).memos


@pytest.mark.slow
def test_a_home_in_a_bucket_holds_what_a_local_one_would(gcs_server: GcsServer, bucket: str, tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as local, open_bucket(gcs_server, bucket, tmp_path) as remote:
        queued = fill(local, tmp_path / "log", model())
        assert fill(remote, f"gs://{bucket}/log", model()) == queued == 12
        assert work(local) == work(remote) == 12
        assert memo_values(remote) == memo_values(local)
        written = {
            without_lease(file.path.removeprefix(f"{remote.storage.root}/")): remote.storage.read_bytes(file.path)
            for file in remote.storage.list("memos")
        }
        there = {without_lease(path): content for path, content in memo_files(tmp_path / "home").items()}
        assert len(written) == 3
        assert written == there
        solutions = read_solution(local, "ctr"), read_solution(remote, "ctr")
        for one, other in zip(*map(fragments, solutions), strict=True):
            assert other.path.startswith(f"gs://{bucket}/log/date=")
            assert read_fragment(remote.storage, solutions[1], other).equals(
                read_fragment(local.storage, solutions[0], one)
            )
        assert remote.storage.list("jobs") == ()


def test_registering_again_reads_only_what_is_new(gcs_server: GcsServer, bucket: str, tmp_path: Path) -> None:
    root = f"gs://{bucket}/log"
    with open_bucket(gcs_server, bucket, tmp_path) as warehouse:
        register_table(warehouse, "log", root)
        again = register_table(warehouse, "log", f"{root}/")
        assert (again.unchanged, again.added, again.changed, again.removed) == (3, (), (), ())
        more = write_log(tmp_path / "more", hours=5)
        upload(warehouse.storage, more / "date=2026-01-01" / "hour=04", f"{root}/date=2026-01-01/hour=04")
        found = register_table(warehouse, "log", root)
        assert (found.unchanged, len(found.added)) == (3, 1)
        with pytest.raises(DataError, match="no such folder"):
            register_table(warehouse, "other", f"gs://{bucket}/nothing")


@pytest.mark.slow
def test_memos_go_and_orphans_are_swept(gcs_server: GcsServer, bucket: str, tmp_path: Path) -> None:
    with open_bucket(gcs_server, bucket, tmp_path) as warehouse:
        fill(warehouse, f"gs://{bucket}/log", model())
        work(warehouse)
        files = [file.path for file in warehouse.storage.list("memos")]
        orphan, foreign = f"memos/log/{'0' * 16}-{COMPACTION}{'1' * 32}-{'2' * 16}.memo", "memos/log/notes.txt"
        for path in (orphan, foreign):
            warehouse.storage.write_atomic(path, b"no row names me")
        assert collect_garbage(warehouse, dry_run=False).garbage == ()
        swept = collect_garbage(warehouse, dry_run=False, leftover_secs=-60)
        assert ([one.path for one in swept.garbage], swept.foreign) == ([orphan], (foreign,))
        assert warehouse.storage.delete(foreign)
        assert [file.path for file in warehouse.storage.list("memos")] == files
        for fingerprint in {str(row["fingerprint"]) for row in memos(warehouse).values()}:
            evict_component(warehouse, fingerprint, why="a test")
        assert len(collect_garbage(warehouse, dry_run=False).garbage) == len(files)
        assert warehouse.storage.list("memos") == ()
        submit_model(warehouse, model())
        assert work(warehouse) == 12


@pytest.mark.slow
def test_a_worker_outlives_a_server_that_stumbles(gcs_server: GcsServer, bucket: str, tmp_path: Path) -> None:
    """Every tenth upload is refused, and every seventh answer lost, and nothing is computed twice."""
    with proxied(gcs_server.address) as proxy:
        refused = Fault("^POST /upload", 503, range(1, 1000, 10))
        lost = Fault("^POST /upload", "lose", range(3, 1000, 7))
        proxy.faults += [refused, lost]
        with open_bucket(GcsServer(proxy.address, gcs_server.address), bucket, tmp_path) as warehouse:
            fill(warehouse, f"gs://{bucket}/log", model())
            report = run_worker(warehouse, WorkerConfig("worker", runner_workers=1), until_idle=True)
            assert (report.memos, report.failures, report.jobs) == (12, 0, 1)
            assert proxy.count("^POST /upload") == 5, "three memo files, and again what was refused and what was lost"
            assert sum(depth.queued + depth.leased for depth in queue_depths(warehouse)) == 0
        with open_bucket(gcs_server, bucket, tmp_path) as warehouse:
            assert len(memo_values(warehouse)) == 12


def test_settings_of_another_store_than_the_homes_are_refused(
    gcs_server: GcsServer, bucket: str, tmp_path: Path
) -> None:
    with open_home(tmp_path / "home") as warehouse, pytest.raises(InputError, match="must be those of the home"):
        register_table(warehouse, "log", gcs_server.home(bucket, "log"))


def test_full_passes_run_in_a_bucket(gcs_server: GcsServer, bucket: str, tmp_path: Path) -> None:
    with open_bucket(gcs_server, bucket, tmp_path) as warehouse:
        fill(warehouse, f"gs://{bucket}/log", model())
        full = model()
        query = text("query").lower().unigrams()
        over = between("2026-01-01", "2026-01-02")
        full.input("ids", query.vocabulary_ids(over=over, top_k=10))
        (made,) = analyze_model(warehouse, full, table="log")
        assert (made.partitions, made.partitions_read) == (3, 3)
        again = model()
        again.input("ids", query.vocabulary_ids(over=over, top_k=5))
        (made,) = analyze_model(warehouse, again, table="log")
        assert (made.partitions, made.partitions_read) == (3, 0)


@pytest.mark.slow
def test_a_log_that_changes_under_a_reader_is_an_error_that_names_it(
    gcs_server: GcsServer, bucket: str, tmp_path: Path
) -> None:
    with open_bucket(gcs_server, bucket, tmp_path) as warehouse:
        fill(warehouse, f"gs://{bucket}/log", model())
        path = next(iter(warehouse.storage.list(f"gs://{bucket}/log"))).path
        with pytest.raises(StorageError, match="must be in the home"):
            warehouse.storage.delete(path)
        Storage(gcs_server.home(bucket, "log")).delete(path)
        report = run_worker(warehouse, WorkerConfig("worker", runner_workers=1), until_idle=True)
        assert report.memos == 8
        assert any(path in error for error in report.errors)
