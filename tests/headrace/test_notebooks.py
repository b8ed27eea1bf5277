"""The notebook of the tutorial runs as it is, from a raw file to a trained model and its curve."""

from __future__ import annotations

import os

import nbclient
import nbformat
import pytest

from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS

TUTORIAL = ROOT / "docs" / "notebooks" / "tutorial.ipynb"


def test_the_tutorial_is_kept_without_outputs():
    cells = [one for one in nbformat.read(TUTORIAL, 4).cells if one.cell_type == "code"]
    assert all(not one.outputs and one.execution_count is None for one in cells)


@pytest.mark.slow
def test_the_tutorial_runs_and_shows_what_its_text_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(TUTORIAL, 4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=PATIENCE_SECS, kernel_name="python3", resources=where).execute()
    shown = {one.source.strip().split("\n")[-1]: one.outputs for one in notebook.cells if one.cell_type == "code"}

    def text_of(cell):
        return "".join(one.get("text", "") + one.get("data", {}).get("text/plain", "") for one in shown[cell])

    assert "1 row" in text_of(
        'w.import_log("ads", "tutorial/ads.csv", schema={**schema.schema, "partition_by": "hour"})'
    )
    assert "test " in text_of("run")
    assert "normalized_entropy" in text_of("run.metrics")
    assert any(
        "<svg" in one.get("data", {}).get("text/html", "") for one in shown['w.curves("ads_ctr", smoothing=0.6)']
    )
    assert "66.7 %" in text_of("w.submit(other)")
    assert "144 hits, 0 misses" in text_of('w.explain("ads_ctr_small")')
    assert "no input is above its limits" in text_of(
        'w.drift("ads_ctr", last=timedelta(hours=12), against=timedelta(hours=36))'
    )
    assert "would evict 96 memos" in text_of("preview")
    bars = [
        one for outputs in shown.values() for one in outputs if "<progress" in one.get("data", {}).get("text/html", "")
    ]
    assert len(bars) >= 5
    assert not [one for outputs in shown.values() for one in outputs if one.output_type == "error"]
