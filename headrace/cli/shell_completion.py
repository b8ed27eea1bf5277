"""Completion in a shell: its script, and the answers to what the script asks."""

from __future__ import annotations

import shutil
import sys
from typing import Final

from transforms.errors import InputError

#: The variable by which the script asks for completions.
COMPLETE_VARIABLE: Final = "_HEADRACE_COMPLETE"
_PROGRAM: Final = "headrace"
_SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")


def know_shells() -> None:
    """Let Typer answer the scripts of its shells; with help texts as they are, not through rich, whose import takes longer than the rest."""
    from typer import _completion_classes

    _completion_classes._sanitize_help_text = lambda text: text
    _completion_classes.completion_init()


def install_completion() -> None:
    """Write the script of the shell that runs this where the shell loads it, and say where. Raises :class:`InputError` for an unknown shell."""
    from typer._completion_shared import install

    shell, file = install(_shell("--install-completion"), _PROGRAM, COMPLETE_VARIABLE)
    sys.stdout.write(f"completion for {shell} is in {file}; a new shell has it\n")
    if shutil.which(_PROGRAM) is None:
        sys.stdout.write(f"{_PROGRAM} is not on $PATH of this shell: completion needs it there\n")


def show_completion() -> None:
    """Print the script of the shell that runs this. Raises :class:`InputError` for an unknown shell."""
    from typer._completion_shared import get_completion_script

    script = get_completion_script(
        prog_name=_PROGRAM, complete_var=COMPLETE_VARIABLE, shell=_shell("--show-completion")
    )
    sys.stdout.write(f"{script}\n")


def _shell(option: str) -> str:
    from typer._completion_shared import _get_shell_name

    shell = _get_shell_name() or ""
    if shell not in _SHELLS:
        raise InputError("the shell must be one that has completion", where=option, value=shell or "none", allowed=", ".join(_SHELLS),
                         next_step=f"{COMPLETE_VARIABLE}=source_bash {_PROGRAM} prints the script of bash")  # fmt: skip
    return shell
