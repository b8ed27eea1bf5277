"""What hosts have sent by towers, as a training screen says it, and on its way from their progress."""

from __future__ import annotations

from headrace.screens.tower_exchange import tower_lines
from trainer.tables.tower_figures import TowerFigures

FIGURES = TowerFigures(3 << 20, 1200, 1 << 20, 30, 10)


def test_lines_say_what_moved_and_in_which_form():
    assert tower_lines(FIGURES) == [
        "3.0 MiB between machines in 1,200 messages, 1.0 MiB inside them",
        "75.0 % of the tables of batches went as rows, which are fewer bytes there than combined bags; others went as bags",
    ]
    assert len(tower_lines(TowerFigures(0, 0, 0, 0, 0))) == 1
    assert tower_lines(TowerFigures(3, 1, 0, 39, 1))[-1].startswith("towers spare few bytes between machines here")


def test_figures_return_from_the_progress_of_hosts_and_add_up():
    numbers = {**FIGURES.to_numbers(), "loss": 0.5}
    assert TowerFigures.of_numbers(numbers) == FIGURES
    assert TowerFigures.of_numbers({"loss": 0.5}) is None
    assert TowerFigures.of_numbers({**numbers, "tower_as_rows": -1.0}) is None
    assert TowerFigures(6 << 20, 2400, 2 << 20, 60, 20) == FIGURES + FIGURES
