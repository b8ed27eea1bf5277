from __future__ import annotations

import importlib
import json
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: The packages of this environment, without its own finders.
SITE = f"import sys; sys.path += {[path for path in sys.path if path.endswith('site-packages')]!r}\n"

SOURCE = """
from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from lazy_package.heavy import Second as Second
    from lazy_package.heavy import first as first

__getattr__, __dir__, __all__ = lazy_exports(__name__)
"""


@pytest.fixture
def lazy_package(tmp_path, monkeypatch):
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(SOURCE, encoding="utf-8")
    (folder / "heavy.py").write_text("Second, first, hidden = 2, 1, 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import lazy_package

    yield lazy_package
    for name in ("lazy_package", "lazy_package.heavy"):
        sys.modules.pop(name, None)


def test_a_module_is_imported_when_its_name_is_used(lazy_package):
    assert dir(lazy_package) == lazy_package.__all__ == ["Second", "first"]
    assert "lazy_package.heavy" not in sys.modules
    assert lazy_package.first == 1
    assert "lazy_package.heavy" in sys.modules


def test_a_name_that_is_not_exported_is_an_attribute_error(lazy_package):
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'hidden'"):
        _ = lazy_package.hidden


@pytest.mark.slow
@pytest.mark.parametrize("form", ["bytecode", "archive"])
def test_a_package_needs_no_source(tmp_path, form):
    """The real packages, as an installation without sources has them."""
    names = ("transforms", "headrace", "warehouse", "pipelines", "trainer")
    target = tmp_path / "installed"
    for name in names:
        for source in (ROOT / name).rglob("*.py"):
            compiled = target / source.relative_to(ROOT).with_suffix(".pyc")
            compiled.parent.mkdir(parents=True, exist_ok=True)
            py_compile.compile(str(source), cfile=str(compiled), doraise=True)
    if form == "archive":
        target = Path(shutil.make_archive(str(tmp_path / "installed"), "zip", target))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import headrace as hr, transforms, json\n"
        "assert transforms.__file__.startswith(sys.argv[1]), transforms.__file__\n"
        "assert hr.text('a').lower() is not None\n"
        "import warehouse, pipelines, trainer\n"
        "print(json.dumps([len(each.__all__) for each in (transforms, hr, warehouse, pipelines, trainer)]))"
    )
    done = subprocess.run([sys.executable, "-P", "-S", "-c", SITE + program, str(target)], cwd=tmp_path, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert json.loads(done.stdout) == [len(importlib.import_module(name).__all__) for name in names]


def test_packages_are_imported_without_a_parser():
    program = "import sys, headrace, warehouse, pipelines, trainer; print({'ast', 'inspect', 'dis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
