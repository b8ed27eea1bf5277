"""What ``headrace ps scale`` says."""

from __future__ import annotations

from rich.console import Console

from headrace.screens.scaled_servers import ScaledScreen


def text_of(screen: ScaledScreen) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(screen.render())
    return captured.get()


def test_another_number_says_what_happens_next() -> None:
    found = text_of(ScaledScreen("runs/ctr-v1", used_servers=2, wanted_before=2, servers=4, most_servers=8))
    assert "runs/ctr-v1: 2 servers have the tables, 4 of at most 8 shall have them" in found
    assert "the epoch ends early and is committed" in found


def test_one_server_has_the_tables() -> None:
    found = text_of(ScaledScreen("runs/ctr-v1", used_servers=1, wanted_before=1, servers=2, most_servers=3))
    assert "1 server has the tables, 2 of at most 3 shall have them" in found


def test_the_same_number_changes_nothing() -> None:
    found = text_of(ScaledScreen("runs/ctr-v1", used_servers=4, wanted_before=4, servers=4, most_servers=8))
    assert "nothing changes" in found
