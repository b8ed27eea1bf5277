"""``headrace towers``: made of a trained run, shown and drawn."""

from __future__ import annotations

import json
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest

from headrace.screens.tower_drawing import towers_svg
from headrace.screens.towers import towers_screen
from tests.headrace.test_commands import check_golden
from tests.trainer.planning.towers.tower_plans import features_of, interactions_of
from trainer.planning.towers.partitioner import make_towers
from trainer.planning.towers.tower_document import read_towers, towers_bytes

SVG = "{http://www.w3.org/2000/svg}"
OPTIONS = {"batch_rows": 64, "passes": 1, "dim": 8, "dims": {"user": 16}, "bottom_mlp": [8], "top_mlp": [8], "dense_learning_rate": 0.01,
           "deep": True, "linear": False, "linear_learning_rate": 0.05}  # fmt: skip


@pytest.fixture
def towers(cli, tmp_path, monkeypatch):
    """Towers in ``towers.json`` of the current folder, of stated interactions."""
    monkeypatch.chdir(tmp_path)
    block = np.arange(12) % 3
    known = interactions_of(np.where(block[:, None] == block[None], 0.9, 0.1), events=5000)
    cli.plan = make_towers(
        features_of(12), 3, strategy="coherent", interactions=known, source="run first-v1, checkpoint epoch-1"
    )
    (tmp_path / "towers.json").write_bytes(towers_bytes(cli.plan))
    return cli


def test_towers_are_shown(towers):
    check_golden("towers_show", towers("towers", "show", "towers.json").out)
    document = towers("towers", "show", "towers.json", "--json").json
    assert [one["features"] for one in document["towers"]] == [list(tower) for tower in towers.plan.towers]
    assert document["inside"] == pytest.approx(0.9)
    assert document["between"] == pytest.approx(0.1)


def test_the_drawing_has_each_feature_in_the_colour_of_its_tower(towers, tmp_path):
    towers("towers", "show", "towers.json", "--svg", "towers.svg")
    drawing = (tmp_path / "towers.svg").read_text()
    assert drawing == towers_svg(towers.plan) + "\n"
    root = ElementTree.fromstring(drawing)
    circles = {one[0].text: one.get("fill") for one in root.iter(f"{SVG}circle")}
    owner = towers.plan.tower_of()
    assert set(circles) == {f"{name}: tower {number}" for name, number in owner.items()}
    assert len(set(circles.values())) == 3
    assert len({(text.rpartition(" ")[2], colour) for text, colour in circles.items()}) == 3
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert all(one.name in texts for one in towers.plan.features)


def test_odd_names_do_not_break_the_drawing():
    features = tuple(type(one)(f'<b>&"{one.name}', one.table, 1, 1.0) for one in features_of(2))
    known = interactions_of(np.eye(2))
    plan = make_towers(features, 2, strategy="diverse", interactions=type(known)(tuple(one.name for one in features), known.values, 1), source="<s>")  # fmt: skip
    root = ElementTree.fromstring(towers_svg(plan))
    assert '<b>&"f0' in [one.text for one in root.iter(f"{SVG}text")]


def test_one_feature_is_drawn():
    plan = make_towers(features_of(1), 1, strategy="diverse", interactions=interactions_of(np.eye(1)))
    assert "nan" not in towers_svg(plan)
    assert towers_screen("", plan).inside is None


@pytest.fixture
def trained(submitted, tmp_path):
    """A trained DLRM, one of its features of another width than the others."""
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps(OPTIONS), encoding="utf-8")
    submitted("train", "second", "--end", "2026-03-02T02:00", "--config", settings)
    return submitted


