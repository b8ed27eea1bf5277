from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("tensorflow", "keras", "apache_beam", "tensorflow_transform", "pandas", "psycopg")


def loaded(program: str) -> set[str]:
    report = f"{program}\nimport sys; print(*sorted(m for m in sys.modules if m in {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()) if done.stdout.strip() else set()


@pytest.mark.parametrize(
    "module",
    ["headrace", "headrace.cli.main", "transforms.plan", "warehouse", "warehouse.reader", "trainer", "trainer.readers",
     "trainer.checkpoint", "trainer.embedding"],
)  # fmt: skip
def test_light_modules_load_neither_tensorflow_nor_beam(module):
    assert loaded(f"import {module}") == set()


def test_describing_a_model_loads_neither():
    assert (
        loaded('import headrace as hr; hr.Model("m", client="c", label="y").input("q", hr.text("q").lower())') == set()
    )
