"""The generated parts of docs/training-job-inside.md: the state diagrams, the states, and the classes of errors.

``python -m trainer.scheduling.reference`` writes them into the page; a test compares them.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainer.scheduling import fleet
from trainer.scheduling.holds import CAUSE_RULES, DEFAULT_RULE, TYPE_RULES, HoldRule
from trainer.scheduling.transitions import ATTEMPT, MEANING, TRANSITIONS, EventKind, JobState

#: The lines around a generated part.
_BEGIN = "<!-- {name}: written by python -m trainer.scheduling.reference -->"
_END = "<!-- end of {name} -->"

_ATTEMPT = tuple(state for state in JobState if state in ATTEMPT)
_GROUP = "ATTEMPT"


def _edges() -> dict[tuple[str, str], list[str]]:
    """The events by source and target; a move of all states of an attempt is one edge of their group."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in EventKind:
        common = frozenset[JobState].intersection(
            *(TRANSITIONS.get((state, kind), frozenset()) - ATTEMPT for state in _ATTEMPT)
        )
        for state in JobState:
            for target in _ordered(TRANSITIONS.get((state, kind), frozenset()) - {state}):
                source = _GROUP if state in ATTEMPT and target in common else str(state)
                labels = found.setdefault((source, str(target)), [])
                if str(kind) not in labels:
                    labels.append(str(kind))
    return found


def _ordered(states: frozenset[JobState]) -> Iterator[JobState]:
    return (state for state in JobState if state in states)


def state_diagram() -> str:
    """A Mermaid diagram of all moves between two states."""
    lines = ["stateDiagram-v2", "  [*] --> STARTING", f'  state "an attempt" as {_GROUP} {{']
    edges = _edges()
    inside = {str(state) for state in _ATTEMPT}
    for is_inner in (True, False):
        for (source, target), labels in edges.items():
            if ({source, target} <= inside) is is_inner:
                indent = "    " if is_inner else "  "
                lines.append(f"{indent}{source} --> {target}: {', '.join(labels)}")
        lines += ["  }"] if is_inner else []
    return "\n".join([*lines, "  DONE --> [*]", "  STOPPED --> [*]"])


def state_table() -> str:
    """A Markdown table of the states, their meanings, and the events that are late in them."""
    rows = ["| state | meaning | late events |", "|---|---|---|"]
    for state in JobState:
        late = [str(kind) for kind in EventKind if TRANSITIONS.get((state, kind)) == frozenset()]
        rows.append(f"| {state} | {MEANING[state]} | {', '.join(late) or 'none'} |")
    return "\n".join(rows)


def fleet_diagram() -> str:
    """A Mermaid diagram of the states of a job in a fleet."""
    labels: dict[tuple[str, str], list[str]] = {}
    for (state, event), target in fleet.TRANSITIONS.items():
        if target is not state:
            labels.setdefault((state, target), []).append(event)
    moves = [f"  {source} --> {target}: {', '.join(found)}" for (source, target), found in labels.items()]
    ends = [f"  {state} --> [*]" for state in fleet.FleetState if state in fleet.ENDED]
    return "\n".join(["stateDiagram-v2", "  [*] --> QUEUED: submit", *moves, *ends])


def fleet_table() -> str:
    """A Markdown table of these states, and what they are on a cluster."""
    rows = ["| state | meaning | on a cluster |", "|---|---|---|"]
    rows += [f"| {state} | {fleet.MEANING[state]} | {fleet.ON_A_CLUSTER[state]} |" for state in fleet.FleetState]
    return "\n".join(rows)


def hold_table() -> str:
    """A Markdown table of the rules that classify errors, in their order."""
    rows = ["| error | class | reason |", "|---|---|---|"]
    for rule in (*CAUSE_RULES, *TYPE_RULES, DEFAULT_RULE):
        rows.append(f"| {_condition(rule)} | {rule.outcome.replace('_', ' ')} | {rule.why} |")
    return "\n".join(rows)


def _condition(rule: HoldRule) -> str:
    conditions = [", ".join(f"`{name}`" for name in sorted(rule.types))] if rule.types else []
    if rule.errnos:
        conditions.append(", ".join(sorted(errno.errorcode[number] for number in rule.errnos)))
    if rule.statuses:
        conditions.append(f"HTTP status {_spans(sorted(rule.statuses))}")
    if rule.pattern:
        conditions.append(f"with the text `{rule.pattern}`".replace("|", "\\|"))
    return " ".join(conditions) or "any other"


def _spans(numbers: list[int]) -> str:
    """Numbers as ranges."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))


_PARTS: Mapping[str, Callable[[], str]] = {
    "states": lambda: f"```mermaid\n{state_diagram()}\n```\n\n{state_table()}",
    "errors": hold_table,
    "fleet": lambda: f"```mermaid\n{fleet_diagram()}\n```\n\n{fleet_table()}",
}


def with_parts(page: str) -> str:
    """The page with its generated parts replaced."""
    for name, part in _PARTS.items():
        begin, end = _BEGIN.format(name=name), _END.format(name=name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{part()}\n{end}{after}"
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/training-job-inside.md")
    path.write_text(with_parts(path.read_text(encoding="utf-8")), encoding="utf-8")
