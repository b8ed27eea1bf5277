from __future__ import annotations

import sys

import pytest

from transforms.lazy_exports import lazy_exports

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


def test_a_package_without_source_is_an_import_error():
    with pytest.raises(ImportError, match="source of package itertools must be installed, got none"):
        lazy_exports("itertools")
