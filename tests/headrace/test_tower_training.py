"""``headrace train`` with modules of towers: the ratio is reported, a run goes on, and what does not fit is refused before training."""

from __future__ import annotations

import json

import pytest

from tests.headrace.conftest import UNTRIED

pytest.importorskip("tensorflow")

OPTIONS = {**UNTRIED, "deep": True, "dim": 8, "batch_rows": 64, "embedding_learning_rate": 0.01}


@pytest.mark.medium
def test_a_model_with_towers_is_trained_and_scored(submitted, tmp_path):
    file = tmp_path / "training.json"

    def write(**modules):
        file.write_text(json.dumps({**OPTIONS, "tower_modules": modules}), encoding="utf-8")

    for towers, words in (
        ([["overlap"], ["user"], ["price"]], "the number of towers must be at most the number of embedding inputs"),
        ([["overlap"]], "each feature of ids must be in a tower"),
        ([["overlap", "user", "price"]], "a tower must name features of ids"),
        ([["overlap"], ["user", "overlap"]], "a feature must be in one tower"),
    ):
        write(towers=towers, compression=4)
        refused = submitted("train", "first", "--config", file, status=2)
        assert words in refused.err
    write(towers=[["overlap"], ["user"]], compression=3)
    assert "compression must divide the dim of the model" in submitted("train", "first", "--config", file, status=2).err

    made = tmp_path / "towers.json"
    submitted("towers", "make", "first", "--towers", 2, "--strategy", "strided", "--output", made)
    made_of_other = tmp_path / "other.json"
    made_of_other.write_text("{}", encoding="utf-8")
    for file_of_towers, words in (
        ("other.json", "headrace towers make writes towers"),
        ("none.json", "must be readable"),
    ):
        write(towers=file_of_towers, compression=4)
        assert words in submitted("train", "first", "--config", file, status=2).err
    write(towers="towers.json", compression=4)
    trained = submitted("train", "first", "--config", file, "--json").json
    assert trained["finished"]
    assert trained["towers"] == {"towers": 2, "columns": 16, "outputs": 4, "compression": 4.0, "on_own_hosts": False}
    again = submitted("train", "first", "--config", file)
    assert "2 towers of 16 columns, compressed to 4: ratio 4" in again.out
    shown = submitted("ckpt", "show", "first", "--json").json
    assert shown["options"]["tower_modules"] == {
        "towers": [["overlap"], ["user"]],
        "module": "projection",
        "compression": 4,
    }
