"""What a demo needs: packages, a file of models, logs. Checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace.demo.scripts import DemoScript, example_path
from transforms.errors import InputError

#: The packages of a demo's steps, each with the extra that installs it.
PACKAGES: Final = {"apache_beam": "beam", "scipy": "train"}


def check_needs(
    script: DemoScript, logs: str, *, is_installed: Callable[[str], bool] = lambda name: find_spec(name) is not None
) -> None:
    """Raise one :class:`InputError` for all that a demo lacks; ``logs``: the folder or file of real logs, or empty."""
    packages = {name: extra for name, extra in PACKAGES.items() if not is_installed(name)}
    missing, steps = list(packages), []
    if packages:
        steps.append(f"pip install 'headrace[{','.join(packages.values())}]'")
    example = example_path(script.example)
    if not example.is_file():
        missing.append(f"examples/{script.example}")
        steps.append("run the demo in a clone of the repository, whose examples/ has the models")
    if logs and not Path(logs).exists():
        missing.append(f"logs {logs}")
        steps.append("give --logs a folder or file that exists")
    if missing:
        raise InputError("the demo must have all that its steps need", where="headrace demo", value=f"missing: {', '.join(missing)}",
                         next_step="; ".join(steps))  # fmt: skip
