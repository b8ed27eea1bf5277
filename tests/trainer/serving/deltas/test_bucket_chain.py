"""A chain in a bucket is the chain of a folder: the same links, applied to the same weights, by one of several exporters."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.gcs_server import GcsServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.serving.deltas.histories import History, history, run_files, served_arrays, wanted_arrays
from trainer.checkpoints.local_run import LocalRun
from trainer.errors import LinkRefused, LinkTaken, TornCheckpoint
from trainer.serving.apply_chain import apply_chain, follow_chain
from trainer.serving.deltas import bucket_chain, chain_files, export_links
from trainer.serving.deltas.chain_files import link_places, open_chain, read_chain, state_folder
from trainer.serving.deltas.commit_exporter import STAGING, exporting
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.deltas.link_manifest import MANIFEST
from trainer.serving.deltas.served_rows import open_served
from trainer.serving.deltas.verify_chain import LinkCheck, verify_chain
from transforms.errors import Busy, NotFound
from warehouse import Storage

pytestmark = pytest.mark.medium
COMMITS = history(90, 4, rows=60)


@pytest.fixture
def chain(gcs_server: GcsServer) -> str:
    return gcs_server.home(gcs_server.bucket(), "weights/ctr")


def plain(chain: str) -> str:
    return Storage(chain).root


def objects(chain: str) -> dict[str, bytes]:
    """All objects of a chain by their names in it."""
    storage, start = Storage(chain), len(plain(chain)) + 1
    return {file.path[start:]: storage.read_bytes(file.path) for file in storage.list(plain(chain))}


def named_as_in_a_folder(chain: str) -> dict[str, bytes]:
    """The objects of the links and of the newest rows, by the names that they have in a folder."""
    names = {link.folder: link.manifest.name for link in read_chain(chain)}
    manifests = {f"{link.manifest.number:06d}.json": f"{link.manifest.name}/{MANIFEST}" for link in read_chain(chain)}
    rows = state_folder(read_chain(chain)[-1].hash)
    found = {}
    for name, data in objects(chain).items():
        folder, _, file = name.partition("/")
        if name in manifests:
            found[manifests[name]] = data
        elif folder == rows:
            found[name] = data
        elif folder in names:
            found[f"{names[folder]}/{file}"] = data
    return found


def folder_content(chain: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(chain)): path.read_bytes()
        for path in chain.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def run_of(folder: Path, epochs: int) -> LocalRun:
    """A run with so many commits."""
    run = folder / f"run-{epochs}"
    if not run.exists():
        for before in range(1, epochs + 1):
            COMMITS.commit(run, before)
    return run_files(run)


def write_links(folder: Path, chain: Any, *epochs: int, quantize: str = "") -> None:
    """Links of the commits after these epochs, the first one a full snapshot if the chain is empty."""
    for each in epochs:
        if link_places(open_chain(chain)):
            export_delta(run_of(folder, each), chain, quantize=quantize)
        else:
            export_full(run_of(folder, each), chain, quantize=quantize or "none")


def problems(chain: Any) -> list[LinkCheck]:
    return [one for one in verify_chain(chain) if one.problem]


def served(target: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    state = open_served(target)
    assert state is not None
    return served_arrays(state)


@pytest.mark.parametrize("quantize", ["none", "int8"])
def test_the_links_of_a_bucket_have_the_bytes_of_those_of_a_folder(chain: str, tmp_path: Path, quantize: str) -> None:  # fmt: skip
    folder = tmp_path / "chain"
    for one in (chain, folder):
        write_links(tmp_path, one, 1, 2, 3, 4, quantize=quantize)
    assert named_as_in_a_folder(chain) == folder_content(folder)
    assert problems(chain) == []
    checks = [[(one.link, one.holds, one.size_bytes) for one in verify_chain(each)] for each in (chain, folder)]
    assert checks[0] == checks[1]
    for number in range(4):
        for name, each in (("of-bucket", chain), ("of-folder", folder)):
            apply_chain(each, tmp_path / name, until=number)
        assert served(tmp_path / "of-bucket") == served(tmp_path / "of-folder")
        if quantize == "none":
            assert served(tmp_path / "of-bucket") == wanted_arrays(COMMITS.states[number])
    apply_chain(chain, tmp_path / "at-once")
    assert served(tmp_path / "at-once") == served(tmp_path / "of-folder")
    assert export_delta(run_of(tmp_path, 4), chain) is None


def test_one_link_is_named_as_in_a_folder(chain: str, tmp_path: Path) -> None:
    write_links(tmp_path, chain, 1, 2)
    link = chain.replace("/ctr?", "/ctr/{}?")
    apply_chain(link.format("000000-full"), tmp_path / "served")
    assert served(tmp_path / "served") == wanted_arrays(COMMITS.states[0])
    assert {one.link for one in verify_chain(link.format("000001-delta"))} == {"000001-delta"}
    for absent in ("000001-full", "000002-delta", "nothing"):
        with pytest.raises(NotFound, match="must hold a link"):
            apply_chain(link.format(absent), tmp_path / "other")


def test_a_chain_that_was_copied_goes_on_in_the_other_place(chain: str, tmp_path: Path) -> None:
    """From a folder to a bucket, and back."""
    folder = tmp_path / "chain"
    write_links(tmp_path, folder, 1, 2)
    for name, data in folder_content(folder).items():
        Storage(chain).write_atomic(f"{plain(chain)}/{name}", data)
    export_delta(run_of(tmp_path, 4), chain)
    assert [one.manifest.kind for one in read_chain(chain)] == ["full", "delta", "delta"]
    assert [one.name for one in link_places(open_chain(chain))] == ["000000-full", "000001-delta", "000002"]
    assert problems(chain) == []
    back = tmp_path / "back"
    for name, data in objects(chain).items():
        (back / name).parent.mkdir(parents=True, exist_ok=True)
        (back / name).write_bytes(data)
    apply_chain(back, tmp_path / "served")
    assert served(tmp_path / "served") == wanted_arrays(COMMITS.states[3])
    assert problems(back) == []
    apply_chain(back / "000002-delta", tmp_path / "served")


def test_a_folder_without_a_manifest_is_not_read_and_later_removed(chain: str, tmp_path: Path) -> None:
    """What lost its number to another link goes with the next export; what may still be completed stays."""
    write_links(tmp_path, chain, 1, 2)
    before = set(objects(chain))
    storage, digest, other = Storage(chain), "a" * 32, "b" * 32
    lost = {f"000001-{digest}/table-0000.ids", f".rows-{digest}/rows.json", f".rows-{digest}/table-0000.ids"}
    pending = {f"000002-{other}/table-0000.ids", f".rows-{other}/rows.json"}
    foreign = {"readme.txt", "0000001.json", "notes/000001.json"}
    for name in lost | pending | foreign:
        storage.write_atomic(f"{plain(chain)}/{name}", b"{}")
    assert len(read_chain(chain)) == 2
    assert problems(chain) == []
    assert export_delta(run_of(tmp_path, 2), chain) is None  # nothing new, but it cleans up
    left = set(objects(chain))
    assert lost.isdisjoint(left)
    assert pending | foreign < left
    assert before - left == {name for name in before if name.startswith(".rows-") and state_folder(read_chain(chain)[-1].hash) not in name}  # fmt: skip
    write_links(tmp_path, chain, 3, 4)
    assert pending.isdisjoint(objects(chain))
    assert foreign < set(objects(chain))
    assert problems(chain) == []


def test_an_object_that_is_there_already_is_compared_not_trusted(chain: str, tmp_path: Path) -> None:
    write_links(tmp_path, chain, 1, 2)
    whole, storage = objects(chain), Storage(chain)
    (link,) = (one for one in read_chain(chain) if one.manifest.number == 1)
    storage.delete(f"{plain(chain)}/000001.json")
    values, ids = (f"{plain(chain)}/{link.folder}/table-0000.{suffix}" for suffix in ("values", "ids"))
    data = storage.read_bytes(values)
    storage.write_atomic(values, bytes([data[0] ^ 1]) + data[1:])
    storage.write_atomic(ids, b"short")
    rows = f"{plain(chain)}/{state_folder(link.hash)}/rows.json"
    storage.write_atomic(rows, b"{}")
    export_delta(run_of(tmp_path, 2), chain)
    assert {name: data for name, data in objects(chain).items() if not name.startswith(".rows-") or name in whole} == {
        name: data for name, data in whole.items() if name in objects(chain)
    }
    assert problems(chain) == []


@pytest.mark.slow
def test_each_damaged_missing_or_longer_object_is_named(chain: str, tmp_path: Path) -> None:
    write_links(tmp_path, chain, 1, 2)
    export_delta(run_of(tmp_path, 2), chain)
    storage, links = Storage(chain), {link.folder: link for link in read_chain(chain)}
    names = {f"{link.manifest.number:06d}.json": link.manifest.name for link in links.values()}
    names |= {folder: link.manifest.name for folder, link in links.items()}
    for name, data in objects(chain).items():
        for damage in (None, data + b"x", *([data[:-1], data[:-1] + bytes([data[-1] ^ 8])] if data else [])):
            place = f"{plain(chain)}/{name}"
            if damage is None:
                storage.delete(place)
            else:
                storage.write_atomic(place, damage)
            found = problems(chain)
            if name.endswith("rows.json") and damage is None:
                assert found == []
            elif not (name.endswith(".json") and damage is None):  # a link without a manifest is not there
                first = name.split("/")[0]
                known = {names.get(first, first), first.removesuffix(".json")}
                assert {one.link for one in found} & known, (name, damage and len(damage))
            storage.write_atomic(place, data)
    assert problems(chain) == []


def test_documents_are_not_read_beyond_a_possible_size(
    chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_links(tmp_path, chain, 1, 2)
    size_bytes = len(objects(chain)["000001.json"])
    monkeypatch.setattr("trainer.serving.deltas.chain_files.MOST_DOCUMENT_BYTES", size_bytes - 1)
    with pytest.raises(TornCheckpoint, match="a possible size"):
        read_chain(chain)


def test_a_link_in_the_place_of_another_number_is_refused(chain: str, tmp_path: Path) -> None:
    write_links(tmp_path, chain, 1)
    Storage(chain).write_atomic(f"{plain(chain)}/000001.json", objects(chain)["000000.json"])
    with pytest.raises(TornCheckpoint, match="in the place of its number"):
        read_chain(chain)


class At:
    """Runs something once, when an exporter is about to create a manifest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
        inner, waiting = bucket_chain.BucketRun.create, [work]

        def create(files: Any, folder: str, name: str, data: bytes) -> bool:
            if waiting:
                waiting.pop()()
            return inner(files, folder, name, data)

        monkeypatch.setattr(bucket_chain.BucketRun, "create", create)


