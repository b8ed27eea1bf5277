"""The identity of a run, and the check whether it may continue. Pure.

A run may continue if the options (but for those of :mod:`trainer.options.resume_rules`), the inputs, the label and, for every trained event, the *content* of the columns that
the model reads are unchanged (:mod:`trainer.run.progress.data_changes`). Whether a column is loaded or computed, the place of
files and the number of ready memos do not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from trainer.errors import RunMismatch, TornCheckpoint
from trainer.options.config import TrainConfig, recorded_options
from trainer.options.document_field import OPEN, DocumentField
from trainer.options.resume_rules import OptionChange, option_changes
from transforms.derived_documents import Form, Omitted, Row, document_of
from transforms.errors import DataError, InputError, listed
from transforms.graphs.graph import component_from_document, raw_columns
from transforms.types import type_document, type_from_document
from warehouse.solution.parts import SolutionPartition
from warehouse.solution.solution import ReadSolution
from warehouse.tables.table import Fragment

if TYPE_CHECKING:
    from trainer.model.inputs import TypedInput


@dataclass(frozen=True, slots=True)
class FragmentIdentity:
    """The content of a fragment that affects training.

    Attributes:
        rows: its stored events, including deleted ones.
        inputs: a digest of the columns that the inputs read.
        label: a digest of the columns that the label reads.
        deleted: a digest of the deleted events; "" if there are none.
    """

    rows: int
    inputs: str
    label: str
    deleted: str


def _read_input(part: DocumentField) -> Mapping[str, Any]:
    spelled = part.at("type").members_as_they_are()
    try:
        kind = type_document(type_from_document(spelled))
    except (DataError, InputError) as error:
        raise TornCheckpoint(
            "an input must have a column type, got another document", where=part.place, value=str(spelled)[:200]
        ) from error
    return {"name": part.at("name").text(), "fingerprint": part.at("fingerprint").text(), "type": kind}


def _read_partitions(part: DocumentField) -> dict[str, str]:
    pairs = [item.texts() for item in part.items()]
    if any(len(pair) != 2 for pair in pairs) or len({key for key, *_ in pairs}) != len(pairs):
        raise part.refused("a list with the key and the digest of each partition once")
    return {pair[0]: pair[1] for pair in pairs}


_Input = Annotated[Mapping[str, Any], _read_input]
_Partitions = Annotated[Mapping[str, str], Form(_read_partitions, lambda keys: list(map(list, keys.items())))]


@dataclass(frozen=True)
class RunIdentity:
    """The options, inputs and data of a run.

    Attributes:
        config: the options, as a document.
        table: the table's name.
        label: the label's raw column, or its expression in one line.
        inputs: documents, in order.
        partitions: keys, in time order, to a digest of their content.
        fragments: the fragments of each partition; empty for a checkpoint of an older release.
        target: :attr:`transforms.analysis.target.Target.identity`; "" for a raw column of 0 and 1.
    """

    config: Mapping[str, Any]
    table: str
    label: str
    inputs: tuple[_Input, ...]
    partitions: _Partitions
    fragments: Omitted[Mapping[str, tuple[Row[FragmentIdentity], ...]]] = field(default_factory=dict)
    target: Omitted[str] = ""

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for names that are not distinct, and fragments of other partitions."""
        if len({item["name"] for item in self.inputs}) != len(self.inputs):
            raise TornCheckpoint("inputs must have distinct names", where=part.place)
        if part.has("fragments") and self.fragments.keys() != self.partitions.keys():
            raise TornCheckpoint(
                "the fragments must be those of the partitions, got others", where=part.at("fragments").place
            )

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`. Partitions are a list: their order counts."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, field: DocumentField) -> RunIdentity:
        """The identity at ``field``. Raises :class:`TornCheckpoint` for an invalid document."""
        return OPEN.read(cls, field)

    @property
    def data_digest(self) -> str:
        """SHA-256 of the data alone: label, inputs, partitions in order."""
        data = {name: value for name, value in self.to_document().items() if name != "config"}
        return _sha256(data)

    @property
    def typed_inputs(self) -> tuple[TypedInput, ...]:
        """The inputs' names and types."""
        from trainer.model.inputs import TypedInput  # loads kernels; figures of a run need none

        return tuple(TypedInput(item["name"], type_from_document(item["type"])) for item in self.inputs)


def identity_of(solution: ReadSolution, config: TrainConfig) -> RunIdentity:
    """The identity of training ``solution`` with ``config``."""
    read = {column.name for item in solution.inputs for column in raw_columns(component_from_document(item.component))}
    columns = {*solution.target.columns, *read}
    inputs = tuple(
        {"name": item.name, "fingerprint": item.fingerprint, "type": type_document(item.type)}
        for item in solution.inputs
    )
    ordered = in_time_order(solution)
    partitions = {part.key: _content_digest(part, sorted(columns)) for part in ordered}
    fragments = {
        part.key: tuple(_fragment_identity(one, sorted(read), solution.target.columns) for one in part.fragments)
        for part in ordered
    }
    target = "" if solution.target.is_plain else json.dumps(solution.target.identity)
    return RunIdentity(config.to_document(), solution.table, solution.label, inputs, partitions, fragments, target)


def _fragment_identity(fragment: Fragment, inputs: Sequence[str], label: Sequence[str]) -> FragmentIdentity:
    def short(columns: Sequence[str]) -> str:
        return _sha256([fragment.digests.get(name) for name in columns])[:32]

    return FragmentIdentity(fragment.rows, short(inputs), short(label), "".join(_deleted(fragment))[:32])


def in_time_order(solution: ReadSolution) -> list[SolutionPartition]:
    """The partitions by start, then key."""
    return sorted(solution.partitions, key=lambda part: (part.start, part.key))


def _content_digest(partition: SolutionPartition, columns: Sequence[str]) -> str:
    return _sha256(
        [[part.rows, [part.digests.get(name) for name in columns], *_deleted(part)] for part in partition.fragments]
    )


def _deleted(fragment: Fragment) -> list[str]:
    """The digests of the fragment's deletion vector, if it has one: a run before the deletion has trained other data."""
    return [] if fragment.deletions is None else [fragment.deletions.checksum]


def _sha256(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def check_options(recorded: RunIdentity, current: RunIdentity, *, of_job: bool = True) -> tuple[OptionChange, ...]:
    """The options with other values. Raises :class:`RunMismatch` for another table, label or inputs.

    ``of_job``: hosts trained what is recorded; for one process, ``batch_rows`` has one meaning.
    """
    check_inputs(recorded, current)
    before, now = with_neutral_options(recorded.config), recorded_options(current.config)
    if not of_job:
        before["batch_rows_per_host"] = now["batch_rows_per_host"]
    return option_changes(before, now)


def check_inputs(recorded: RunIdentity, current: RunIdentity) -> None:
    """Raises :class:`RunMismatch` unless the table, the label and the inputs, in order, are the recorded ones."""
    differences = [
        f"{name} is {getattr(current, name)!r}, was {getattr(recorded, name)!r}"
        for name in ("table", "label", "target")
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
        differences.append("the inputs have another order")
    if differences:
        raise RunMismatch("a run must continue with the table, label and inputs that it was started with", value=listed(differences),
                          next_step="train in another run directory, or the model version that the run began with")  # fmt: skip


def with_neutral_options(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a checkpoint, and those that its earlier release lacks, whose neutral values are what that release did."""
    return {**TrainConfig("run").to_document(), **recorded_options(recorded)}
