"""A process of a benchmark on the packages of a tree: the working tree, or that of another revision."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class TreeSide:
    """A program that prints ``ready``, then answers each line of its input with one line. It ends where its input does.

    Args:
        tree: the checkout whose packages it imports, and its folder.
        program: the file of the program.
        arguments: of the program.
    """

    def __init__(self, tree: Path, program: Path, arguments: Sequence[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            [sys.executable, str(program), *arguments], cwd=tree, env=environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        if self._line() != "ready":
            raise SystemExit(f"a side must be ready, got an end of {program.name} {' '.join(arguments)} in {tree}")

    def ask(self, line: str) -> list[str]:
        """The words of the answer to a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._line().split()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=20.0)
