"""What a run was started with, and whether it may go on with what it is given now. Pure.

A run may go on when nothing that decides its weights has changed: the options, the inputs, the label and, for every
partition it has trained, the *content* of the columns the model reads. Data appended after the last partition continues
the run. Whether a column is loaded or computed, where files lie and how many memos are ready makes no difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.config import TrainConfig
from trainer.document_field import DocumentField
from trainer.epochs import Segments, extend_segments
from trainer.errors import RunMismatch, TornCheckpoint
from trainer.inputs import TypedInput
from transforms.errors import DataError, InputError
from transforms.graph import component_from_document, raw_columns
from transforms.types import type_document, type_from_document
from warehouse.solution import ReadSolution, SolutionPartition
from warehouse.table import Fragment


@dataclass(frozen=True)
class RunIdentity:
    """``config`` and ``inputs`` are documents; ``partitions`` maps keys, in time order, to a digest of their content."""

    config: Mapping[str, Any]
    table: str
    label: str
    inputs: tuple[Mapping[str, Any], ...]
    partitions: Mapping[str, str]

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`. Partitions are a list: their order counts."""
        return {
            "config": dict(self.config),
            "table": self.table,
            "label": self.label,
            "inputs": [dict(item) for item in self.inputs],
            "partitions": [[key, digest] for key, digest in self.partitions.items()],
        }

    @classmethod
    def read(cls, field: DocumentField) -> RunIdentity:
        """The identity at ``field``. Raises :class:`TornCheckpoint` for a document that :meth:`to_document` never gives."""
        config = {name: option.value for name, option in field.at("config").members().items()}
        inputs = tuple(_read_input(item) for item in field.at("inputs").items())
        partitions = [item.texts() for item in field.at("partitions").items()]
        if any(len(pair) != 2 for pair in partitions):
            raise TornCheckpoint("a partition must be a key and a digest, got another list", where=field.place)
        by_key = {pair[0]: pair[1] for pair in partitions}
        if len(by_key) != len(partitions) or len({item["name"] for item in inputs}) != len(inputs):
            raise TornCheckpoint("inputs and partitions must have distinct names", where=field.place)
        return cls(config, field.at("table").text(), field.at("label").text(), inputs, by_key)

    @property
    def data_digest(self) -> str:
        """SHA-256 of the data alone: label, inputs, partitions in order."""
        data = {name: value for name, value in self.to_document().items() if name != "config"}
        return _sha256(data)

    @property
    def typed_inputs(self) -> tuple[TypedInput, ...]:
        """The inputs' names and types."""
        return tuple(TypedInput(item["name"], type_from_document(item["type"])) for item in self.inputs)


def _read_input(field: DocumentField) -> Mapping[str, Any]:
    spelled = {name: member.value for name, member in field.at("type").members().items()}
    try:
        kind = type_document(type_from_document(spelled))
    except (DataError, InputError) as error:
        raise TornCheckpoint("an input must have a column type, got another document", where=field.place,
                             value=str(spelled)[:200]) from error  # fmt: skip
    return {"name": field.at("name").text(), "fingerprint": field.at("fingerprint").text(), "type": kind}


def identity_of(solution: ReadSolution, config: TrainConfig) -> RunIdentity:
    """The identity of training ``solution`` with ``config``."""
    columns = {solution.label}
    for item in solution.inputs:
        columns.update(column.name for column in raw_columns(component_from_document(item.component)))
    inputs = tuple(
        {"name": item.name, "fingerprint": item.fingerprint, "type": type_document(item.type)}
        for item in solution.inputs
    )
    partitions = {part.key: _content_digest(part, sorted(columns)) for part in in_time_order(solution)}
    return RunIdentity(config.to_document(), solution.table, solution.label, inputs, partitions)


def in_time_order(solution: ReadSolution) -> list[SolutionPartition]:
    """The partitions by start, then key."""
    return sorted(solution.partitions, key=lambda part: (part.start, part.key))


def _content_digest(partition: SolutionPartition, columns: Sequence[str]) -> str:
    return _sha256(
        [[part.rows, [part.digests.get(name) for name in columns], *_deleted(part)] for part in partition.fragments]
    )


def _deleted(fragment: Fragment) -> list[str]:
    """Which events were retracted, if any: a run that has not seen a retraction has trained on other data."""
    return [] if fragment.deletions is None else [fragment.deletions.checksum]


def _sha256(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def continue_segments(
    recorded: RunIdentity, segments: Segments, current: RunIdentity, *, trained: Collection[str]
) -> Segments:
    """The segments to go on with: ``segments``, and what was appended since.

    ``trained`` are the partitions that some epoch has seen: only their content must be what it was.
    Raises :class:`RunMismatch` listing everything that differs.
    """
    check_inputs(recorded, current)
    differences = _config_differences(recorded.config, current.config)
    differences += _data_differences(recorded, current, trained)
    extended = extend_segments(segments, list(current.partitions))
    if extended is None and not differences:
        differences.append("partitions appeared before the last one that was trained")
    if differences or extended is None:
        raise RunMismatch(
            "this run directory was trained with something else",
            value="; ".join(differences),
            allowed="the same options, inputs and past data; new partitions only after the last",
            next_step="train in another run directory, or give what the run was started with",
        )
    return extended


def check_inputs(recorded: RunIdentity, current: RunIdentity) -> None:
    """Raises :class:`RunMismatch` unless the table, the label and the inputs, in order, are the recorded ones."""
    differences = [
        f"{name} is {getattr(current, name)!r}, was {getattr(recorded, name)!r}"
        for name in ("table", "label")
        if getattr(current, name) != getattr(recorded, name)
    ]
    before, now = ({item["name"]: item for item in each.inputs} for each in (recorded, current))
    differences += [f"input {name!r} is new" for name in now if name not in before]
    differences += [f"input {name!r} is gone" for name in before if name not in now]
    differences += [
        f"input {name!r} is another expression or operator version ({now[name]['fingerprint'][:12]}, was "
        f"{before[name]['fingerprint'][:12]})"
        for name in now
        if name in before and dict(now[name]) != dict(before[name])
    ]
    if not differences and list(before) != list(now):
        differences.append("the inputs come in another order")
    if differences:
        raise RunMismatch("this run directory was trained on other inputs", value="; ".join(differences),
                          next_step="train in another run directory, or on the model version it began with")  # fmt: skip


def _config_differences(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    return [
        f"option {name} is {current.get(name)!r}, was {recorded.get(name)!r}"
        for name in sorted({*recorded, *current})
        if recorded.get(name) != current.get(name)
    ]


def _data_differences(recorded: RunIdentity, current: RunIdentity, trained: Collection[str]) -> list[str]:
    gone = [f"partition {key} is gone" for key in recorded.partitions if key not in current.partitions]
    changed = [
        f"partition {key} has other content than when it was trained"
        for key, digest in recorded.partitions.items()
        if key in trained and current.partitions.get(key, digest) != digest
    ]
    return gone + changed
