"""The calibration of a model as dense arrays, so that exports, links and what they are applied to carry it like weights. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.model.calibration import Calibration
from trainer.model.heads import BINARY
from trainer.model.task_heads import AnyHead, read_head
from trainer.options.document_field import DocumentField
from trainer.run.weights.run_state import RunProgress
from transforms.arrays import Array

_PREFIX = "calibration/"
_IDENTITY = Calibration()


def calibration_arrays(
    head: AnyHead, config: Mapping[str, Any], calibrations: Mapping[str, Calibration]
) -> dict[str, Array]:
    """For each binary label :meth:`Calibration.table <trainer.model.calibration.Calibration.table>`; none if the run's options ask for none.

    Before a map is fitted it is the one that changes nothing, so that all commits of a run have the same arrays.
    """
    if config.get("calibration", "none") == "none":
        return {}
    names = [name for name, one in head.each if one.task == "binary"]
    return {calibration_name(name): calibrations.get(name, _IDENTITY).table() for name in names}


def calibration_arrays_of(document: DocumentField) -> dict[str, Array]:
    """The arrays for the document of a commit. Raises :class:`~trainer.errors.TornCheckpoint` for an invalid one."""
    members = document.members()
    config = {name: one.value for name, one in document.at("identity").at("config").members().items()}
    head = read_head(members["head"]) if "head" in members else BINARY
    return calibration_arrays(head, config, RunProgress.read(document).calibrations)


def calibration_name(label: str) -> str:
    """The array's name; "" is the only label."""
    return f"{_PREFIX}{label}"
