"""The manifest of a part: a host's document, and its arrays with the moment at which each was taken. Pure.

The format is that of :mod:`trainer.checkpoints.manifest`: canonical JSON text with a digest of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.checkpoints.host_part import HostPart, Moment, PartName
from trainer.checkpoints.manifest import CheckpointFile, other_format, signed_text, verified_document
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN
from transforms.derived_documents import document_of

PART_FORMAT = "headrace.part/1"
#: The format of a part that names the shards of servers. Its arrays are those of :data:`PART_FORMAT`.
SHARDED_PART_FORMAT = "headrace.part/2"


@dataclass(frozen=True, slots=True)
class PartArray:
    """An array of a part.

    Attributes:
        name: its name.
        file: its file's size and digest.
        moment: when it was taken.
    """

    name: str
    file: CheckpointFile
    moment: Moment

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "name": self.name,
            **document_of(self.file),
            **document_of(self.moment),
        }


@dataclass(frozen=True)
class PartManifest:
    """A host's document and the files of its arrays, in the order of their numbers."""

    part: HostPart
    arrays: tuple[PartArray, ...]

    def to_bytes(self) -> bytes:
        """The text of the part's ``manifest.json``."""
        return signed_text(
            {
                "format": SHARDED_PART_FORMAT if self.part.shards else PART_FORMAT,
                "part": document_of(self.part),
                "arrays": [array.to_document() for array in self.arrays],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> PartManifest:
        """The inverse of :meth:`to_bytes`. Raises :class:`TornCheckpoint`, or :class:`OtherFormat` for another version."""
        document = verified_document(data, where)
        form = document.at("format").text()
        if form not in (PART_FORMAT, SHARDED_PART_FORMAT):
            raise other_format(form, (PART_FORMAT, SHARDED_PART_FORMAT), where)
        arrays = tuple(
            PartArray(
                item.at("name").text(),
                OPEN.read(CheckpointFile, item),
                OPEN.read(Moment, item),
            )
            for item in document.at("arrays").items()
        )
        if len({array.name for array in arrays}) != len(arrays):
            raise TornCheckpoint("the arrays of a manifest must have distinct names", where=where)
        part = OPEN.read(HostPart, document.at("part"))
        if bool(part.shards) != (form == SHARDED_PART_FORMAT):
            raise TornCheckpoint("a part must name shards if and only if its format says so", where=where, value=form)
        return cls(part, arrays)


def part_shards(parts: Sequence[tuple[PartName, PartManifest]], where: str) -> WrittenShards:
    """The shards of a commit, which the part of rank 0 names. Raises :class:`TornCheckpoint`."""
    for name, manifest in parts[1:]:
        if manifest.part.shards:
            raise TornCheckpoint("the part of rank 0 alone must name the shards of servers", where=f"{where}: {name.folder}",
                                 value=manifest.part.shards[0][:60])  # fmt: skip
    first, place = parts[0][1].part, f"{where}: {parts[0][0].folder}"
    names, bases = (tuple(ShardName.parse(one, place) for one in texts) for texts in (first.shards, first.bases))
    return WrittenShards(names, bases)


def check_moments(part: HostPart, moments: Iterable[tuple[str, Moment]], where: str) -> None:
    """Raises :class:`TornCheckpoint` unless every array was taken at the part's moment."""
    for name, moment in moments:
        if moment != part.moment:
            raise TornCheckpoint(
                "all arrays of a part must have its attempt and step, got arrays of different steps",
                where=f"{where}: {name}",
                value=f"attempt {moment.attempt}, step {moment.step}",
                allowed=f"attempt {part.attempt}, step {part.step}",
                next_step="train the epoch again from the last commit",
            )
