"""The document of a run's plans: its bytes, its bounds, and how changes and measurements enter it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.errors import TornCheckpoint
from trainer.job.feedback import plan_log
from trainer.job.feedback.plan_log import MOST_CHANGES, PlanChange, PlanLog
from trainer.job.feedback.replanning import Candidate

_LOG = PlanLog(looked_at=7, looks=5, changes=(PlanChange("a" * 64, "commit", 3),), candidates=(Candidate("", 1.5),))


def test_the_document_has_these_bytes(tmp_path: Path) -> None:
    """What another release wrote, and reads."""
    _LOG.write(tmp_path)
    change = {"commit": 3, "imbalance": 1.0, "measured_secs": None, "move_secs": 0.0, "moved_bytes": 0, "new_imbalance": 1.0, "new_measured_secs": None,
              "new_step_secs": 0.0, "pause_secs": None, "plan": "a" * 64, "reason": "commit", "saved_secs": 0.0, "step_secs": 0.0}  # fmt: skip
    assert json.loads((tmp_path / "plans.json").read_bytes()) == {
        "candidates": [{"plan": "", "saved_secs": 1.5}], "changes": [change], "format": "headrace-plans-1", "imbalance": 0.0, "looked_at": 7, "looks": 5,
    }  # fmt: skip
    assert PlanLog.read(str(tmp_path)) == _LOG
    assert PlanLog.read(tmp_path / "none") == PlanLog()
    assert PlanLog().plan == ""


def read_with(folder: Path, place: Path, **members: Any) -> PlanLog:
    """A log in which the newest change has other members."""
    _LOG.write(folder)
    document = json.loads(place.read_bytes())
    document["changes"][0].update({key: value for key, value in members.items() if key in document["changes"][0]})
    document.update({key: value for key, value in members.items() if key in document})
    place.write_text(json.dumps(document))
    return PlanLog.read(folder)


@pytest.mark.parametrize(
    ("name", "least", "most", "beyond"),
    [
        ("looks", 0, 1 << 62, (-1, (1 << 62) + 1)),
        ("commit", 0, 1 << 62, (-1, (1 << 62) + 1)),
        ("step_secs", 0.0, 1e300, (-0.5,)),
        ("pause_secs", 0.0, 1e300, (-0.5,)),
        ("reason", "statistics", "pays", ("", "other")),
        ("format", "headrace-plans-1", "headrace-plans-1", ("headrace-plans-2",)),
    ],
)
def test_values_have_bounds(tmp_path: Path, name: str, least: Any, most: Any, beyond: tuple[Any, ...]) -> None:
    place = tmp_path / "plans.json"
    for value in (least, most):
        read_with(tmp_path, place, **{name: value})
    for value in beyond:
        with pytest.raises(TornCheckpoint):
            read_with(tmp_path, place, **{name: value})


def test_only_short_documents_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _LOG.write(tmp_path)
    size = len((tmp_path / "plans.json").read_bytes())
    monkeypatch.setattr(plan_log, "_MOST_BYTES", size)
    assert PlanLog.read(tmp_path) == _LOG
    monkeypatch.setattr(plan_log, "_MOST_BYTES", size - 1)
    with pytest.raises(TornCheckpoint, match="must be a short document"):
        PlanLog.read(tmp_path)


def test_the_newest_changes_are_kept() -> None:
    log = PlanLog()
    for number in range(MOST_CHANGES + 2):
        log = log.with_change(PlanChange(str(number), "pays"))
    assert [one.plan for one in log.changes] == [str(number) for number in range(2, MOST_CHANGES + 2)]
    assert log.plan == str(MOST_CHANGES + 1)


def test_what_is_measured_is_noted_at_the_newest_change() -> None:
    first, second = PlanChange("a", "commit"), PlanChange("b", "pays", 2)
    log = PlanLog(changes=(first, second)).with_measured(0.5, 3.0)
    assert log.changes == (first, PlanChange("b", "pays", 2, pause_secs=3.0, new_measured_secs=0.5))
    assert log.with_measured(0.25, None).changes[1] == PlanChange(
        "b", "pays", 2, pause_secs=3.0, new_measured_secs=0.25
    )
    assert log.with_measured(0.25, 0.0).changes[1].pause_secs == 0.0
