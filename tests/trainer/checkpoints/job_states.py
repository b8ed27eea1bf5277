"""Small states of a run, and their parts as those of several hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.commit_manifest import CommitFacts, table_of
from trainer.checkpoints.host_part import LEDGER, HostPart, Moment
from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.read import Checkpoint
from trainer.checkpoints.saved_counts import SavedCounts
from trainer.checkpoints.taken_arrays import TakenArrays
from trainer.options.document_field import DocumentField
from trainer.scheduling.orders import Commit
from transforms.arrays import Array
from transforms.derived_documents import document_of

ROWS = 40
PARTITIONS = 4
RELEASE = "1.2.3"
PLAN = "plan-1"
_DATA = Synthetic(PARTITIONS, 5)
KEYS = tuple(part.key for part in _DATA.solution.partitions)


def identity(run_dir: Path | str = "run") -> Any:
    from trainer.run.progress.identity import identity_of

    return identity_of(_DATA.solution, config(run_dir))


def facts() -> CommitFacts:
    from trainer.model.heads import BINARY

    found = identity()
    document = json.loads(json.dumps(found.to_document()))
    return CommitFacts(document, found.data_digest, BINARY.to_document(), (KEYS,), dict.fromkeys(KEYS, 27))


def find_facts(plan: str) -> CommitFacts:
    """What the commits of a plan have in common."""
    assert plan == PLAN
    return facts()


def state(epochs: int) -> dict[str, Array]:
    """The arrays after so many epochs: tables whose rows grow, and counters of half of the next partition."""
    draw = np.random.default_rng(epochs)
    rows = np.sort(draw.choice(ROWS * (epochs + 1), ROWS, replace=False)).astype(np.int64)
    some = rows[::3].copy()
    return {
        "dense/weights/000": draw.normal(size=(3, 2)).astype(np.float32),
        "dense/optimizer/000": draw.normal(size=(3, 2)).astype(np.float32),
        "dense/random/000": np.array([epochs], np.int64),
        "embedding/rows/user": rows,
        "embedding/weights/user": draw.normal(size=(len(rows), 4)).astype(np.float32),
        "embedding/slots/user": draw.random((len(rows), 4)).astype(np.float32),
        "embedding/rows/words": some,
        "embedding/weights/words": draw.normal(size=(len(some), 2)).astype(np.float32),
        "embedding/slots/words": np.zeros((len(some), 0), np.float32),
        "linear/rows/user": rows,
        "linear/weights/user": draw.normal(size=(len(rows), 1)).astype(np.float32),
        "linear/slots/user": draw.random((len(rows), 1)).astype(np.float32),
    }


def counts(epochs: int) -> SavedCounts:
    """The counters: whole partitions, and some events of the next one."""
    found = [(f"{key}#{k}", np.ones(5 + 17 * k, np.uint8), 77 + k) for key in KEYS[:epochs] for k in (0, 1)]
    uneven = (np.arange(5) % 2).astype(np.uint8) if epochs < PARTITIONS else None
    return SavedCounts.of([*found, *([] if uneven is None else [(f"{KEYS[epochs]}#0", uneven, 2**64 - 5)])])


def scores(epoch: int) -> dict[str, Any]:
    from trainer.model.scores import Scores

    return document_of(Scores(27, 9, 0.5 + epoch / 10, 0.25, None))


def document(epochs: int) -> dict[str, Any]:
    """The document of a single process after so many epochs."""
    fact = facts()
    history = [{"epoch": k, "pass_number": 0, "partitions": [KEYS[k]], "scores": scores(k)} for k in range(epochs)]
    made = {
        "position": {"epochs_done": epochs, "data_digest": fact.data_digest},
        "step": 10 * epochs,
        "segments": [list(segment) for segment in fact.segments],
        "history": history,
        "planned_rows": dict(fact.planned_rows),
        "identity": dict(fact.identity),
        "ledger": counts(epochs).to_document(),
        "head": dict(fact.head),
    }
    found = json.loads(json.dumps(made))
    assert isinstance(found, dict)
    return found


def checkpoint(epochs: int) -> Checkpoint:
    """A single process's checkpoint after so many epochs."""
    return Checkpoint("", epochs, document(epochs), {**state(epochs), LEDGER: counts(epochs).uneven})


