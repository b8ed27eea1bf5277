"""The state diagram and the state table of docs/training-job.md, drawn from the transitions.

``python -m trainer.scheduling.diagram`` writes both into the page; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from trainer.scheduling.transitions import ATTEMPT, MEANING, TRANSITIONS, EventKind, JobState

BEGIN = "<!-- drawn by python -m trainer.scheduling.diagram -->"
END = "<!-- end of drawing -->"

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


def drawing() -> str:
    """The generated part of the page."""
    return f"{BEGIN}\n```mermaid\n{state_diagram()}\n```\n\n{state_table()}\n{END}"


def with_drawing(page: str) -> str:
    """The page with its generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + drawing() + after


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/training-job.md")
    path.write_text(with_drawing(path.read_text(encoding="utf-8")), encoding="utf-8")
