"""Steps of a job by host: in how many of its steps a host had events to train. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transforms.derived_documents import Row
from transforms.documents import Part


@dataclass(frozen=True, slots=True)
class HostSteps:
    """The steps of a host.

    Attributes:
        steps: those in which it had events.
        taken: all that it took part in.
    """

    steps: int
    taken: int

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for more steps with events than steps."""
        if self.steps > self.taken:
            raise part.refused("the steps of a host with events, and all of them")


#: The steps of the hosts that a run has had, by name.
StepsByHost = Mapping[str, Row[HostSteps]]
_NONE = HostSteps(0, 0)


def count_step(before: StepsByHost, hosts: Sequence[str], had_events: Sequence[bool]) -> StepsByHost:
    """The counts after one more step of these hosts."""
    after = dict(before)
    for name, had in zip(hosts, had_events, strict=True):
        known = before.get(name, _NONE)
        after[name] = HostSteps(known.steps + had, known.taken + 1)
    return after


def steps_since(earlier: StepsByHost, later: StepsByHost) -> StepsByHost:
    """What the hosts did between two commits; without those that took part in no step."""
    found = {}
    for name, one in later.items():
        before = earlier.get(name, _NONE)
        if one.taken > before.taken:
            found[name] = HostSteps(one.steps - before.steps, one.taken - before.taken)
    return found


def idle_share(steps: StepsByHost) -> float:
    """The share of all steps of all hosts in which the host had no event; 0 without steps."""
    taken = sum(one.taken for one in steps.values())
    return 1.0 - sum(one.steps for one in steps.values()) / taken if taken else 0.0
