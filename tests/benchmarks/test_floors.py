from __future__ import annotations

import pytest

from benchmarks.floors import main


@pytest.mark.medium
def test_ten_figures_are_printed_beside_their_limits(capsys):
    assert main(["--small", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "round trip" in lines[1]
    assert [line.split("   ")[-1] != "" and "x   " in line for line in lines[4:]] == [True] * 10
