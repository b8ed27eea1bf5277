"""The screen of training in phases, after those of its trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import count_text, secs_text

if TYPE_CHECKING:
    from trainer.job.launch.phase_log import PhaseLog


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """All trainings of a run in one phase.

    Attributes:
        phase: "initial" or "caught_up".
        trainings: commands that have ended.
        hosts, servers: of the last one.
        events: that they trained.
        secs: that they took.
        host_secs: the same for each host and server, added up.
    """

    phase: str
    trainings: int
    hosts: int
    servers: int
    events: int
    secs: float
    host_secs: float


@dataclass(frozen=True, slots=True, repr=False)
class PhasesScreen(Shown):
    """The phases of a run.

    Attributes:
        is_caught_up: whether initial training is over.
        phases: those that were trained.
        training: the JSON of the last training of this command; empty if it printed none.
    """

    is_caught_up: bool
    phases: tuple[PhaseRow, ...]
    training: Mapping[str, Any]

    @classmethod
    def of(cls, log: PhaseLog, trainings: Sequence[Mapping[str, Any]]) -> PhasesScreen:
        """The screen of a log."""
        rows = []
        for name in dict.fromkeys(one.phase for one in log.runs):
            own = [one for one in log.runs if one.phase == name]
            processes = sum((one.hosts + one.servers) * one.secs for one in own)
            rows.append(PhaseRow(name, len(own), own[-1].hosts, own[-1].servers, sum(one.events for one in own), sum(one.secs for one in own), processes))  # fmt: skip
        return cls(log.is_caught_up, tuple(rows), next((one for one in reversed(trainings) if one), {}))

    def render(self) -> RenderableType:
        """A row for each phase."""
        columns = ("phase", "trainings>", "hosts>", "servers>", "events>", "time>", "time of all processes>")
        rows = [
            (one.phase.replace("_", "-"), str(one.trainings), str(one.hosts), str(one.servers), count_text(one.events),
             secs_text(one.secs), secs_text(one.host_secs))
            for one in self.phases
        ]  # fmt: skip
        return grid(columns, rows, title="phases")
