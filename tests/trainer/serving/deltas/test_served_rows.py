"""A chain applied to a folder of rows: twice, out of order, of another chain, damaged."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.checkpoints.test_manifest import every_change, signed
from tests.trainer.serving.deltas.histories import content, history, run_files, served_arrays, wanted_arrays
from trainer.errors import LinkRefused, OtherFormat, TornCheckpoint
from trainer.run.progress.lock import run_lock
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.deltas.link_manifest import MANIFEST
from trainer.serving.deltas.served_rows import SERVED, open_served
from transforms.errors import Busy, InputError, NotFound

COMMITS = history(20, 4)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full snapshot and three deltas."""
    folder = tmp_path_factory.mktemp("chain")
    for epochs in range(1, 5):
        COMMITS.commit(folder / "run", epochs, keep=1)
        (export_full if epochs == 1 else export_delta)(run_files(folder / "run"), folder / "chain")
    return folder / "chain"


def link(chain: Path, number: int) -> Path:
    (found,) = chain.glob(f"{number:06d}-*")
    return found


def assert_at(target: Path, number: int) -> None:
    state = open_served(target)
    assert state is not None
    assert state.position.number == number
    assert served_arrays(state) == wanted_arrays(COMMITS.states[number])
    assert sorted(path.name for path in target.iterdir()) == ["lock", state.folder.name, SERVED]


def test_a_link_that_is_applied_twice_changes_nothing(chain, tmp_path):
    apply_chain(chain, tmp_path / "target", until=2)
    before = content(tmp_path / "target")
    for again in (link(chain, 2), chain):
        assert apply_chain(again, tmp_path / "target", until=2).links == ()
        assert content(tmp_path / "target") == before
    assert_at(tmp_path / "target", 2)


def test_links_out_of_order_are_refused_and_change_nothing(chain, tmp_path):
    apply_chain(chain, tmp_path / "target", until=1)
    before = content(tmp_path / "target")
    for number, rule in ((0, "newer than the state"), (3, "got a gap")):
        with pytest.raises(LinkRefused, match=rule):
            apply_chain(link(chain, number), tmp_path / "target")
        assert content(tmp_path / "target") == before
    for number in (2, 3):
        apply_chain(link(chain, number), tmp_path / "target")
        assert_at(tmp_path / "target", number)


def test_links_of_another_chain_are_refused(chain, tmp_path):
    other = history(21, 2)
    for epochs in (1, 2):
        other.commit(tmp_path / "run", epochs)
        (export_full if epochs == 1 else export_delta)(run_files(tmp_path / "run"), tmp_path / "other")
    apply_chain(chain, tmp_path / "target", until=0)
    before = content(tmp_path / "target")
    for found in (tmp_path / "other", link(tmp_path / "other", 1), link(tmp_path / "other", 0)):
        with pytest.raises(LinkRefused, match="one of another chain"):
            apply_chain(found, tmp_path / "target")
    assert content(tmp_path / "target") == before
    shutil.copytree(chain, tmp_path / "mixed")
    shutil.rmtree(link(tmp_path / "mixed", 1))
    shutil.copytree(link(tmp_path / "other", 1), tmp_path / "mixed" / "000001-delta")
    with pytest.raises(TornCheckpoint, match="must name the hash of the link before it"):
        apply_chain(tmp_path / "mixed", tmp_path / "target")
    assert content(tmp_path / "target") == before


def test_links_before_a_full_snapshot_can_be_removed(chain, tmp_path):
    run, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(chain, copy)
    COMMITS.commit(run, 4)
    full = export_full(run_files(run), copy)
    assert (full.manifest.number, full.manifest.kind) == (4, "full")
    for number in range(4):
        apply_chain(copy, tmp_path / f"at-{number}", until=number)
    for number in range(4):
        shutil.rmtree(link(copy, number))
    for name in ("at-0", "at-3", "new"):
        apply_chain(copy, tmp_path / name)
        state = open_served(tmp_path / name)
        assert served_arrays(state) == wanted_arrays(COMMITS.states[3])
    assert export_delta(run_files(run), copy) is None


