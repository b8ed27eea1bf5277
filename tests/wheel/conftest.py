"""The wheel, built and installed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.installed_wheel import InstalledWheel, built, install


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    """An environment with the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    return install(built(folder), folder / "environment")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a project whose packages have the names of Headrace's; its own ``trainer`` is of use, the others end a process."""
    for name in ("transforms", "warehouse", "pipelines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a package of the project was imported')\n")
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("")
    (tmp_path / "trainer" / "networks.py").write_text(NETWORKS, encoding="utf-8")
    return tmp_path


NETWORKS = '''"""A network in a package of the project."""

import keras


def build(shapes):
    activations = {name: keras.Input((width,)) for name, width in shapes.widths.items()}
    dense = keras.Input((shapes.dense_width,))
    hidden = keras.layers.Concatenate()([*activations.values(), dense])
    hidden = keras.layers.Dense(8, activation="relu")(hidden)
    return keras.Model((activations, dense), keras.layers.Dense(shapes.outputs)(hidden))
'''
