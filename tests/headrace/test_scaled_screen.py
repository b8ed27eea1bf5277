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
    assert "4 of at most 8 shall have the tables, 2 have them" in found
    assert "the epoch ends early and is committed" in found


def test_the_same_number_changes_nothing() -> None:
    found = text_of(ScaledScreen("runs/ctr-v1", used_servers=4, wanted_before=4, servers=4, most_servers=8))
    assert "nothing changes" in found
