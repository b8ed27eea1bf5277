"""Commands are imported and built when they are called."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.cli.lazy_group import LazyCommands, group_of
from headrace.cli.main import COMMANDS, app, run
from tests.conftest import ROOT


def test_the_help_builds_no_command(capsys):
    group = group_of(app, COMMANDS)
    with pytest.raises(SystemExit):
        group(args=["--help"], prog_name="headrace")
    assert isinstance(group.commands, LazyCommands)
    assert not group.commands._built
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.partition("Commands:\n")[2].splitlines()] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_help(name, capsys):
    assert run([name, "--help"]) == 0
    assert f"Usage: headrace {name} " in capsys.readouterr().out


def test_a_misspelt_command_gets_the_nearest_names(capsys):
    assert run(["model", "sumbit"]) == 2
    assert "Did you mean 'submit'?" in capsys.readouterr().err


def test_a_command_imports_no_other():
    program = (
        "import sys; from headrace.cli.main import run; run(['gc', '--help'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('headrace.cli.') or name in ('rich', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "headrace.cli.maintenance" in loaded
    assert not {"headrace.cli.models", "headrace.cli.work", "headrace.cli.tables", "rich", "numpy"} & set(loaded)
