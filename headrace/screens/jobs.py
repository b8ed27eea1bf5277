"""Screens of ``headrace jobs``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import many, moment, time_text

if TYPE_CHECKING:
    from trainer.job.launch.fleet_store import StoredJob


@dataclass(frozen=True, slots=True, repr=False)
class JobsScreen(Listing):
    """The jobs of the fleet in ``folder``."""

    rows_field: ClassVar[str] = "jobs"
    columns: ClassVar[tuple[str, ...]] = (
        "number",
        "name",
        "state",
        "priority",
        "slots",
        "starts",
        "failures",
        "reason",
        "submitted",
        "since",
    )

    folder: str
    jobs: tuple[StoredJob, ...]

    def json_fields(self) -> dict[str, Any]:
        """The jobs by number."""
        return {"fleet": self.folder, "jobs": [_fields(one) for one in self.jobs]}

    def render(self) -> RenderableType:
        """One line per job."""
        if not self.jobs:
            return "the fleet has no job\nnext: headrace jobs submit -- train MODEL"
        rows = [
            (str(one.job.number), one.job.name, str(one.job.state), str(one.job.priority), str(one.job.slots),
             time_text(moment(one.changed_secs)), one.job.reason or "-")
            for one in self.jobs
        ]  # fmt: skip
        return grid(("job>", "name", "state", "priority>", "slots>", "since", "reason*"), rows)


@dataclass(frozen=True, slots=True, repr=False)
class JobScreen(Shown):
    """A job of a fleet.

    Attributes:
        stored: the job.
        log: the file of its output.
        run_dir: the folder of its checkpoints; empty while it is unknown.
    """

    stored: StoredJob
    log: str
    run_dir: str

    def json_fields(self) -> dict[str, Any]:
        """The job, its command and its files."""
        own = self.stored.submission
        return {
            **_fields(self.stored),
            "arguments": list(own.arguments),
            "folder": own.folder,
            "home": own.home,
            "run_dir": self.run_dir,
            "log": self.log,
        }

    def pairs(self) -> list[tuple[str, str]]:
        """The fields as texts, by name; those that are known."""
        from trainer.scheduling.fleet import MEANING

        job, own = self.stored.job, self.stored.submission
        pairs = [
            ("job", f"{job.number}, {job.name}"),
            ("state", f"{job.state}: {MEANING[job.state]}"),
            ("reason", job.reason),
            ("priority", str(job.priority)),
            ("slots", str(job.slots)),
            ("submitted", time_text(moment(self.stored.submitted_secs))),
            ("since", time_text(moment(self.stored.changed_secs))),
            ("starts", f"{job.starts}; {many(job.failures, 'failure')} since the last notice or hold"),
            ("command", shlex.join(("headrace", "train", *own.arguments))),
            ("in", own.folder),
            ("run", self.run_dir),
            ("output", self.log),
        ]
        return [(name, text) for name, text in pairs if text]

    def render(self) -> RenderableType:
        """The fields, one a line, and the next step of a held job."""
        from trainer.scheduling.fleet import FleetState

        if self.stored.job.state is not FleetState.HELD:
            return facts(self.pairs())
        return Group(facts(self.pairs()), "", f"next: correct the cause, then: headrace holds release {self.run_dir or 'RUN'}")  # fmt: skip


def _fields(one: StoredJob) -> dict[str, Any]:
    job = one.job
    return {
        "number": job.number,
        "name": job.name,
        "state": str(job.state),
        "priority": job.priority,
        "slots": job.slots,
        "starts": job.starts,
        "failures": job.failures,
        "reason": job.reason,
        "submitted": moment(one.submitted_secs),
        "since": moment(one.changed_secs),
    }
