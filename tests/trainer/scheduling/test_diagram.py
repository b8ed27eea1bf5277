from __future__ import annotations

import re

from tests.conftest import ROOT
from trainer.scheduling.diagram import state_diagram, state_table, with_drawing
from trainer.scheduling.transitions import ATTEMPT, TRANSITIONS, JobState

PAGE = ROOT / "docs" / "training-job.md"


def test_the_page_shows_what_the_table_says() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == with_drawing(written), "run: python -m trainer.scheduling.diagram"


def test_the_diagram_has_exactly_the_moves_of_the_table() -> None:
    drawn = set()
    for source, target, labels in re.findall(r"^ +(\w+) --> (\w+): (.+)$", state_diagram(), re.MULTILINE):
        sources = sorted(ATTEMPT) if source == "ATTEMPT" else [JobState(source)]
        drawn |= {(state, label, target) for state in sources for label in labels.split(", ")}
    moves = {(state, str(kind), str(after)) for (state, kind), all_ in TRANSITIONS.items() for after in all_ - {state}}
    assert {(str(state), label, target) for state, label, target in drawn} == {
        (str(state), kind, after) for state, kind, after in moves
    }


def test_the_table_describes_every_state() -> None:
    assert [line.split(" | ")[0].strip("| ") for line in state_table().splitlines()[2:]] == [
        str(one) for one in JobState
    ]
