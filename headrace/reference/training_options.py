"""The reference page of the options of a training, from the configurations and their docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from headrace.reference.markdown import GENERATED, from_docstring, summary_of, table
from trainer.options.config import TrainConfig
from trainer.options.hashed import HashedOptions
from trainer.options.hot_rows import HotOptions
from trainer.options.pruning import PruningOptions
from trainer.options.rate_schedule import RateSchedule
from trainer.options.sequences import SequenceOptions
from trainer.options.towers import TowerOptions

_HEAD = f"""# Training options

This page lists every option that `--config` takes as JSON and a [run file](run-file.md) in `[options]`. {GENERATED}

Options that are left out are chosen from the data, with the reason printed, or have the default below.
[Training](training.md) explains them by task; [combinations](combinations.md) says which ones exclude each other, and
[training inside](training-inside.md#options-of-a-run-that-goes-on) which ones may change when a run goes on.
"""
#: What a run records beside its options; a document of options does not set them.
_RECORDED = frozenset({"run_dir", "network_digest", "embeddings_digest", "chosen", "trial"})
#: The options whose value is an object, and what holds its fields.
_PARTS = (
    ("hashed", HashedOptions),
    ("hot rows", HotOptions),
    ("learning_rate_schedule", RateSchedule),
    ("pruning", PruningOptions),
    ("sequences", SequenceOptions),
    ("tower_modules", TowerOptions),
)


def training_options_page() -> str:
    """The page as Markdown: the options of a run, then the fields of each option that is an object."""
    parts = [_HEAD, _fields(TrainConfig)]
    for name, kind in _PARTS:
        parts += [f"## {name}\n", f"{summary_of(kind)}\n", _fields(kind)]
    return "\n".join(parts)


def _fields(kind: type[Any]) -> str:
    meanings = meanings_of(kind)
    rows = (
        (f"`{one.name}`", f"`{one.type}`", _default(one), meanings.get(one.name, ""))
        for one in dataclasses.fields(kind)
        if one.init and not one.name.startswith("_") and one.name not in _RECORDED
    )
    return table(["option", "type", "default", "meaning"], rows)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value: Any = field.default_factory()
    elif field.default is dataclasses.MISSING:
        return "required"
    else:
        value = field.default
    if isinstance(value, dict) or hasattr(value, "keys"):
        value = dict(value)
    return f"`{json.dumps(value, default=str)}`"


def meanings_of(kind: type[Any]) -> dict[str, str]:
    """What the section ``Attributes`` of a class's docstring says about each field, as Markdown."""
    return {name: text for names, text in _entries(inspect.getdoc(kind) or "") for name in names}


def _entries(doc: str) -> Iterator[tuple[list[str], str]]:
    _, found, section = doc.partition("Attributes:\n")
    if not found:
        return
    for entry in re.split(r"\n(?=    \w)", "\n" + section.split("\n\n")[0].rstrip()):
        names, colon, text = entry.strip().partition(": ")
        if colon:
            yield [name.strip() for name in names.split(",")], from_docstring(text)
