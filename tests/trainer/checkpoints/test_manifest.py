"""Manifests, arrays and documents with valid checksums that this release does not write."""

from __future__ import annotations

import copy
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.checkpoint import checkpoints_dir, read_checkpoint, read_newest, write_checkpoint
from trainer.checkpoints.manifest import MANIFEST, READABLE, CheckpointFile, Manifest, canonical_json, parse_json
from trainer.checkpoints.npy_bytes import array_from_npy
from trainer.checkpoints.read import Checkpoint
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.model.scores import Scores
from trainer.options.document_field import DocumentField
from trainer.run.progress.epochs import DataPosition
from trainer.run.progress.identity import identity_of
from trainer.run.progress.ledger import Ledger
from trainer.run.reading.batches import Span
from trainer.run.weights.run_state import LEDGER, EpochScores
from trainer.run.weights.saved_run import saved_run
from transforms.derived_documents import document_of
from transforms.errors import InputError

SOME = Manifest(
    3, CheckpointFile(7, "ab"), (("dense/weights/000", CheckpointFile(1, "cd")), ("ledger", CheckpointFile(2, "ef")))
)
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 2**70, "text", [], {}, ["a"], {"a": 1}, [["a", "b", "c"]])


def signed(body: dict[str, Any]) -> bytes:
    """The bytes of a manifest under a digest that verifies."""
    return canonical_json({**body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()})


def body_of(manifest: Manifest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(manifest.to_bytes())
    assert signed({name: item for name, item in body.items() if name != "sha256"}) == manifest.to_bytes()
    del body["sha256"]
    return body


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (key,)
        yield from ((key, *rest) for rest in places(item))


def changed(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy of a document in which ``change(container, key)`` was applied at ``path``."""
    made = copy.deepcopy(document)
    container = made
    for key in path[:-1]:
        container = container[key]
    change(container, path[-1])
    return made


def every_change(document: Any) -> Iterator[Any]:
    """The document with each of its values taken out, and replaced by values of other kinds."""
    for path in places(document):
        yield changed(document, path, lambda container, key: container.pop(key))
        for wrong in WRONG:
            yield changed(document, path, lambda container, key, wrong=wrong: container.__setitem__(key, wrong))


def test_a_manifest_round_trips() -> None:
    assert Manifest.from_bytes(SOME.to_bytes(), MANIFEST) == SOME


def test_a_manifest_of_other_types_is_torn_or_the_same_kind_of_value() -> None:
    torn = 0
    for body in every_change(body_of(SOME)):
        try:
            found = Manifest.from_bytes(signed(body), MANIFEST)
        except (TornCheckpoint, OtherFormat):
            torn += 1
        else:
            assert body_of(found).keys() == body_of(SOME).keys()
    assert torn > 150


def test_two_arrays_of_one_name_are_torn() -> None:
    body = body_of(SOME)
    body["arrays"] = [body["arrays"][0]] * 2
    with pytest.raises(TornCheckpoint, match="distinct names"):
        Manifest.from_bytes(signed(body), MANIFEST)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"7", b"{}", b"\xff\xfe{\0}\0", b"[" * 200_000, b'{"a": NaN}',
                                  b'{"a": 1e999}', b'{"sha256": ""}', b'{"a": ' + b"9" * 5000 + b"}"])  # fmt: skip
def test_what_is_no_manifest_is_torn(data: bytes) -> None:
    with pytest.raises(TornCheckpoint):
        Manifest.from_bytes(data, MANIFEST)


@pytest.mark.parametrize(
    "data",
    [
        canonical_json({"format": "headrace.checkpoint/1", "files": {}, "arrays": {}}),
        signed({"format": "headrace.checkpoint/5", "anything": ["else"]}),
    ],
)
def test_another_format_is_refused_with_the_next_step(tmp_path: Path, data: bytes) -> None:
    """Passing it over would throw away what another release trained."""
    write_checkpoint(tmp_path, 1, {}, {}, keep=9)
    newest = write_checkpoint(tmp_path, 2, {}, {}, keep=9)
    (newest / MANIFEST).write_bytes(data)
    with pytest.raises(OtherFormat, match="must have the format") as caught:
        read_newest(tmp_path, on_skip=pytest.fail)
    assert isinstance(caught.value, InputError)
    assert caught.value.allowed == " or ".join(READABLE)
    assert caught.value.where == str(newest / MANIFEST)
    assert "release of Headrace that wrote it" in caught.value.next_step
    assert len(list(checkpoints_dir(tmp_path).iterdir())) == 2


def test_an_array_under_the_name_of_an_equal_one_is_torn(tmp_path: Path) -> None:
    """The digest of a file covers its array's name: even a manifest that verifies cannot exchange two names."""
    path = write_checkpoint(tmp_path, 1, {}, {"first slot": np.ones(3), "second slot": np.ones(3)}, keep=1)
    body = json.loads((path / MANIFEST).read_bytes())
    first, second = body["arrays"]
    assert first["sha256"] != second["sha256"]
    first["name"], second["name"] = second["name"], first["name"]
    del body["sha256"]
    (path / MANIFEST).write_bytes(signed(body))
    with pytest.raises(TornCheckpoint, match="must have the bytes"):
        read_checkpoint(path)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def forged_npy(header: str, values: bytes = b"") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + values


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        npy(np.array([{"a": 1}], object)),
        npy(np.arange(3))[:-1],
        npy(np.arange(3)) + b"\0",
        forged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
        forged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
        forged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 1000000000000000000000)}"),
        forged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}", bytes(8)),
        forged_npy("{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,)}"),
        forged_npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        forged_npy("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        forged_npy("{'descr': '<f8', 'fortran_order': 7, 'shape': (1,)}", bytes(8)),
        forged_npy("{'descr': '<f8', 'shape': (1,)}", bytes(8)),
        forged_npy("{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }\n", bytes(3)),
        forged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000000,), }\n"),
        forged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 100000000000000000, 1000), }\n"),
        forged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1, " * 20_000),
        forged_npy("(" * 5000),
        forged_npy("[" * 60_000),
        forged_npy("{'descr': " + "(" * 90 + "'<f8'" + ",)" * 90 + ", 'fortran_order': False, 'shape': (1,)}"),
        forged_npy("\0"),
        b"\x93NUMPY\x07\x00" + npy(np.arange(3))[8:],
    ],
)
def test_a_forged_array_is_torn(data: bytes) -> None:
    with pytest.raises(TornCheckpoint, match="an array file must hold"):
        array_from_npy(data, "array-0000.npy")


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)),
                                   np.zeros((0, 4), np.float32), np.array(7, np.uint8), np.array([True]),
                                   np.zeros((1,) * 32, np.int8)])  # fmt: skip
