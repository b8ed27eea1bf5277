"""Part and commit manifests that are damaged, and those with valid digests that this release does not write."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.checkpoints.job_states import (
    checkpoint,
    commit_of,
    cut,
    facts,
    find_facts,
    names_of,
    publish_all,
    write_parts,
)
from tests.trainer.checkpoints.test_manifest import every_change, signed
from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.commit_manifest import COMMIT_FORMAT, CommitFacts, CommitManifest, digest_of
from trainer.checkpoints.host_part import HostPart, PartName
from trainer.checkpoints.manifest import MANIFEST, canonical_json
from trainer.checkpoints.part_manifest import PART_FORMAT, PartManifest
from trainer.checkpoints.publish import publish
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.run.weights.saved_run import saved_run
from transforms.derived_documents import document_of
from transforms.errors import HeadraceError

SEED = 20261123
TOKENS = (
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"{}",
    b"[]",
    b'""',
    b"18446744073709551616",
    b'"sha256": ',
    b"\xff",
    b"[" * 300,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("run")
    publish_all(run_dir, checkpoint(1), 2, 1)
    return run_dir


def commit_place(run: Path) -> Path:
    return run / "checkpoints" / "epoch-000001" / MANIFEST


def part_place(run: Path) -> Path:
    return run / "checkpoints" / "parts" / "attempt-000001" / "host-0" / MANIFEST


def body(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    del found["sha256"]
    assert signed(found) == data
    return found


def test_manifests_round_trip(run: Path) -> None:
    for cls, place in ((PartManifest, part_place(run)), (CommitManifest, commit_place(run))):
        data = place.read_bytes()
        assert cls.from_bytes(data, MANIFEST).to_bytes() == data  # type: ignore[attr-defined]
    part, _ = cut(checkpoint(1), 1, 2, 1)
    document = json.loads(canonical_json(document_of(part)))
    assert OPEN.read(HostPart, DocumentField(document, "part")) == part


def test_mutated_bytes_of_manifests_are_torn_or_unchanged(run: Path) -> None:
    random, torn = Random(SEED), 0
    for cls, place in ((PartManifest, part_place(run)), (CommitManifest, commit_place(run))):
        data = place.read_bytes()
        for _ in range(scaled(1500)):
            other = mutated(data, random, TOKENS)
            try:
                cls.from_bytes(other, MANIFEST)  # type: ignore[attr-defined]
            except TornCheckpoint:
                torn += 1
            else:
                assert other == data
    assert torn > scaled(2500)


def test_part_manifests_of_other_values_are_torn_or_of_the_same_kind(run: Path) -> None:
    torn = made = 0
    for other in every_change(body(part_place(run).read_bytes())):
        made += 1
        try:
            found = PartManifest.from_bytes(signed(other), MANIFEST)
        except (TornCheckpoint, OtherFormat):
            torn += 1
        else:
            assert PartManifest.from_bytes(found.to_bytes(), MANIFEST) == found
    assert torn > 0.7 * made > 700


@pytest.mark.medium
def test_commits_of_other_values_are_torn_or_read(run: Path) -> None:
    """The whole reading, with the parts; what is left are other values of the same kind."""
    place = commit_place(run)
    data = place.read_bytes()
    torn = made = 0
    try:
        for k, other in enumerate(every_change(body(data))):
            if k % 7:
                continue
            made += 1
            place.write_bytes(signed(other))
            try:
                saved_run(read_epoch(run, 1))
            except (TornCheckpoint, OtherFormat):
                torn += 1
    finally:
        place.write_bytes(data)
    assert torn > 0.6 * made > 100


def test_parts_of_other_values_are_not_published_or_read_as_one_error(tmp_path: Path) -> None:
    """A host of another release wrote the part: whatever it says, publishing and reading give one error or a commit."""
    parts = write_parts(tmp_path, checkpoint(1), 2, 1)
    place = part_place(tmp_path)
    changes = list(every_change(body(place.read_bytes())))
    random, refused = Random(SEED), 0
    chosen = random.sample(changes, min(len(changes), scaled(250)))
    for other in chosen:
        data = signed(other)
        place.write_bytes(data)
        name = PartName(1, 0, digest_of(data))
        try:
            published = Path(publish(tmp_path, commit_of(checkpoint(1), 1), names_of(2),
                                     {**parts, "host-a": str(name)}, find_facts))  # fmt: skip
        except HeadraceError:
            refused += 1
            continue
        try:
            saved_run(read_epoch(tmp_path, 1))
        except (TornCheckpoint, OtherFormat):
            refused += 1
        (published / MANIFEST).unlink()
        published.rmdir()
    assert refused > 0.6 * len(chosen)


def test_facts_of_other_values_are_torn_or_of_the_same_kind() -> None:
    torn = 0
    for other in every_change(json.loads(canonical_json(document_of(facts())))):
        try:
            OPEN.read(CommitFacts, DocumentField(other, "facts"))
        except TornCheckpoint:
            torn += 1
    assert torn > 50


@pytest.mark.parametrize("text", ["", "@", "attempt-000001/host-0", "attempt-1/host-0@" + "0" * 64,
                                  "attempt-000001/host-00@" + "0" * 64, "../attempt-000001/host-0@" + "0" * 64,
                                  "attempt-000001/host-0@" + "0" * 63, "attempt-٠٠٠٠٠١/host-0@" + "0" * 64,
                                  "attempt-000001/host-0@" + "0" * 64 + "\n"])  # fmt: skip
def test_what_is_no_name_of_a_part_is_torn(text: str) -> None:
    with pytest.raises(TornCheckpoint, match="its folder and its digest"):
        PartName.parse(text, "here")


@pytest.mark.parametrize("form", [PART_FORMAT, COMMIT_FORMAT])
def test_another_version_is_refused_and_not_skipped(tmp_path: Path, form: str) -> None:
    publish_all(tmp_path, checkpoint(1), 1, 1)
    place = part_place(tmp_path) if form == PART_FORMAT else commit_place(tmp_path)
    data = signed({**body(place.read_bytes()), "format": form.replace("/1", "/9")})
    commit = commit_place(tmp_path)
    if form == PART_FORMAT:
        changed = body(commit.read_bytes())
        before = hashlib.sha256(place.read_bytes()).hexdigest()
        changed["parts"] = [text.replace(before, digest_of(data)) for text in changed["parts"]]
        commit.write_bytes(signed(changed))
    place.write_bytes(data)
    with pytest.raises(OtherFormat, match="must have the format"):
        read_epoch(tmp_path, 1)
