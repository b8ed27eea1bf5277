"""The work of a memoize job and its results, as values with a JSON form."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

from transforms.derived_documents import InsidePath, PathOrNone, document_of, number, read_value
from transforms.documents import Part, document_part, parse_document
from transforms.execution.operator_costs import OperatorWork, sum_operator_work
from warehouse.files.column_files import NewFile
from warehouse.queue.failures import Failure
from warehouse.tables.table import Fragment

_Secs = Annotated[float, number(0.0)]


class WantedComponent(NamedTuple):
    """One memo to compute. ``column`` is its name in the memo file, the component's fingerprint."""

    memo_key: str
    column: str
    component: Mapping[str, Any]


@dataclass(frozen=True)
class FragmentWork:
    """A fragment, its components to compute, and the path of the memo file, relative to the home."""

    fragment: Fragment
    components: tuple[WantedComponent, ...]
    output: str

    def only(self, columns: Collection[str]) -> FragmentWork:
        """The work on some of the components, in the same order."""
        return replace(self, components=tuple(one for one in self.components if one.column in columns))

    def to_json(self, listed: ComponentList | None = None) -> str:
        """The work on one line. With ``listed``, it refers to its components' documents by position there."""
        named = [
            (key, column, component if listed is None else listed.place_of(component))
            for key, column, component in self.components
        ]
        document = {"fragment": self.fragment.to_document(), "components": named, "output": self.output}
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, listed: Sequence[Mapping[str, Any]] = ()) -> FragmentWork:
        """The inverse of :meth:`to_json`; ``listed`` are the documents that it refers to by position.

        A component is checked when it is compiled. Raises :class:`~transforms.errors.DataError`.
        """
        whole = parse_document(text, "work on a fragment").fields(("fragment", "components", "output"))
        components = tuple(_parse_component(one, listed) for one in whole.at("components").items())
        return cls(Fragment.from_document(whole.at("fragment")), components, whole.at("output").inside_path())


def _parse_component(part: Part, listed: Sequence[Mapping[str, Any]]) -> WantedComponent:
    key, column, component = part.items(least=3, most=3)
    if isinstance(component.value, dict):
        document: Mapping[str, Any] = component.value
    else:
        document = listed[component.integer(0, len(listed) - 1)]
    return WantedComponent(key.text(), column.text(), document)


class ComponentList:
    """The documents of a job's components, each once, since most fragments have the same ones."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._known: dict[int, tuple[Mapping[str, Any], int]] = {}  # by identity; a reference keeps the identity unique

    def place_of(self, document: Mapping[str, Any]) -> int:
        """The position of a document; a new one is appended."""
        known = self._known.get(id(document))
        if known is None:
            place = self._places.setdefault(json.dumps(document, sort_keys=True), len(self._places))
            known = self._known[id(document)] = document, place
        return known[1]

    def to_json(self) -> str:
        """All documents, a JSON list on one line."""
        return f"[{', '.join(self._places)}]"


@dataclass(frozen=True, slots=True)
class ComponentOutcome:
    """One component's memo or its failure.

    Attributes:
        memo_key: The memo.
        column: The component's fingerprint.
        failure: None exactly when the memo was written.
        checksum: The checksum of the column in the memo file.
        rows: The rows of the column.
        size_bytes: The size of the column in the memo file.
        secs: The time of the component alone, from raw columns in memory to its Arrow column.
        path: The memo file.
    """

    memo_key: str
    column: str
    failure: Failure | None = None
    checksum: str = ""
    rows: int = 0
    size_bytes: int = 0
    secs: _Secs = 0.0
    path: PathOrNone = ""


@dataclass(frozen=True, slots=True)
class PhaseSecs:
    """Wall seconds of reading and checking the raw columns, running the plan, and writing the memo file."""

    reading: _Secs = 0.0
    running: _Secs = 0.0
    writing: _Secs = 0.0


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """The result of one :class:`FragmentWork`, identified by its ``output``.

    Attributes:
        fragment_id: The fragment.
        output: The memo file of the work.
        files: The written memo files: one at ``output`` if no component failed, none if all did, several if the
            components were computed in parts.
        rows: The events of the fragment.
        raw_bytes_read: The size of the raw columns in memory.
        outcomes: One for each component.
        operators: The time of each operator.
        phases: The time of the attempts with a result.
    """

    fragment_id: str
    output: InsidePath
    files: tuple[NewFile, ...]
    rows: int
    raw_bytes_read: int
    outcomes: tuple[ComponentOutcome, ...]
    operators: tuple[OperatorWork, ...] = ()
    phases: PhaseSecs = field(default_factory=PhaseSecs)

    def file_of(self, outcome: ComponentOutcome) -> NewFile:
        """The file with the memo of an outcome without failure."""
        return next(file for file in self.files if file.path == outcome.path)

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for a memo in a file that the result does not have."""
        written = {file.path for file in self.files}
        for position, outcome in enumerate(self.outcomes):
            if outcome.failure is None and outcome.path not in written:
                raise Part(outcome.path, part.at("outcomes"), position).refused("a memo in one of the result's files")

    def to_document(self) -> dict[str, object]:
        """The result as a JSON object."""
        document: dict[str, object] = document_of(self)
        return document

    @classmethod
    def from_document(cls, document: object) -> FragmentResult:
        """The inverse of :meth:`to_document`. Raises :class:`~transforms.errors.DataError`."""
        return read_value(cls, document_part(document, "result of a fragment"))


def merge_results(
    work: FragmentWork, parts: Sequence[FragmentResult], failures: Mapping[str, Failure]
) -> FragmentResult:
    """One result for ``work`` from those of its parts; ``failures``, by column, replace the outcomes of the parts."""
    found = {outcome.column: outcome for part in parts for outcome in part.outcomes}
    outcomes = tuple(
        ComponentOutcome(one.memo_key, one.column, failures[one.column])
        if one.column in failures
        else found[one.column]
        for one in work.components
    )
    return FragmentResult(
        work.fragment.fragment_id,
        work.output,
        tuple(file for part in parts for file in part.files),
        work.fragment.rows,
        sum(part.raw_bytes_read for part in parts),
        outcomes,
        sum_operator_work(measured for part in parts for measured in part.operators),
        sum_phases(part.phases for part in parts),
    )


def sum_phases(phases: Iterable[PhaseSecs]) -> PhaseSecs:
    """The sum of several, phase by phase."""
    listed = list(phases)
    return PhaseSecs(
        sum(one.reading for one in listed), sum(one.running for one in listed), sum(one.writing for one in listed)
    )
