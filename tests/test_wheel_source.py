"""What the build of a wheel changes in a module: the names of imported modules, and nothing else."""

from __future__ import annotations

import ast
import runpy

import pytest

from tests.conftest import ROOT
from transforms.installation import PACKAGES, PARTS

BUILD = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
wheel_source = BUILD["wheel_source"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from trainer import config", "from headrace.trainer import config"),
        ("from  trainer.options.config\timport x as trainer", "from  headrace.trainer.options.config\timport x as trainer"),
        ("from \\\n  transforms.types import a", "from \\\n  headrace.transforms.types import a"),
        ("if x: from pipelines.a import b; c = 1", "if x: from headrace.pipelines.a import b; c = 1"),
        ("é = 'ü'; from warehouse import a", "é = 'ü'; from headrace.warehouse import a"),
        ("import os, trainer.options.config as a, numpy as b", "import os, headrace.trainer.options.config as a, numpy as b"),
        ("def f():\r\n    from trainer.a import (\r\n        b,\r\n    )", "def f():\r\n    from headrace.trainer.a import (\r\n        b,\r\n    )"),
        ("from trainers import a\nfrom headrace.cli import trainer\nfrom .trainer import a\nx = 'from trainer import y'",) * 2,
        ("def f():\n    yield from trainer\nraise A from trainer", ) * 2,
    ],
)  # fmt: skip
def test_imports_of_the_packages_are_renamed(source: str, expected: str) -> None:
    assert wheel_source(source.encode(), "a.py").decode() == expected
    assert wheel_source(expected.encode(), "a.py").decode() == expected


def test_an_import_that_binds_the_name_of_a_package_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"must be imported by from ... import, got import trainer.options.config: b.py"
    ):
        wheel_source(b"import trainer.options.config", "b.py")


def _names(tree: ast.Module) -> list[str]:
    found = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return found + [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]


@pytest.mark.medium
@pytest.mark.parametrize("top", PACKAGES)
def test_every_module_is_the_same_but_for_these_names(top: str) -> None:
    for file in sorted((ROOT / top).rglob("*.py")):
        before = file.read_bytes()
        after = wheel_source(before, str(file))
        assert not [name for name in _names(ast.parse(after)) if name.partition(".")[0] in PARTS], file
        assert before.count(b"\n") == after.count(b"\n"), file
        shortened = ast.dump(ast.parse(after)).replace("headrace.", "")
        assert shortened == ast.dump(ast.parse(before)).replace("headrace.", ""), file
