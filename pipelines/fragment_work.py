"""What a memoize job is asked and what it answers: values that travel as JSON, whatever carries them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from transforms.measured import OperatorWork, summed, work_from_document
from warehouse.failures import Failure
from warehouse.memo_file import NewFile
from warehouse.table import Fragment


class WantedComponent(NamedTuple):
    """One memo to compute: its key, its column in the memo file (the component's fingerprint) and the component."""

    memo_key: str
    column: str
    component: Mapping[str, Any]


@dataclass(frozen=True)
class FragmentWork:
    """A fragment, the components wanted of it, and the memo file (relative to the home) that they go to."""

    fragment: Fragment
    components: tuple[WantedComponent, ...]
    output: str

    def only(self, columns: Collection[str]) -> FragmentWork:
        """The work on some of its components, in the same order."""
        return replace(self, components=tuple(one for one in self.components if one.column in columns))

    def to_json(self, listed: ComponentList | None = None) -> str:
        """The work on one line. With ``listed`` it names its components' documents by their places there."""
        named = [(key, column, component if listed is None else listed.place_of(component))
                 for key, column, component in self.components]  # fmt: skip
        document = {"fragment": self.fragment.to_document(), "components": named, "output": self.output}
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, listed: Sequence[Mapping[str, Any]] = ()) -> FragmentWork:
        """The inverse of :meth:`to_json`; ``listed``: the documents that it names by their places."""
        document = json.loads(text)
        components = tuple(
            WantedComponent(key, column, listed[component] if isinstance(component, int) else component)
            for key, column, component in document["components"]
        )
        return cls(Fragment.from_document(document["fragment"]), components, document["output"])


class ComponentList:
    """The documents of a job's components, each once: most of its fragments have the same ones."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._known: dict[
            int, tuple[Mapping[str, Any], int]
        ] = {}  # by identity; held, so that no other comes to have it

    def place_of(self, document: Mapping[str, Any]) -> int:
        """The place of a document, at the end if it is new."""
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
    """One component's memo, or why there is none: ``failure`` is None exactly when the memo was written.

    ``secs``: what the component would have taken by itself, from raw columns in memory to its Arrow column. ``path``:
    of the memo file that holds it.
    """

    memo_key: str
    column: str
    failure: Failure | None = None
    checksum: str = ""
    rows: int = 0
    size_bytes: int = 0
    secs: float = 0.0
    path: str = ""

    def to_document(self) -> dict[str, object]:
        """The outcome as a JSON object."""
        failure = None if self.failure is None else self.failure.to_document()
        return {**asdict(replace(self, failure=None)), "failure": failure}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ComponentOutcome:
        """The inverse of :meth:`to_document`."""
        failure = document["failure"]
        return cls(**{**document, "failure": None if failure is None else Failure.from_document(failure)})


@dataclass(frozen=True, slots=True)
class PhaseSecs:
    """Wall seconds that a fragment's raw columns took to be read and checked, its plan to run, and its memo file to be written."""

    reading: float = 0.0
    running: float = 0.0
    writing: float = 0.0


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """What became of one :class:`FragmentWork`, known by its ``output``.

    ``files`` hold the memos that were written: one file at ``output`` when none failed, none when all did, several
    where all components together would not have fitted in memory. ``raw_bytes_read``: the raw columns as they lay in
    memory. ``operators``: what each operator took; ``phases``: where the time of the attempts went that gave a result.
    """

    fragment_id: str
    output: str
    files: tuple[NewFile, ...]
    rows: int
    raw_bytes_read: int
    outcomes: tuple[ComponentOutcome, ...]
    operators: tuple[OperatorWork, ...] = ()
    phases: PhaseSecs = field(default_factory=PhaseSecs)

    def file_of(self, outcome: ComponentOutcome) -> NewFile:
        """The file that holds the memo of an outcome without failure."""
        return next(file for file in self.files if file.path == outcome.path)

    def to_document(self) -> dict[str, object]:
        """The result as a JSON object."""
        return {"fragment_id": self.fragment_id, "output": self.output, "rows": self.rows,
                "files": [asdict(file) for file in self.files], "raw_bytes_read": self.raw_bytes_read,
                "outcomes": [outcome.to_document() for outcome in self.outcomes],
                "operators": [asdict(work) for work in self.operators], "phases": asdict(self.phases)}  # fmt: skip

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FragmentResult:
        """The inverse of :meth:`to_document`."""
        outcomes = tuple(ComponentOutcome.from_document(outcome) for outcome in document["outcomes"])
        files = tuple(NewFile(**file) for file in document["files"])
        operators = work_from_document(document["operators"])
        phases = PhaseSecs(**document["phases"])
        return cls(**{**document, "files": files, "outcomes": outcomes, "operators": operators, "phases": phases})


def merged(work: FragmentWork, parts: Sequence[FragmentResult], failures: Mapping[str, Failure]) -> FragmentResult:
    """One result for ``work`` from those of its parts; ``failures``, by column, stand for what no part has, and over what
    a part says of the same component."""
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
        summed(measured for part in parts for measured in part.operators),
        added(part.phases for part in parts),
    )


def added(phases: Iterable[PhaseSecs]) -> PhaseSecs:
    """The sum of several."""
    listed = list(phases)
    return PhaseSecs(sum(one.reading for one in listed), sum(one.running for one in listed),
                     sum(one.writing for one in listed))  # fmt: skip