def test_a_new_state_of_deltas_alone_is_refused_and_leaves_nothing(chain, tmp_path):
    with pytest.raises(LinkRefused, match="must begin with a full snapshot"):
        apply_chain(link(chain, 1), tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_other_folders_are_not_taken_for_a_state(chain, tmp_path):
    (tmp_path / "models" / "1").mkdir(parents=True)
    with pytest.raises(InputError, match="must be a SavedModel, a state of rows or a new folder"):
        apply_chain(chain, tmp_path / "models")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="must be a SavedModel"):
        apply_chain(chain, tmp_path / "file")
    with pytest.raises(InputError, match="needs a SavedModel"):
        apply_chain(chain, tmp_path / "target", output=tmp_path / "new")
    with pytest.raises(NotFound, match="must hold a link"):
        apply_chain(tmp_path / "models", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_one_process_at_a_time_changes_a_state_or_a_chain(chain, tmp_path):
    apply_chain(chain, tmp_path / "target", until=0)
    with run_lock(tmp_path / "target"), pytest.raises(Busy, match="state folder must not be in use"):
        apply_chain(chain, tmp_path / "target")
    COMMITS.commit(tmp_path / "run", 4)
    with run_lock(chain), pytest.raises(Busy, match="chain folder must not be in use"):
        export_full(run_files(tmp_path / "run"), chain)


@pytest.mark.slow
def test_any_mutation_of_any_file_of_a_link_is_refused_and_changes_nothing(chain, tmp_path):
    random, copy, target = Random(3), tmp_path / "copy", tmp_path / "target"
    shutil.copytree(chain, copy)
    apply_chain(copy, target, until=1)
    before, refused = content(target), 0
    files = sorted(link(copy, 2).iterdir())
    for trial in range(scaled(400)):
        path = files[trial % len(files)]
        data = path.read_bytes()
        other = mutated(data, random)
        path.write_bytes(other)
        try:
            apply_chain(link(copy, 2), target)
        except (TornCheckpoint, LinkRefused):
            refused += 1
            assert content(target) == before
        else:
            assert other == data
            shutil.rmtree(target)
            apply_chain(chain, target, until=1)
            before = content(target)
        path.write_bytes(data)
    assert refused > scaled(300)
    assert_at(target, 1)


@pytest.mark.slow
def test_files_with_other_rows_under_valid_digests_are_refused_or_applied(chain, tmp_path):
    """An exporter with a defect: digests verify, but ids do not ascend or counts are of other rows."""
    import hashlib

    random, copy, target = Random(4), tmp_path / "copy", tmp_path / "target"
    shutil.copytree(chain, copy)
    apply_chain(copy, target, until=1)
    shutil.copytree(target, tmp_path / "kept")
    place = link(copy, 2) / MANIFEST
    manifest, refused = place.read_bytes(), 0
    for _ in range(scaled(200)):
        body = json.loads(manifest)
        del body["sha256"]
        number = random.randrange(3)
        table = body["tables"][number]
        suffix = random.choice(("ids", "removed", "values"))
        path = link(copy, 2) / f"table-{number:04d}.{suffix}"
        data = path.read_bytes()
        other = np.frombuffer(data, np.int64 if suffix != "values" else np.uint32).copy()
        if len(other):
            other[random.randrange(len(other))] = random.choice((0, 2**31, random.randrange(2**32)))
        path.write_bytes(other.tobytes())
        table["files"][suffix] = hashlib.sha256(other.tobytes()).hexdigest()
        if random.random() < 0.2:
            table["rows_after"] += random.choice((-1, 1))
        place.write_bytes(signed(body))
        try:
            apply_chain(link(copy, 2), target)
        except TornCheckpoint:
            refused += 1
            assert content(target) == content(tmp_path / "kept")
        else:
            state = open_served(target)
            assert state is not None
            served_arrays(state)
            shutil.rmtree(target)
            shutil.copytree(tmp_path / "kept", target)
        path.write_bytes(data)
    place.write_bytes(manifest)
    assert refused > scaled(50)


def test_manifests_of_other_values_are_refused_or_applied_in_little_memory(chain, tmp_path):
    copy, target = tmp_path / "copy", tmp_path / "target"
    shutil.copytree(chain, copy)
    apply_chain(copy, target, until=1)
    shutil.copytree(target, tmp_path / "kept")
    place = link(copy, 2) / MANIFEST
    body = json.loads(place.read_bytes())
    del body["sha256"]
    changes = list(every_change(body))
    chosen, refused = Random(6).sample(changes, min(len(changes), scaled(300))), 0
    tracemalloc.start()
    for other in chosen:
        place.write_bytes(signed(other))
        try:
            apply_chain(link(copy, 2), target)
        except (TornCheckpoint, OtherFormat, LinkRefused):
            refused += 1
        else:
            shutil.rmtree(target)
            shutil.copytree(tmp_path / "kept", target)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert refused > 0.6 * len(chosen)
    assert content(target) == content(tmp_path / "kept")


@pytest.mark.slow
def test_mutated_states_are_refused_or_start_again_from_a_full_snapshot(chain, tmp_path):
    random, target = Random(5), tmp_path / "target"
    apply_chain(chain, target, until=1)
    for path in [path for path in sorted(target.rglob("*")) if path.is_file() and path.name != "lock"]:
        for _ in range(scaled(20)):
            data = path.read_bytes()
            other = mutated(data, random)
            path.write_bytes(other)
            try:
                apply_chain(link(chain, 2), target)
            except (TornCheckpoint, OtherFormat):
                path.write_bytes(data)
            else:  # dense arrays of the state before are not read
                assert other == data or path.name.startswith("dense-")
                shutil.rmtree(target)
                apply_chain(chain, target, until=1)
    assert_at(target, 1)
