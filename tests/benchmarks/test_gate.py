"""The gate of benchmarks: what is worse by more than the noise fails it; its file is read strictly."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import gate
from benchmarks.support.baselines import (
    COUNTED,
    FORMAT,
    LEAST_NOISE,
    TIMED,
    Baseline,
    Baselines,
    MachineKind,
    Measured,
    allowed_rise,
    baselines_text,
    compare,
    machine_kind,
    measured,
    read_baselines,
)
from tests.conftest import ROOT
from transforms.errors import HeadraceError

HERE = MachineKind("a CPU", 2, 8)
RATIOS = st.floats(0.01, 100)
FIGURES = st.builds(
    Measured, st.sampled_from([COUNTED, TIMED]), RATIOS, st.just(0.0) | st.floats(0, 10), st.integers(1, 9)
)
MACHINES = st.builds(MachineKind, st.text(max_size=5), st.integers(1, 4), st.integers(0, 4))
FILES = st.builds(
    Baselines,
    st.just(FORMAT),
    st.lists(
        st.builds(
            Baseline,
            st.text(max_size=5),
            st.text("0123456789abcdef", min_size=40, max_size=40),
            MACHINES,
            st.dictionaries(st.sampled_from("abc"), FIGURES),
        ),
        max_size=4,
    ).map(tuple),
)


def baselines(**figures: Measured) -> Baselines:
    return Baselines(FORMAT, (Baseline("0.1.0", "a" * 40, HERE, figures),))


@given(FIGURES, FIGURES)
def test_a_figure_is_worse_only_beyond_both_noises(before: Measured, now: Measured) -> None:
    (one,) = compare({"x": now}, baselines(x=before), HERE)
    rise = now.ratio - before.ratio
    assert one.is_worse == (rise > one.allowed)
    assert one.allowed >= max(before.noise, now.noise)
    assert not (one.is_worse and one.is_better)
    assert not (one.is_worse and rise <= 0)


@given(FIGURES)
def test_an_equal_figure_is_neither_worse_nor_better(figure: Measured) -> None:
    (one,) = compare({"x": figure}, baselines(x=figure), HERE)
    assert (one.is_worse, one.is_better) == (False, False)


@given(FIGURES, st.floats(0.001, 10))
def test_a_rise_above_the_noise_is_found(before: Measured, more: float) -> None:
    raised = replace(before, ratio=before.ratio + allowed_rise(before, before) * 1.001 + more)
    (one,) = compare({"x": raised}, baselines(x=before), HERE)
    assert one.is_worse


@given(FILES)
def test_a_file_is_read_as_it_was_written(found: Baselines) -> None:
    assert read_baselines(baselines_text(found)) == found


@given(FILES, FILES)
def test_the_newest_baseline_of_the_machine_counts(found: Baselines, more: Baselines) -> None:
    for one in more.baselines:
        found = found.with_baseline(one)
        assert found.newest(one.machine) == one
        assert sum((other.commit, other.machine) == (one.commit, one.machine) for other in found.baselines) == 1


def test_without_a_baseline_of_the_machine_counted_figures_alone_are_compared() -> None:
    figures = {"bytes": Measured(COUNTED, 0.5, 0.0, 3), "secs": Measured(TIMED, 0.5, 0.0, 3)}
    found = compare({name: replace(one, ratio=0.6) for name, one in figures.items()}, baselines(**figures), MachineKind("another", 4, 8))  # fmt: skip
    assert [(one.name, one.is_worse, one.before is None) for one in found] == [("bytes", True, False), ("secs", False, True)]  # fmt: skip


def test_noise_is_the_range_of_the_rounds() -> None:
    assert measured(TIMED, [1.0, 3.0, 1.5]) == Measured(TIMED, 1.5, 2.0, 3)
    assert allowed_rise(Measured(TIMED, 2.0, 0.0, 3), Measured(TIMED, 2.0, 0.0, 3)) == 2.0 * LEAST_NOISE


DOCUMENT = json.loads(baselines_text(baselines(x=Measured(COUNTED, 0.5, 0.0, 3))))


@given(st.data())
def test_a_damaged_file_is_an_error_of_the_project(data: st.DataObject) -> None:
    text = baselines_text(baselines(x=Measured(COUNTED, 0.5, 0.0, 3))).encode()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.binary(max_size=3)) + text[at + data.draw(st.integers(0, 9)) :]
    try:
        read_baselines(damaged)
    except HeadraceError:
        return
    assert json.loads(damaged)["format"] == FORMAT


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("baselines", 0, "commit"), "main"),
        (("baselines", 0, "commit"), "A" * 40),
        (("baselines", 0, "machine", "cores"), 0),
        (("baselines", 0, "figures", "x", "ratio"), 0.0),
        (("baselines", 0, "figures", "x", "noise"), -0.1),
        (("baselines", 0, "figures", "x", "kind"), "guessed"),
        (("baselines", 0, "figures", "x", "host"), "name"),
    ],
)
def test_a_wrong_value_is_refused(path: tuple[str | int, ...], value: object) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(HeadraceError):
        read_baselines(json.dumps(document))


def test_the_kind_of_a_machine_names_no_machine(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nserial\t: 77\n", encoding="utf-8")
    (tmp_path / "memory").write_text("MemTotal:       25165824 kB\nMemFree: 1 kB\n", encoding="utf-8")
    found = machine_kind(tmp_path / "cpu", tmp_path / "memory")
    assert (found.processor, found.memory_gib) == ("A CPU @ 2 GHz", 24)
    with pytest.raises(HeadraceError, match="the kind of the machine"):
        machine_kind(tmp_path / "cpu", tmp_path / "absent")


@pytest.mark.medium
def test_a_worse_figure_fails_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the real figure of bytes on the wire, beside a baseline that was better."""
    (figure,) = [one for one in gate.FIGURES if one.name == "wire_bytes"]
    ratio = figure.prepare(tmp_path)()
    for before, status in ((ratio, 0), (ratio * 0.99, 1), (ratio * 1.01, 0)):
        file = tmp_path / "baseline.json"
        of_before = Baseline("0.1.0", "b" * 40, machine_kind(), {"wire_bytes": Measured(COUNTED, before, 0.0, 3)})
        file.write_text(baselines_text(Baselines(FORMAT, (of_before,))), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["gate", "--only", "wire_bytes", "--rounds", "1", "--file", str(file)])
        assert gate.main() == status
        printed = capsys.readouterr().out
        assert ("wire_bytes (+" in printed) == bool(status)
        assert "release 0.1.0, commit bbbbbbbbbbbb" in printed


def test_there_are_ten_figures_of_scripts_that_exist() -> None:
    assert len({one.name for one in gate.FIGURES}) == len(gate.FIGURES) == 10
    for one in gate.FIGURES:
        assert (ROOT / "benchmarks" / f"{one.script}.py").is_file()


def test_the_recorded_baselines_have_every_figure() -> None:
    found = read_baselines(gate.FILE.read_bytes())
    assert found.baselines
    assert set(found.baselines[-1].figures) == {one.name for one in gate.FIGURES}
    assert [one.kind for one in found.baselines[-1].figures.values()] == [one.kind for one in gate.FIGURES]
