"""The read solution: for every input of a model and every fragment, which file and column to read or what to compute.

It is an immutable JSON document, ``headrace.read_solution/1`` (described in ``docs/read-solution.md``), that a trainer
can be handed without the catalog.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from transforms.errors import DataError
from transforms.types import ColumnType, type_document, type_from_document
from warehouse.table import Fragment

if TYPE_CHECKING:
    from warehouse.warehouse import Warehouse

FORMAT = "headrace.read_solution/1"

#: ``load``: read the memoized column; ``compute``: run the component on the raw columns; ``raw``: the input is a column.
Action = Literal["load", "compute", "raw"]


@dataclass(frozen=True, slots=True)
class Read:
    """How to obtain one input over one fragment. ``file``, ``column`` and ``checksum`` are set for ``load`` only.

    ``file`` is relative to the warehouse's home; ``checksum`` is the column's digest (:mod:`warehouse.digests`).
    """

    action: Action
    file: str = ""
    column: str = ""
    checksum: str = ""


@dataclass(frozen=True)
class SolutionInput:
    """One model input: its name, the fingerprint, the type and the document of the component that feeds it."""

    name: str
    fingerprint: str
    type: ColumnType
    component: Mapping[str, Any]


@dataclass(frozen=True)
class SolutionFragment(Fragment):
    """A fragment and, for every input name, how to read it."""

    reads: Mapping[str, Read]


@dataclass(frozen=True)
class SolutionPartition:
    """One partition at one manifest version; ``[start, end)`` in UTC."""

    key: str
    start: datetime
    end: datetime
    version: int
    fragments: tuple[SolutionFragment, ...]

    @property
    def rows(self) -> int:
        """Events in the partition."""
        return sum(fragment.rows for fragment in self.fragments)


@dataclass(frozen=True)
class ReadSolution:
    """What to read to train ``model`` at ``model_version`` on ``table``; partitions are in time order.

    ``label`` is the raw column that holds the label.
    """

    model: str
    model_version: int
    table: str
    table_version: int
    label: str
    inputs: tuple[SolutionInput, ...]
    partitions: tuple[SolutionPartition, ...]

    @property
    def rows(self) -> int:
        """Events in all partitions."""
        return sum(partition.rows for partition in self.partitions)

    def count(self, action: Action) -> int:
        """(input, fragment) pairs that are obtained this way."""
        fragments = (fragment for partition in self.partitions for fragment in partition.fragments)
        return sum(read.action == action for fragment in fragments for read in fragment.reads.values())

    def digest(self) -> str:
        """SHA-256 of the whole document, reads included: it changes when a memo becomes ready."""
        return _sha256(self.to_document())

    def content_digest(self) -> str:
        """SHA-256 of *which values* are read (inputs, label, fragments in order), however each is obtained.

        This is the one to compare across a resume: a memo that became ready, or was evicted, leaves it as it is.
        """
        inputs = [[item.name, item.fingerprint] for item in self.inputs]
        partitions = [[part.key, [fragment.fragment_id for fragment in part.fragments]] for part in self.partitions]
        return _sha256({"label": self.label, "inputs": inputs, "partitions": partitions})

    def to_document(self) -> dict[str, Any]:
        """The solution as a JSON object, the inverse of :meth:`from_document`."""
        return {
            "format": FORMAT,
            "model": self.model,
            "model_version": self.model_version,
            "table": self.table,
            "table_version": self.table_version,
            "label": self.label,
            "inputs": [_input_document(item) for item in self.inputs],
            "partitions": [_partition_document(partition) for partition in self.partitions],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ReadSolution:
        """The solution a document describes. Raises :class:`DataError` for another format or a missing field."""
        if document.get("format") != FORMAT:
            raise DataError("not a read solution", value=document.get("format"), allowed=FORMAT)
        try:
            return cls(
                model=document["model"],
                model_version=document["model_version"],
                table=document["table"],
                table_version=document["table_version"],
                label=document["label"],
                inputs=tuple(_input_from(item) for item in document["inputs"]),
                partitions=tuple(_partition_from(item) for item in document["partitions"]),
            )
        except KeyError as error:
            raise DataError("a read solution lacks a field", value=error.args[0], allowed=FORMAT) from error


def read_solution(
    warehouse: Warehouse,
    model_name: str,
    *,
    version: int | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> ReadSolution:
    """The read solution of a submitted model over the partitions that lie in ``[start, end)``, as things stand now.

    ``version`` is the model's version, the newest by default. A partition belongs to the range when it starts in it.
    Raises :class:`~warehouse.errors.UnknownModel`.
    """
    from warehouse.solving import solve

    return solve(warehouse, model_name, version=version, start=start, end=end)


def _sha256(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _input_document(item: SolutionInput) -> dict[str, Any]:
    return {
        "name": item.name,
        "fingerprint": item.fingerprint,
        "type": type_document(item.type),
        "component": dict(item.component),
    }


def _input_from(document: Mapping[str, Any]) -> SolutionInput:
    column_type = type_from_document(document["type"])
    return SolutionInput(document["name"], document["fingerprint"], column_type, document["component"])


def _partition_document(partition: SolutionPartition) -> dict[str, Any]:
    return {
        "key": partition.key,
        "start": partition.start.isoformat(),
        "end": partition.end.isoformat(),
        "version": partition.version,
        "fragments": [_fragment_document(fragment) for fragment in partition.fragments],
    }


def _partition_from(document: Mapping[str, Any]) -> SolutionPartition:
    return SolutionPartition(
        key=document["key"],
        start=datetime.fromisoformat(document["start"]),
        end=datetime.fromisoformat(document["end"]),
        version=document["version"],
        fragments=tuple(_fragment_from(item) for item in document["fragments"]),
    )


def _fragment_document(fragment: SolutionFragment) -> dict[str, Any]:
    return {
        "fragment_id": fragment.fragment_id,
        "path": fragment.path,
        "row_groups": list(fragment.row_groups),
        "rows": fragment.rows,
        "size_bytes": fragment.size_bytes,
        "digests": dict(fragment.digests),
        "reads": {name: _read_document(read) for name, read in fragment.reads.items()},
    }


def _fragment_from(document: Mapping[str, Any]) -> SolutionFragment:
    return SolutionFragment(
        fragment_id=document["fragment_id"],
        path=document["path"],
        row_groups=tuple(document["row_groups"]),
        rows=document["rows"],
        size_bytes=document["size_bytes"],
        digests=document["digests"],
        reads={name: _read_from(read) for name, read in document["reads"].items()},
    )


def _read_document(read: Read) -> dict[str, str]:
    if read.action != "load":
        return {"action": read.action}
    return {"action": read.action, "file": read.file, "column": read.column, "checksum": read.checksum}


def _read_from(document: Mapping[str, str]) -> Read:
    action = document["action"]
    if action not in ("load", "compute", "raw"):
        raise DataError("unknown action in a read solution", value=action, allowed="load, compute, raw")
    fields = {name: document[name] for name in ("file", "column", "checksum")} if action == "load" else {}
    return Read(cast(Action, action), **fields)
