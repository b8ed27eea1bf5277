"""The screen of ``headrace chaos``."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, secs_text

if TYPE_CHECKING:
    from trainer.job.launch.chaos.proof import TrainedEvents

ROLES = ("controller", "reader", "host")
SERVER, WORKER = "server", "worker"
#: A fault between two roles has their names joined by it.
_PAIR = "-"


@dataclass(frozen=True, slots=True)
class DamageRow:
    """What damage of bytes of one kind, between one pair of roles, has done.

    Attributes:
        delivered: how often bytes were damaged; of those begun some meet no bytes.
        ended_connections: how many connections ended soon after, and were made again if they were still needed.
    """

    delivered: int
    ended_connections: int


@dataclass(frozen=True, slots=True, repr=False)
class ChaosScreen(Shown):
    """A job that was trained under faults.

    Attributes:
        run_dir: of the disturbed run.
        planned_faults: those of the schedule.
        faults: the applied ones, by kind and role ("kill host"), or pair of roles ("flip host-server").
        state: in which the job ended.
        lost_secs: of each crash, the training that was lost.
        preempted: the epochs that a notice to a host ended, and those of them that were committed within the notice.
        trained: how often each event was trained.
        differing: the arrays and members that differ from the undisturbed run's; None if there was none.
        disturbed_secs: of the disturbed run.
        servers: the parameter servers of the job.
        workers: the embedding workers of the job.
        damages: what damage of bytes has done, by kind and pair of roles.
        visits: of neighbours without the token of the job.
        let_in: the roles that have let such a neighbour in.
        memory_holds: how often the job was held because the memory folder of its servers was full, and released when it had space.
        hold: why the job is held; empty if it is not.
    """

    model: str
    run_dir: str
    seed: int
    planned_faults: int
    faults: dict[str, int]
    state: str
    attempts: int
    commits: int
    crashes: int
    lost_secs: tuple[float, ...]
    preempted: tuple[int, int]
    trained: TrainedEvents
    disturbed_secs: float
    differing: tuple[str, ...] | None = None
    secs: float = 0.0
    servers: int = 0
    workers: int = 0
    damages: dict[str, DamageRow] = field(default_factory=dict)
    visits: int = 0
    let_in: tuple[str, ...] = ()
    memory_holds: int = 0
    hold: str = ""

    @property
    def is_done(self) -> bool:
        """Whether the job has trained everything."""
        return self.state == "DONE"

    @property
    def is_right(self) -> bool:
        """Whether the job was done, each event was trained as often as it should be, all weights are equal, and no neighbour was let in."""
        return self.is_done and self.trained.is_exact and not self.differing and not self.let_in

    def json_fields(self) -> dict[str, Any]:
        """The fields, with the numbers of applied faults and of damages that were delivered."""
        return {
            **fields_of(self),
            "applied_faults": sum(self.faults.values()),
            "delivered_damages": sum(one.delivered for one in self.damages.values()),
            "is_right": self.is_right,
        }

    def render(self) -> RenderableType:
        """Faults by kind and role, damage of bytes by kind and pair of roles, then what they cost."""
        counts = {name.partition(" ")[::2]: count for name, count in self.faults.items()}
        kinds = sorted({kind for kind, role in counts if _PAIR not in role})
        roles = (*ROLES, *((SERVER,) if self.servers else ()), *((WORKER,) if self.workers else ()))
        rows = [(kind, *(count_text(counts.get((kind, role), 0)) for role in roles)) for kind in kinds]
        table = grid(
            ("fault", *(f"{role}>" for role in roles)), rows, title=f"faults of {self.model}, seed {self.seed}"
        )
        applied, trained = sum(self.faults.values()), self.trained
        lost = sorted(self.lost_secs)
        pairs = [
            ("faults", f"{applied} of {self.planned_faults}" + ("" if applied == self.planned_faults else ": the job ended before the others")),
            ("job", f"{self.state.lower()} after {many(self.attempts, 'attempt')}, {many(self.commits, 'commit')}, {secs_text(self.disturbed_secs)}"),
            ("crashes", f"{self.crashes}" + (
                f", which lost {median(lost):.1f} s of training each in the median, {lost[-1]:.1f} s at most" if lost else "")),
            ("preempted", f"{many(self.preempted[0], 'epoch')}, {self.preempted[1]} of them committed within the notice"),
            ("events", f"{count_text(trained.events)}, to be trained {many(trained.expected, 'time')} each: {trained.lost} lost, {trained.repeated} repeated"),
        ]  # fmt: skip
        if self.visits:
            pairs.append(("neighbours", f"{many(self.visits, 'visit')} without the token, " + (
                f"let in by: {', '.join(self.let_in)}" if self.let_in else "all refused")))  # fmt: skip
        if self.memory_holds:
            pairs.append(("memory", f"{many(self.memory_holds, 'hold')} by a full folder, released when it had space"))
        if self.hold:
            pairs.append(("hold", self.hold))
        if self.differing is not None:
            differing = ", ".join(self.differing[:5])
            pairs.append(("weights", f"differ from the undisturbed run's: {differing}" if differing else
                          "all weights, slots and the history equal the undisturbed run's, bit for bit"))  # fmt: skip
        shown = [table] if kinds else []
        return Group(*shown, *self._damage_table(), facts([*pairs, ("run", self.run_dir)]))

    def _damage_table(self) -> list[RenderableType]:
        """By pair of roles and kind, how often bytes were damaged, and the connections that ended by it."""
        if not self.damages:
            return []
        found = {name.partition(" ")[::2]: one for name, one in self.damages.items()}
        kinds, pairs = sorted({kind for kind, _ in found}), sorted({pair for _, pair in found})
        none = DamageRow(0, 0)
        rows = []
        for pair in pairs:
            own = [found.get((kind, pair), none) for kind in kinds]
            ended = sum(one.ended_connections for one in own)
            rows.append((pair, *(count_text(one.delivered) for one in own), count_text(ended)))
        title = f"damaged bytes, {count_text(sum(one.delivered for one in found.values()))} times"
        return [grid(("between", *(f"{kind}>" for kind in kinds), "connections ended>"), rows, title=title)]
