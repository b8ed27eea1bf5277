"""The screen of ``headrace chaos``."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.screens.chaos import ChaosScreen, DamageRow
from headrace.terminal.output import emit
from tests.headrace.test_commands import check_golden
from trainer.job.launch.chaos.proof import TrainedEvents

SCREEN = ChaosScreen(
    model="ctr",
    run_dir="runs/disturbed",
    seed=5,
    planned_faults=15,
    faults={"kill host": 1, "kill server": 2, "kill-keeper server": 4, "lose-machine server": 2, "pause reader": 6},
    state="DONE",
    attempts=18,
    commits=16,
    crashes=9,
    lost_secs=(0.0, 0.0, 1.5),
    preempted=(0, 0),
    trained=TrainedEvents(18_000, 8, 0, 0),
    disturbed_secs=113.0,
    differing=(),
    servers=2,
)


def printed(screen: ChaosScreen, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> str:
    capsys.readouterr()
    emit(screen, as_json=as_json)
    return capsys.readouterr().out


def test_faults_of_servers_have_a_column(capsys: pytest.CaptureFixture[str]):
    check_golden("chaos_servers", printed(SCREEN, capsys))
    found = json.loads(printed(SCREEN, capsys, as_json=True))
    assert (found["servers"], found["applied_faults"], found["is_right"]) == (2, 15, True)


def test_a_job_without_servers_has_no_column_for_them(capsys: pytest.CaptureFixture[str]):
    assert "server" not in printed(replace(SCREEN, servers=0, faults={"kill host": 1}), capsys)


def test_a_held_job_says_why_and_is_not_right(capsys: pytest.CaptureFixture[str]):
    held = replace(SCREEN, state="HELD", hold="a host failed: \x1b[2J", differing=None)
    text = printed(held, capsys)
    assert "hold       a host failed: \\x1b[2J" in text
    assert "job        held after 18 attempts" in text
    assert "bit for bit" not in text
    assert not held.is_right


DAMAGED = replace(
    SCREEN,
    workers=1,
    faults={
        **SCREEN.faults,
        "flip host-server": 3,
        "drop worker-server": 1,
        "neighbour server": 2,
        "full-memory server": 1,
    },
    damages={"flip host-server": DamageRow(3, 2), "drop worker-server": DamageRow(0, 0)},
    visits=2,
    memory_holds=1,
)


def test_damaged_bytes_have_a_table_by_pair_of_roles(capsys: pytest.CaptureFixture[str]):
    check_golden("chaos_damage", printed(DAMAGED, capsys))
    found = json.loads(printed(DAMAGED, capsys, as_json=True))
    assert found["damages"] == {"flip host-server": {"delivered": 3, "ended_connections": 2},
                                "drop worker-server": {"delivered": 0, "ended_connections": 0}}  # fmt: skip
    assert (found["delivered_damages"], found["memory_holds"], found["is_right"]) == (3, 1, True)


def test_a_neighbour_that_is_let_in_is_not_right(capsys: pytest.CaptureFixture[str]):
    found = replace(DAMAGED, let_in=("server",))
    assert not found.is_right
    assert "2 visits without the token, let in by: server" in printed(found, capsys)
