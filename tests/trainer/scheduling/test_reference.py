from __future__ import annotations

import re

from tests.conftest import ROOT
from trainer.scheduling import fleet
from trainer.scheduling.holds import CAUSE_RULES, TYPE_RULES
from trainer.scheduling.reference import fleet_diagram, fleet_table, hold_table, state_diagram, state_table, with_parts
from trainer.scheduling.transitions import ATTEMPT, TRANSITIONS, JobState

PAGE = ROOT / "docs" / "training-job-inside.md"


def test_the_page_shows_what_the_tables_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == with_parts(written), "run: python -m trainer.scheduling.reference"


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


def test_the_table_of_errors_has_a_row_per_rule() -> None:
    rows = hold_table().splitlines()[2:]
    assert len(rows) == len(CAUSE_RULES) + len(TYPE_RULES) + 1
    assert "| HTTP status 408, 425, 429, 500 to 599 | transient | the service is overloaded or unavailable |" in rows
    assert "| `DataNotReady` | data not ready | the data to train is not there yet |" in rows
    assert rows[-1].startswith("| any other | transient |")


def test_the_diagram_of_a_fleet_has_exactly_the_moves_of_its_table() -> None:
    drawn = {
        (source, label, target)
        for source, target, labels in re.findall(r"^ +(\w+) --> (\w+): (.+)$", fleet_diagram(), re.MULTILINE)
        for label in labels.split(", ")
    }
    assert drawn == {(str(a), str(event), str(b)) for (a, event), b in fleet.TRANSITIONS.items() if a is not b}
    assert len(fleet_table().splitlines()) == 2 + len(fleet.FleetState)