def cut(found: Checkpoint, rank: int, hosts: int, attempt: int) -> tuple[HostPart, list[TakenArrays]]:
    """The part of a host: rows r with r % hosts == rank, every ``hosts``-th counter; rank 0 has the rest."""
    read = DocumentField(found.document, "document")
    step = read.at("step").count()
    history = [{name: value.value for name, value in one.members().items()} for one in read.at("history").items()]
    own, tables = _arrays(found.arrays, rank, hosts)
    ledger = None
    if LEDGER in found.arrays:
        ledger = _counters(SavedCounts.read(read.at("ledger"), found.arrays[LEDGER]), rank, hosts)
        own[LEDGER] = ledger.uneven
    part = HostPart(
        attempt=attempt,
        epoch=found.epochs_done - 1,
        rank=rank,
        hosts=hosts,
        next_unit=100 * found.epochs_done,
        step=step,
        carried=((100 * found.epochs_done + 10 * rank, 100 * found.epochs_done + 10 * rank + 3),),
        ledger=None if ledger is None else json.loads(json.dumps(ledger.to_document())),
        epochs_done=found.epochs_done,
        history=tuple(history) if rank == 0 else (),
        plan=PLAN,
    )
    return part, [TakenArrays(Moment(attempt, step), own, tables)]


def _arrays(arrays: Mapping[str, Array], rank: int, hosts: int) -> tuple[dict[str, Array], list[PartedArrays]]:
    own = {} if rank else {name: array for name, array in arrays.items() if table_of(name) is None and name != LEDGER}
    tables = []
    for kind, table in dict.fromkeys((found[0], found[2]) for found in map(table_of, arrays) if found):
        chosen = arrays[f"{kind}/rows/{table}"] % hosts == rank
        columns = {
            name: arrays[name][chosen]
            for name in (f"{kind}/{column}/{table}" for column in ("rows", "weights", "slots"))
        }
        kinds = tuple(ArrayKind(name, str(array.dtype), array.shape) for name, array in columns.items())
        half = int(chosen.sum()) // 2
        pieces = [tuple(array[at] for array in columns.values()) for at in (slice(0, half), slice(half, None))]
        tables.append(PartedArrays(kinds, pieces))
    return own, tables


def _counters(saved: SavedCounts, rank: int, hosts: int) -> SavedCounts:
    found = []
    for fragment, trained in saved.counts():
        own = np.where(np.arange(len(trained)) % hosts == rank, trained, 0).astype(np.uint8)
        if own.any():
            first = not any(trained[k::hosts].any() for k in range(rank))  # label sums are added: one host has all
            found.append((fragment.key, own, fragment.labels if first else 0))
    return SavedCounts.of(found)


def names_of(hosts: int) -> tuple[str, ...]:
    return tuple(f"host-{chr(97 + rank)}" for rank in range(hosts))


def write_parts(run_dir: str | Path, found: Checkpoint, hosts: int, attempt: int) -> dict[str, str]:
    """Write all parts; the names of parts by host."""
    return {name: write_part(run_dir, *cut(found, rank, hosts, attempt)) for rank, name in enumerate(names_of(hosts))}


def commit_of(found: Checkpoint, attempt: int) -> Commit:
    return Commit(found.epochs_done, attempt, 100 * found.epochs_done)


def publish_all(run_dir: str | Path, found: Checkpoint, hosts: int, attempt: int) -> str:
    """Write all parts and publish the commit."""
    parts = write_parts(run_dir, found, hosts, attempt)
    return publish(run_dir, commit_of(found, attempt), names_of(hosts), parts, find_facts, release=RELEASE)


def publish_as_parts(found: Checkpoint, run_dir: str | Path, hosts: int, attempt: int = 3) -> None:
    """A checkpoint of one process as a commit of parts, on top of the checkpoint before it."""
    document = json.loads(json.dumps(found.document))
    common = CommitFacts(
        document["identity"],
        document["position"]["data_digest"],
        document["head"],
        tuple(map(tuple, document["segments"])),
        document["planned_rows"],
        document.get("held_out"),
    )
    parts = write_parts(run_dir, found, hosts, attempt)
    publish(run_dir, commit_of(found, attempt), names_of(hosts), parts, lambda plan: common)


def assert_equal(found: Checkpoint, expected: Checkpoint) -> None:
    """Bit-equal arrays and equal documents, without the members that only commits of parts have."""
    assert isinstance(found.document, dict)
    assert {name: value for name, value in found.document.items() if name != "job"} == expected.document
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        ours = found.arrays[name]
        assert (ours.dtype, ours.shape, ours.tobytes()) == (array.dtype, array.shape, array.tobytes()), name