def test_of_two_exporters_one_gets_the_number_and_the_other_an_error(chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The second one exports other weights at the last moment, after the first has uploaded its own."""
    write_links(tmp_path, chain, 1, 2)
    first, second = run_of(tmp_path, 3), run_of(tmp_path, 4)
    At(monkeypatch, lambda: export_delta(second, chain))
    with pytest.raises(LinkTaken, match="another process") as caught:
        export_delta(first, chain)
    assert isinstance(caught.value, Busy)
    assert [one.manifest.commit.epochs for one in read_chain(chain)] == [1, 2, 4]
    assert problems(chain) == []
    with pytest.raises(LinkRefused, match="newer than the newest link"):
        export_delta(first, chain)
    own = read_chain(chain)[-1].folder
    lost = {name for name in objects(chain) if name.startswith("000002-") and not name.startswith(own)}
    assert lost
    export_full(second, chain)
    assert lost.isdisjoint(objects(chain))
    assert problems(chain) == []


def test_two_exporters_of_the_same_weights_write_the_same_link(chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    write_links(tmp_path, chain, 1, 2)
    made: list[Any] = []
    At(monkeypatch, lambda: made.append(export_delta(run_of(tmp_path, 4), chain)))
    made.append(export_delta(run_of(tmp_path, 4), chain))
    assert made[0] == made[1]
    assert len(read_chain(chain)) == 3
    assert problems(chain) == []


def test_an_exporter_whose_rows_are_gone_meanwhile_says_that_the_link_is_taken(chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Two links of another process: with the second one it removes the rows that the first exporter reads."""
    write_links(tmp_path, chain, 1)
    inner, waiting = export_links.read_state, [2, 3, 4]

    def read_state(files: Any, link: str) -> Any:
        found = inner(files, link)
        if waiting:
            epochs = list(waiting)
            waiting.clear()
            write_links(tmp_path, chain, *epochs)
        return found

    monkeypatch.setattr(export_links, "read_state", read_state)
    with pytest.raises(LinkTaken):
        export_delta(run_of(tmp_path, 2), chain)
    assert [one.manifest.commit.epochs for one in read_chain(chain)] == [1, 2, 3, 4]
    assert problems(chain) == []


def exported(run: Path, chain: Any, **options: Any) -> Any:
    return exporting(str(run), chain, holds=run, **options)


def test_each_commit_of_a_training_becomes_a_link(chain: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with exported(run, chain) as exporter:
        for epochs in (1, 2, 3):
            COMMITS.commit(run, epochs, keep=1)
            exporter.look()
            wait_for(lambda count=epochs: len(link_places(open_chain(chain))) == count)
        found = exporter.finish()
    assert (found.links, found.problem, found.place) == (3, None, plain(chain))
    assert [one.manifest.name for one in read_chain(chain)] == ["000000-full", "000001-delta", "000002-delta"]
    assert sorted(path.name for path in (run / STAGING).iterdir()) == ["lock"]
    apply_chain(chain, tmp_path / "served")
    assert served(tmp_path / "served") == wanted_arrays(COMMITS.states[2])


def wait_for(holds: Any) -> None:
    end = time.monotonic() + PATIENCE_SECS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_training_goes_on_after_links_of_another_one(chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A controller that was replaced exports for a while: each commit is in the chain once."""
    run, said = tmp_path / "run", []
    COMMITS.commit(run, 1)
    with exported(run, chain, tell=said.append) as exporter:
        wait_for(lambda: link_places(open_chain(chain)))
        COMMITS.commit(run, 2)
        export_delta(run_files(run), chain)
        exporter.look()
        COMMITS.commit(run, 3)
        At(monkeypatch, lambda: export_full(run_files(run), chain, epochs=2))  # at the last moment
        found = exporter.finish()
    assert found.problem is None
    assert said == []
    assert [one.manifest.commit.epochs for one in read_chain(chain)] == [1, 2, 2, 3]
    assert problems(chain) == []
    with exported(run, chain) as exporter:
        assert exporter.finish().links == 0


def test_exporters_at_the_same_time_write_one_chain(chain: str, tmp_path: Path) -> None:
    """Two trainings of the same commits, each of which looks again and again."""
    runs = [tmp_path / "one", tmp_path / "other"]
    with exported(runs[0], chain) as first, exported(runs[1], chain) as second:
        for epochs in (1, 2, 3, 4):
            for run in runs:
                COMMITS.commit(run, epochs)
            first.look()
            second.look()
            wait_for(
                lambda count=epochs: (
                    read_chain(chain)[-1].manifest.commit.epochs == count if link_places(open_chain(chain)) else False
                )
            )
        found = [first.finish(), second.finish()]
    assert [one.problem for one in found] == [None, None]
    links = read_chain(chain)
    assert [one.manifest.commit.epochs for one in links] == [1, 2, 3, 4]
    assert [one.newest for one in found] == [links[-1], links[-1]]
    assert 4 <= sum(one.links for one in found) <= 8  # both may have written the same link
    assert problems(chain) == []
    apply_chain(chain, tmp_path / "served")
    assert served(tmp_path / "served") == wanted_arrays(COMMITS.states[3])


def test_a_chain_that_does_not_fit_is_refused_before_training(chain: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    COMMITS.commit(run, 1)
    with exported(run, chain) as exporter:
        exporter.finish()
        with pytest.raises(Busy, match="on their way to a bucket"), exported(run, chain):
            pass
    with pytest.raises(LinkRefused, match="needs an empty chain"), exported(tmp_path / "new", chain):
        pass
    place = f"{plain(chain)}/{read_chain(chain)[0].folder}/table-0000.values"
    Storage(chain).write_atomic(place, Storage(chain).read_bytes(place)[:-1])
    with pytest.raises(TornCheckpoint, match="the size that was written"), exported(run, chain):
        pass


class Interrupted(Exception):
    pass


def test_what_ends_the_process_does_not_wait_for_uploads(chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """An upload that is slow is given up at its next piece, and the chain has no link."""
    begun, inner = threading.Event(), bucket_chain.Storage.upload

    def upload(self: Any, path: str, source: Any) -> bool:
        begun.set()
        while True:
            time.sleep(0.02)
            source.read(1)

    monkeypatch.setattr(bucket_chain.Storage, "upload", upload)
    run = tmp_path / "run"
    COMMITS.commit(run, 1)

    def interrupt() -> None:
        with exported(run, chain):
            assert begun.wait(PATIENCE_SECS)
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupt()
    assert link_places(open_chain(chain)) == ()
    monkeypatch.setattr(bucket_chain.Storage, "upload", inner)
    with exported(run, chain) as exporter:
        assert exporter.finish().links == 1
    assert problems(chain) == []


def test_a_target_follows_a_chain_in_a_bucket(chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins before there is a link; each manifest is read once."""
    read: list[str] = []
    inner = chain_files.read_link
    monkeypatch.setattr(
        chain_files, "read_link", lambda files, place: read.append(place.manifest) or inner(files, place)
    )
    steps: Iterator[int] = iter((0, 1, 2, 0, 4))

    def wait() -> None:
        epochs = next(steps, None)
        if epochs is None:
            raise Interrupted
        if epochs:
            write_links(tmp_path, chain, epochs)
            read.clear()

    found = []

    def follow() -> None:
        for applied in follow_chain(chain, tmp_path / "served", wait=wait):
            found.append(([one.manifest.name for one in applied.links], len(read)))

    with pytest.raises(Interrupted):
        follow()
    assert found == [(["000000-full"], 1), (["000001-delta"], 1), (["000002-delta"], 1)]
    assert served(tmp_path / "served") == wanted_arrays(COMMITS.states[3])


def test_memory_is_that_of_windows_not_of_the_table(gcs_server: GcsServer, tmp_path: Path) -> None:
    rows, columns = 1_200_000, 6
    arrays = dict(history(11, 1).states[0])
    arrays["embedding/rows/user"] = np.arange(rows, dtype=np.int64)
    arrays["embedding/weights/user"] = np.random.default_rng(1).normal(size=(rows, columns)).astype(np.float32)
    arrays["embedding/slots/user"] = np.zeros((rows, 0), np.float32)
    commits, chain = History((arrays,)), gcs_server.home(gcs_server.bucket(), "chain")
    commits.commit(tmp_path / "run", 1)
    tracemalloc.start()
    export_full(run_files(tmp_path / "run"), chain, window_bytes=1 << 18)
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    apply_chain(chain, tmp_path / "served", window_bytes=1 << 18)
    applied = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    values_bytes = rows * 4 * columns
    assert applied < values_bytes // 4
    assert written < 2 * values_bytes  # pieces of 8 MB of the values, the ids and the digests are sent at the same time
    state = open_served(tmp_path / "served")
    assert state is not None
    assert state.table("embedding", "user")[1].tobytes() == arrays["embedding/weights/user"].tobytes()
