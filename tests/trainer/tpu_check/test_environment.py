from __future__ import annotations

import re
import runpy

import pytest

from tests.conftest import ROOT
from tests.release.refresh import pins_of
from trainer.errors import ConfigError
from trainer.tpu_check.environment import PARTS, TpuEnvironment, pins, requirements_of

SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


def test_without_an_environment_the_error_says_how_to_get_one(tmp_path):
    environment = TpuEnvironment(tmp_path / "none")
    assert not environment.is_ready
    with pytest.raises(ConfigError, match="must be installed") as caught:
        environment.run("lowering", "trainer.tpu_check.lower", {}, timeout_secs=300.0)
    assert caught.value.next_step == "make tpu"


def test_an_environment_of_other_pins_is_not_ready(tmp_path):
    (tmp_path / "ready.json").write_text('{"lowering": "another"}')
    assert not TpuEnvironment(tmp_path).is_ready
    assert set(pins()) == {*PARTS, "python"}


@pytest.mark.parametrize("part", PARTS)
def test_every_package_is_pinned(part):
    lines = [line for line in requirements_of(part).read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert all(line.count("==") == 1 for line in lines)
    names = [line.partition("==")[0].lower() for line in lines]
    assert len(names) == len(set(names))
    assert "tensorflow" not in names, "it would overwrite tensorflow-tpu"


def test_what_training_imports_is_there_in_the_versions_of_the_trainer():
    """Steps are lowered by the trainer's own modules: each pinned package of the core and of training is there too."""
    pinned = pins_of((ROOT / "requirements.txt").read_text())
    lowering = pins_of(requirements_of("lowering").read_text())
    needed = {re.split(r"[<>=\[]", one)[0] for one in SETUP["EXTRAS"]["tensorflow"]} - {"tensorflow"}
    needed |= {"llvmlite", "numba", "numpy", "pyarrow", "xxhash"}
    assert needed <= set(lowering)
    for name in needed - {"keras", "protobuf"}:
        assert lowering[name][0] in pinned[name], name
