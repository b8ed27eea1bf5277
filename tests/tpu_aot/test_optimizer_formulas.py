"""The golden values of optimizers are those of the programs that TensorFlow lowers for SparseCore."""

from __future__ import annotations

import json
import os

import pytest

from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS
from trainer.tpu_check.environment import TpuEnvironment

pytestmark = pytest.mark.tpu_aot

GOLDEN = ROOT / "tests" / "trainer" / "tables" / "golden" / "sparse_core_optimizers.json"


def test_golden_values_are_those_of_the_lowered_programs(tpu_environment: TpuEnvironment) -> None:
    found = tpu_environment.run("lowering", "tests.tpu_aot.optimizer_formulas", {}, timeout_secs=PATIENCE_SECS)
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        GOLDEN.write_text(to_text(found))
    assert to_text(found) == GOLDEN.read_text()


def to_text(document: dict) -> str:
    """The document as JSON, an array a line."""
    cases = []
    for case in document["cases"]:
        fields = [f"   {json.dumps(name)}: {json.dumps(value)}" for name, value in case.items()]
        cases.append("  {\n" + ",\n".join(fields) + "\n  }")
    head = json.dumps({name: value for name, value in document.items() if name != "cases"}, indent=1)
    return head.removesuffix("\n}") + ',\n "cases": [\n' + ",\n".join(cases) + "\n ]\n}\n"
