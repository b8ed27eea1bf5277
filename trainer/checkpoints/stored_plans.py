"""The plans that the commits of a run in a bucket name: another machine continues a run without the files of its job."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.run_files import PLANS, RunFiles

_PLAN, _SOLUTION = "plan.json", "solution.json"


@dataclass(frozen=True, slots=True)
class PlanDocuments:
    """The documents of a plan, as bytes. They are verified by the digests that name them.

    Attributes:
        plan: the plan, whose SHA-256 is its name.
        solution: the read solution that the plan names.
    """

    plan: bytes
    solution: bytes


def store_plan(files: RunFiles, name: str, documents: PlanDocuments) -> None:
    """Store the documents of a plan; one that is stored stays. Raises :class:`CheckpointNotWritten`."""
    folder = f"{PLANS}/{name}"
    with translated_write_errors(files.place(folder), "the plan of a commit"):
        files.create(folder, _SOLUTION, documents.solution)
        files.create(folder, _PLAN, documents.plan)


def find_plan(files: RunFiles, name: str) -> PlanDocuments | None:
    """The documents of a plan; None if it is not stored."""
    folder = f"{PLANS}/{name}"
    if not files.sizes(folder).keys() >= {_PLAN, _SOLUTION}:
        return None
    return PlanDocuments(files.read(f"{folder}/{_PLAN}"), files.read(f"{folder}/{_SOLUTION}"))
