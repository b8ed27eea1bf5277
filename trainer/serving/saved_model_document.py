"""The description beside a SavedModel's graph, in which ``headrace model export --trained`` says what weights it has."""

from __future__ import annotations

import json
from pathlib import Path

from trainer.checkpoints.local_run import read_file
from trainer.checkpoints.manifest import parse_json
from trainer.checkpoints.run_files import commit_name
from trainer.errors import LinkRefused, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.serving.served_model import ServedModel

#: The description; TensorFlow Serving ignores this folder.
EXTRA = "assets.extra/headrace.json"
_SERVED = "served"


def is_saved_model(target: Path) -> bool:
    """Whether a folder is a SavedModel."""
    return (target / "saved_model.pb").exists()


def read_served_model(target: Path) -> ServedModel:
    """What a SavedModel says of its weights. Raises :class:`TornCheckpoint`, and :class:`LinkRefused` for one without weights."""
    document = _document(target)
    if _SERVED not in document.members():
        raise LinkRefused("a SavedModel must be a trained model that this release exported", where=str(target),
                          next_step="headrace model export MODEL --trained RUN --output FOLDER writes one")  # fmt: skip
    return ServedModel.read(document.at(_SERVED))


def written_document(target: Path, served: ServedModel) -> bytes:
    """The description of a SavedModel with other weights."""
    members = {name: one.value for name, one in _document(target).members().items()}
    members |= {"checkpoint": commit_name(served.position.epochs), _SERVED: served.to_document()}
    return (json.dumps(members, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _document(target: Path) -> DocumentField:
    place = target / EXTRA
    if not place.exists():
        raise TornCheckpoint(
            "a SavedModel must have the description of its export", where=str(place), next_step="export the model again"
        )
    return DocumentField(parse_json(read_file(place), str(place)), str(place))