def test_an_array_round_trips_bit_for_bit(array: np.ndarray[Any, Any]) -> None:
    found = array_from_npy(npy(array), "array-0000.npy")
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def saved_document() -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """What a checkpoint after one epoch holds, without weights."""
    solution = Synthetic(2, 5).solution
    ledger = Ledger({"hour=00#0": 5, "hour=00#1": 3})
    ledger.count([Span("hour=00#0", 0, 5), Span("hour=00#1", 1, 3)])
    identity, counts = identity_of(solution, config("run")), ledger.counts()
    scores = EpochScores(0, 0, ("hour=00",), Scores(8, 3, 0.5, 0.25, None))
    document = {
        "position": document_of(DataPosition(1, identity.data_digest)),
        "step": 2,
        "segments": [["hour=00", "hour=01"]],
        "history": [document_of(scores)],
        "identity": identity.to_document(),
        "ledger": counts.to_document(),
    }
    found = json.loads(canonical_json(document))
    assert isinstance(found, dict)
    return found, counts.uneven


def test_a_document_with_any_value_changed_is_torn_or_read() -> None:
    document, uneven = saved_document()
    path, torn, made = "epoch-000001", 0, 0
    assert saved_run(Checkpoint(path, 1, document, {LEDGER: uneven})).progress.epochs_done == 1
    for other in every_change(document):
        made += 1
        try:
            saved_run(Checkpoint(path, 1, other, {LEDGER: uneven}))
        except TornCheckpoint:
            torn += 1
    # What is left are other values of the same kind, and the options, which the run compares with its own.
    assert torn > 0.6 * made


def test_a_ledger_without_its_array_and_an_array_without_a_ledger_are_torn() -> None:
    document, uneven = saved_document()
    with pytest.raises(TornCheckpoint, match="hold a ledger"):
        saved_run(Checkpoint("epoch-000001", 1, document, {}))
    with pytest.raises(TornCheckpoint, match="hold a ledger"):
        saved_run(Checkpoint("epoch-000001", 1, {**document, "ledger": None}, {LEDGER: uneven}))


def test_an_error_names_the_place_of_a_field() -> None:
    field = DocumentField(parse_json(b'{"a": [{"b": 1e999}]}', "state.json"), "state.json")
    with pytest.raises(TornCheckpoint, match="must be a finite number") as caught:
        field.at("a").items()[0].at("b").number()
    assert caught.value.where == "state.json.a[0].b"
