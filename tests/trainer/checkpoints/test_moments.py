"""Weights and optimizer slots of one moment: the published failure is training that diverges a day after a restore."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.checkpoints.job_states import checkpoint, commit_of, find_facts, names_of
from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.commit_manifest import digest_of
from trainer.checkpoints.host_part import HostPart, Moment, PartName
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.manifest import MANIFEST
from trainer.checkpoints.part_manifest import PartManifest
from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.taken_arrays import TakenArrays
from trainer.errors import TornCheckpoint
from trainer.run.weights.saved_tables import parted_tables
from trainer.tables.batches import IdBatch
from trainer.tables.engine import TableState
from trainer.tables.optimizers import Adagrad
from trainer.tables.routes.cpu_engine import CpuEngine
from trainer.tables.spec import FeatureSpec, TableSpec
from transforms.arrays import Array

STEPS = 30
TAKEN, LATER = 10, 12


def engine() -> CpuEngine:
    table = TableSpec("user", 50, 4, optimizer=Adagrad(0.1, 0.01))
    return CpuEngine((FeatureSpec("user", table),), seed=3)


def train(trained: CpuEngine, first: int, stop: int) -> None:
    for step in range(first, stop):
        draw = np.random.default_rng(step)
        batch = IdBatch(draw.integers(0, 50, 16), np.arange(17)[None, :])
        found = trained.lookup(batch)
        trained.apply_gradients(batch, (found - draw.normal(size=found.shape)).astype(np.float32))


def arrays(trained: CpuEngine) -> dict[str, Array]:
    state = trained.state()["user"]
    return {"rows": state.rows.copy(), "weights": state.weights.copy(), "slots": state.slots.copy()}


def restored(rows: Array, weights: Array, slots: Array) -> CpuEngine:
    found = engine()
    found.load_state({"user": TableState(rows, weights, slots)})
    return found


@pytest.fixture(scope="module")
def states() -> dict[int, dict[str, Array]]:
    """The uninterrupted training, at some steps."""
    trained, found = engine(), {}
    for first, stop in ((0, TAKEN), (TAKEN, LATER), (LATER, STEPS)):
        train(trained, first, stop)
        found[stop] = arrays(trained)
    return found


def part_of(step: int) -> HostPart:
    return HostPart(1, 0, 0, 1, next_unit=100, step=step, plan="plan-1")


def named(found: dict[str, Array], *columns: str) -> dict[str, Array]:
    return {f"embedding/{column}/user": found[column] for column in columns}


def test_weights_and_slots_of_different_moments_are_refused(
    tmp_path: Path, states: dict[int, dict[str, Array]]
) -> None:
    """Refused when they are written, and when a part of another writer is published."""
    mixed = [
        TakenArrays(Moment(1, TAKEN), named(states[TAKEN], "rows", "weights")),
        TakenArrays(Moment(1, LATER), named(states[LATER], "slots")),
    ]
    with pytest.raises(TornCheckpoint, match="its attempt and step, got arrays of different steps") as caught:
        write_part(tmp_path, part_of(TAKEN), mixed)
    assert "embedding/slots/user" in caught.value.where
    assert (caught.value.value, caught.value.allowed) == (f"attempt 1, step {LATER}", f"attempt 1, step {TAKEN}")
    assert not list(tmp_path.rglob("*.npy"))
    # The same as another release would write it, with digests that verify.
    name = PartName.parse(
        write_part(tmp_path, part_of(TAKEN), [dataclasses.replace(one, moment=Moment(1, TAKEN)) for one in mixed]), ""
    )
    files = LocalRun(tmp_path / "checkpoints")
    manifest = PartManifest.from_bytes(files.read(f"{name.folder}/{MANIFEST}"), "")
    for moment in (Moment(1, LATER), Moment(2, TAKEN)):
        last = dataclasses.replace(manifest.arrays[-1], moment=moment)
        forged = dataclasses.replace(manifest, arrays=(*manifest.arrays[:-1], last)).to_bytes()
        files.put(f"{name.folder}/{MANIFEST}", forged)
        part = str(dataclasses.replace(name, sha256=digest_of(forged)))
        with pytest.raises(TornCheckpoint, match="its attempt and step"):
            publish(tmp_path, commit_of(checkpoint(1), 1), names_of(1), {"host-a": part}, find_facts)
    assert files.folders("") == ["parts"]


def test_training_from_weights_and_slots_of_different_moments_differs(states: dict[int, dict[str, Array]]) -> None:
    """The failure that is refused: it does not raise anything, it only trains other weights."""
    mixed = restored(states[TAKEN]["rows"], states[TAKEN]["weights"], states[TAKEN]["slots"])
    older = dict(zip(states[TAKEN]["rows"].tolist(), range(len(states[TAKEN]["rows"])), strict=True))
    later = states[LATER]
    slots = states[TAKEN]["slots"].copy()
    for row, values in zip(later["rows"].tolist(), later["slots"], strict=True):
        if row in older:
            slots[older[row]] = values
    mixed = restored(states[TAKEN]["rows"], states[TAKEN]["weights"], slots)
    train(mixed, TAKEN, STEPS)
    assert not np.array_equal(arrays(mixed)["weights"], states[STEPS]["weights"])


def test_training_from_a_part_that_was_written_while_training_went_on_is_bit_identical(
    tmp_path: Path, states: dict[int, dict[str, Array]]
) -> None:
    trained = engine()
    train(trained, 0, TAKEN)
    (together,) = parted_tables(lambda table: ("embedding", table), trained, most_bytes=1 << 20)

    def during() -> object:
        train(trained, TAKEN, LATER)  # before the first row is captured
        yield from together.parts

    taken = TakenArrays(Moment(1, TAKEN), parted=[PartedArrays(together.kinds, during())])  # type: ignore[arg-type]
    part = write_part(tmp_path, part_of(TAKEN), [taken])
    publish(tmp_path, commit_of(checkpoint(1), 1), names_of(1), {"host-a": part}, find_facts)
    found = read_epoch(tmp_path, 1).arrays
    again = restored(*(found[f"embedding/{column}/user"] for column in ("rows", "weights", "slots")))
    train(again, TAKEN, STEPS)
    train(trained, LATER, STEPS)
    for name, expected in states[STEPS].items():
        assert arrays(again)[name].tobytes() == arrays(trained)[name].tobytes() == expected.tobytes()
