"""The name of a server's shard of a checkpoint: its place and its content. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainer.checkpoints.host_part import PARTS, attempt_folder
from trainer.errors import TornCheckpoint

_FOLDER = re.compile("attempt-([0-9]{6,18})/server-(0|[1-9][0-9]{0,5})")
_DIGEST = re.compile("[0-9a-f]{64}")


def shard_folder(attempt: int, server: int) -> str:
    """The folder of a shard within the folder of checkpoints."""
    return f"{attempt_folder(attempt)}/server-{server}"


@dataclass(frozen=True, slots=True, order=True)
class ShardName:
    """A written shard.

    Attributes:
        attempt, server: its place.
        sha256: the digest of its manifest's bytes, hence of all its files.
    """

    attempt: int
    server: int
    sha256: str

    @property
    def folder(self) -> str:
        """The shard's folder within the folder of checkpoints."""
        return shard_folder(self.attempt, self.server)

    def __str__(self) -> str:
        return f"{self.folder.removeprefix(PARTS + '/')}@{self.sha256}"

    @classmethod
    def parse(cls, text: str, where: str) -> ShardName:
        """The inverse of ``str``. Raises :class:`TornCheckpoint`."""
        folder, _, digest = text.partition("@")
        matched = _FOLDER.fullmatch(folder)
        if matched is not None and _DIGEST.fullmatch(digest):
            name = cls(int(matched[1]), int(matched[2]), digest)
            if str(name) == text:
                return name
        raise TornCheckpoint("the name of a shard must be its folder and its digest, got another text", where=where,
                             value=text[:120], allowed="attempt-NNNNNN/server-K@<sha256>")  # fmt: skip


@dataclass(frozen=True, slots=True)
class WrittenShards:
    """The shards of one moment that a checkpoint names.

    Attributes:
        names: by server; none: the tables are elsewhere.
        bases: the full shards that have the rows which partial ones of them leave out.
    """

    names: tuple[ShardName, ...] = ()
    bases: tuple[ShardName, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names)


#: Of tables that are elsewhere.
NO_SHARDS = WrittenShards()
