"""This release goes on from the homes that earlier releases have left: catalog, memos, checkpoints, run folders and chains of weights."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.release.kept_home import FIGURES, HOMES, OPTIONS, TEST_END, command, figures

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("release", sorted(one.stem for one in HOMES.glob("*.zip")))
def test_a_home_of_a_release_is_read_and_continued(release: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(HOMES / f"{release}.zip") as archive:
        archive.extractall(tmp_path)
    # the home was made in another folder
    command(
        tmp_path,
        "table",
        "add",
        "coupons",
        str(tmp_path / "home" / "tables" / "coupons"),
        "--time-column",
        "viewed_at",
        "--move",
    )

    before: dict[str, Any] = json.loads((tmp_path / FIGURES).read_text(encoding="utf-8"))
    found = figures(tmp_path)
    assert math.isclose(found.pop("log_loss"), before.pop("log_loss"), rel_tol=1e-6)
    assert math.isclose(found.pop("auc"), before.pop("auc"), rel_tol=1e-6)
    assert found == before

    status = command(tmp_path, "status")
    assert all(queue["queued"] == 0 for queue in status["queues"]), "nothing is computed again"
    assert command(tmp_path, "verify")["wrong"] == 0
    command(tmp_path, "ckpt", "verify", "coupons")
    command(tmp_path, "export", "verify", "chain")
    command(tmp_path, "model", "submit", "coupons.py")
    assert command(tmp_path, "work", "--until-idle")["memos"] == 0, "every fingerprint is as it was"

    trained = command(tmp_path, "train", "coupons", "--end", TEST_END, "--config", json.dumps(OPTIONS))
    assert Path(trained["resumed_from"]).name == before["checkpoint"]
    assert (trained["exact"], trained["most_times"]) == (True, 1)
    delta = command(tmp_path, "export", "delta", "coupons", "--output", "chain")
    assert delta
    command(tmp_path, "export", "verify", "chain")
