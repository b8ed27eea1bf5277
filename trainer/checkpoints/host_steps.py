"""Steps of a job by host: in how many of its steps a host had events to train. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.document_field import DocumentField
from trainer.errors import TornCheckpoint


@dataclass(frozen=True, slots=True)
class HostSteps:
    """The steps of a host.

    Attributes:
        steps: those in which it had events.
        taken: all that it took part in.
    """

    steps: int
    taken: int


#: The steps of the hosts that a run has had, by name.
StepsByHost = Mapping[str, HostSteps]
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


def steps_document(steps: StepsByHost) -> dict[str, Any]:
    """A JSON object, the inverse of :func:`read_steps`."""
    return {name: [one.steps, one.taken] for name, one in sorted(steps.items())}


def read_steps(field: DocumentField) -> StepsByHost:
    """The steps at ``field``. Raises :class:`TornCheckpoint`."""
    found = {}
    for name, item in field.members().items():
        numbers = [one.count() for one in item.items()]
        if len(numbers) != 2 or numbers[0] > numbers[1]:
            raise TornCheckpoint("the steps of a host must be those with events and all of them", where=item.place,
                                 value=numbers[:3])  # fmt: skip
        found[name] = HostSteps(*numbers)
    return found