@pytest.mark.slow
def test_towers_are_made_of_a_trained_run(trained, tmp_path, monkeypatch):
    from trainer.serving.trained import load_trained
    from warehouse import Warehouse, WarehouseConfig
    from warehouse.matching.solve import read_solution
    from warehouse.reading.reader import read_fragment

    monkeypatch.chdir(tmp_path)
    make = (
        "towers",
        "make",
        "second",
        "--towers",
        "2",
        "--run-dir",
        tmp_path / "home" / "runs" / "second-v1",
        "--events",
        "100000",
    )
    made = trained(*make, "--output", "made.json", "--svg", "made.svg")
    assert trained("towers", "show", "made.json").out == made.out
    plan = read_towers((tmp_path / "made.json").read_bytes(), "made.json")
    assert plan.source.startswith("run second-v1, checkpoint ")
    assert [one.name for one in plan.features] == ["overlap", "user", "position"]
    assert {one.name: one.table_bytes for one in plan.features}["user"] == 500 * 16 * 2 * 4
    trained(*make, "--output", "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "made.json").read_bytes()

    warehouse = Warehouse.open(WarehouseConfig(str(tmp_path / "home")))
    solution, model = read_solution(warehouse, "second"), load_trained(str(tmp_path / "home" / "runs" / "second-v1"))
    from trainer.run.preparation.preparation import fragment_refs
    from trainer.run.progress.identity import in_time_order
    from trainer.run.reading.batches import make_batches
    from trainer.run.reading.stream import fragment_stream

    refs = [ref for part in in_time_order(solution) for ref in fragment_refs(part.key, part.fragments)]
    read = partial(read_fragment, warehouse.storage, solution, rows=True)
    sums, counts = np.zeros((3, 3)), np.zeros((3, 3))
    events = 0
    for batch in make_batches(
        fragment_stream(refs, read, model.weights.layout, ahead=1), model.weights.layout, batch_rows=64
    ):
        events += batch.rows
        parts = np.split(model.weights.look_up(batch).deep[: batch.rows].astype(np.float64), [8, 24], axis=1)
        parts[1] = parts[1] @ model.weights.dense_arrays()["dense/weights/000"]  # the projection of ``user``
        for i in range(3):
            for j in range(3):
                lengths = np.linalg.norm(parts[i], axis=1) * np.linalg.norm(parts[j], axis=1)
                both = lengths > 0
                sums[i, j] += np.abs((parts[i] * parts[j]).sum(axis=1)[both] / lengths[both]).sum()
                counts[i, j] += both.sum()
    warehouse.close()
    assert plan.interactions.events == events
    np.testing.assert_allclose(plan.interactions.matrix(), sums / counts, atol=1e-5)

    fewer = trained(*make[:-1], "50", "--json").json
    assert fewer["sampled_events"] == 50
    strided = trained("towers", "make", "second", "--towers", "3", "--strategy", "strided", "--json").json
    assert [one["features"] for one in strided["towers"]] == [["overlap"], ["user"], ["position"]]


@pytest.mark.slow
def test_without_a_run_two_dlrms_are_trained_and_compared(submitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.json").write_text(json.dumps({"dim": 4, "network": "dcn"}), encoding="utf-8")
    make = (
        "towers",
        "make",
        "second",
        "--towers",
        "2",
        "--config",
        "wide.json",
        "--probe-events",
        "100",
        "--seed",
        2**63 - 1,
    )
    made = submitted(*make, "--output", "made.json")
    assert "by two DLRMs, each trained on" in made.out
    assert "no more than by chance, so these towers are no better than others of equal size" in made.out, (
        "three features"
    )
    submitted(*make, "--output", "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "made.json").read_bytes()
    plan = read_towers((tmp_path / "made.json").read_bytes(), "made.json")
    assert plan.agreement.floor == pytest.approx((2 / (4 * np.pi)) ** 0.5)
    assert submitted("towers", "show", "made.json", "--json").json["agreement"]["is_found"] is False


@pytest.mark.slow
def test_a_run_of_another_network_says_nothing_of_interactions(submitted, tmp_path):
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({**OPTIONS, "dims": {}, "network": "dcn"}), encoding="utf-8")
    submitted("train", "second", "--end", "2026-03-02T02:00", "--config", settings)
    answer = submitted(
        "towers", "make", "second", "--towers", "2", "--run-dir", tmp_path / "home" / "runs" / "second-v1", status=2
    )
    assert "must be one of a DLRM" in answer.err


BAD_INPUT = [
    (("make", "second", "--towers", "4"), 2, "number of towers must be at least 1 and at most"),
    (("make", "second", "--towers", "0"), 2, "number of towers must be at least 1 and at most"),
    (("make", "second", "--towers", "2", "--hosts", "3"), 2, "a multiple of the number of towers"),
    (("make", "second", "--towers", "2", "--hosts", "1"), 2, "a multiple of the number of towers"),
    (("make", "second", "--towers", "2", "--strategy", "other"), 2, "a known word"),
    (("make", "second", "--towers", "2", "--balance", "other"), 2, "a known word"),
    (("make", "second", "--towers", "2", "--events", "0"), 2, "in its range"),
    (
        ("make", "second", "--towers", "2", "--config", "x", "--run-dir", "y"),
        2,
        "--config needs training options that no run has",
    ),
    (("make", "second", "--towers", "2", "--probe-events", "0"), 2, "in its range"),
    (("make", "second", "--towers", "2", "--largest", "0.5"), 2, "in its range"),
    (("make", "second", "--towers", "2", "--strategy", "strided", "--largest", "2"), 2, "--largest needs a strategy"),
    (("make", "second", "--towers", "2", "--strategy", "strided", "--svg", "x.svg"), 2, "points of features"),
    (("make", "second", "--towers", "2", "--run-dir", "none"), 4, "must hold a checkpoint"),
    (("make", "none", "--towers", "2"), 4, "none"),
]


def test_bad_input_gives_one_error(submitted):
    for arguments, status, problem in BAD_INPUT:
        answer = submitted("towers", *arguments, status=status)
        assert problem in answer.err, arguments
        assert not answer.out, arguments


def test_strided_towers_need_no_run(submitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = submitted("towers", "make", "second", "--towers", "2", "--hosts", "4", "--strategy", "strided", "--output", "strided.json")  # fmt: skip
    check_golden("towers_make_strided", made.out)
    assert (
        "needs towers with points of features"
        in submitted("towers", "show", "strided.json", "--svg", "x.svg", status=2).err
    )
    assert "a document must hold 'format'" in _refused(submitted, tmp_path, b"{}")
    assert "must be JSON" in _refused(submitted, tmp_path, b"{")


def _refused(cli, tmp_path, data):
    (tmp_path / "bad.json").write_bytes(data)
    return cli("towers", "show", "bad.json", status=2).err
