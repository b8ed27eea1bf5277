"""The example of the page about sequences: its inputs have types that its options take."""

from __future__ import annotations

import json
import re
import tomllib

import headrace as hr
from tests.conftest import ROOT
from trainer.model.inputs import TypedInput, lay_out
from trainer.options.config import TrainConfig

PAGE = (ROOT / "docs" / "sequences.md").read_text(encoding="utf-8")


def test_the_example_is_a_model_with_a_sequence() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (run_file,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (config,) = re.findall(r"`--config '(.*?)'`", PAGE)
    model = hr.Model("ctr", client="shop", label="clicked")
    exec(code, {"hr": hr, "model": model})
    options = tomllib.loads(run_file)["options"]
    assert options == json.loads(config)
    inputs = [TypedInput(name, item.component.type) for name, item in model.inputs.items()]
    layout = lay_out(inputs, TrainConfig("run", **options))
    assert [feature.table.name for feature in layout.features] == ["item", "ages", "item"]
    assert [feature.max_sequence_length for feature in layout.features] == [50, 50, 0]
