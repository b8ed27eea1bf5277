"""The digest of the model that a run trains: links of one chain, and what they are applied to, must have the same one. Pure.

It covers the table, label, inputs, task and options of the run, not its data: a run goes on when partitions are added. An option at its
neutral value is left out, so that releases with further options give the same digest.
"""

from __future__ import annotations

import hashlib
from typing import Any

from trainer.checkpoints.manifest import canonical_json
from trainer.model.heads import BINARY
from trainer.model.task_heads import AnyHead, read_head
from trainer.options.config import TrainConfig
from trainer.options.document_field import DocumentField
from trainer.run.progress.identity import RunIdentity

_OF_DATA = ("partitions", "fragments", "config")


def model_digest(identity: RunIdentity, head: AnyHead) -> str:
    """SHA-256, 64 hexadecimal digits."""
    members = {name: value for name, value in identity.to_document().items() if name not in _OF_DATA}
    neutral = TrainConfig("run").to_document()
    options = {name: value for name, value in identity.config.items() if neutral.get(name) != value}
    return hashlib.sha256(canonical_json({**members, "options": options, "head": head.to_document()})).hexdigest()


def model_digest_of(document: DocumentField) -> str:
    """The digest for the document of a commit. Raises :class:`~trainer.errors.TornCheckpoint` for an invalid one."""
    members: dict[str, Any] = document.members()
    head = read_head(members["head"]) if "head" in members else BINARY
    return model_digest(RunIdentity.read(document.at("identity")), head)
