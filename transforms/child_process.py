"""The command and the environment of every Python process that Headrace starts with its own code.

A child imports what its parent imports. It does not search the working directory, where a project may have any module: a user's
function in it is found by the code that imports such functions, with the directory on the path for that time only.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from transforms.installation import PARTS, ROOT


def module_command(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command that runs a module, by its name in a checkout, in this interpreter or in ``python``.

    Start it with :func:`child_environment`.
    """
    top = module.partition(".")[0]
    # A checkout has these names too: see headrace/checkout.py.
    return [python or sys.executable, "-m", f"headrace.{module}" if top in PARTS else module, *arguments]


def child_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables of a child: those of this process and ``changes``, without the working directory on its path.

    The packages of this process are on the path, after the folders of ``PYTHONPATH``, unless the interpreter finds them itself.
    """
    environment = {**os.environ, **(changes or {}), "PYTHONSAFEPATH": "1"}
    if not _is_found_by_interpreter():
        given = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        own = str(ROOT.resolve())
        environment["PYTHONPATH"] = os.pathsep.join(given if own in given else [*given, own])
    return environment


@cache
def _is_found_by_interpreter() -> bool:
    """Whether every process of this interpreter finds the packages, since they are installed."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    return ROOT.resolve() in {Path(folder).resolve() for folder in folders}
