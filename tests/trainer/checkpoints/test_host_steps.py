from __future__ import annotations

from dataclasses import dataclass

import pytest

from trainer.checkpoints.host_steps import HostSteps, StepsByHost, count_step, idle_share, steps_since
from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from transforms.derived_documents import document_of


@dataclass(frozen=True)
class Stored:
    steps: StepsByHost


def test_steps_are_counted_by_host() -> None:
    steps = {}
    for had_events in ((True, True), (True, False), (True, True)):
        steps = count_step(steps, ("h0", "h1"), had_events)
    assert steps == {"h0": HostSteps(3, 3), "h1": HostSteps(2, 3)}
    assert idle_share(steps) == pytest.approx(1 / 6)
    later = count_step(steps, ("h0", "h2"), (True, True))
    assert steps_since(steps, later) == {"h0": HostSteps(1, 1), "h2": HostSteps(1, 1)}
    assert idle_share({}) == 0.0
    written = document_of(Stored(later))
    assert written == {"steps": {"h0": [4, 4], "h1": [2, 3], "h2": [1, 1]}}
    assert OPEN.read(Stored, DocumentField(written, "steps")) == Stored(later)


@pytest.mark.parametrize("wrong", [[1], [1, 2, 3], [3, 2], [-1, 2], ["1", 2], {}, 7])
def test_wrong_steps_are_torn(wrong: object) -> None:
    with pytest.raises(TornCheckpoint):
        OPEN.read(Stored, DocumentField({"steps": {"h0": wrong}}, "steps"))
