"""The screen of ``headrace table column``."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.screens.tables import short_type
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many

if TYPE_CHECKING:
    from warehouse.search.column_use import ColumnModel, ColumnUse, HoldingKind

_MODELS_SHOWN = 12


@dataclass(frozen=True, slots=True, repr=False)
class ColumnScreen(Shown):
    """What reads a column of a table, and what holds its values; ``kinds``: numbers of files and of bytes."""

    use: ColumnUse
    kinds: Mapping[HoldingKind, tuple[int, int]]

    def json_fields(self) -> dict[str, Any]:
        """The fields of the use, with the files."""
        return fields_of(self.use)

    def files_csv(self) -> str:
        """The files as CSV, one a line: kind, path, bytes."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("kind", "path", "size_bytes"))
        writer.writerows((one.kind, one.path, one.size_bytes) for one in self.use.files)
        return text.getvalue()

    def render(self) -> RenderableType:
        """Facts, the models that read it, the files that may hold its values."""
        use = self.use
        live = [one for one in use.models if one.is_live]
        former = len(use.models) - len(live)
        pairs = [
            ("column", f"{use.column}, {short_type(use.type)}, of table {use.table}"),
            *[("is", role) for role in use.roles],
            ("live models", f"{many(len(live), 'model')} cannot be read or trained without it" if live else "none reads it"),
            *([("other versions", many(former, "version") + " read it, too")] if former else []),
            ("components", count_text(use.components)),
            ("unfinished tasks", count_text(use.queued_tasks)),
            *([("failed tasks", f"{count_text(use.failed_tasks)}, each with a sample of values")] if use.failed_tasks else []),
            ("in the catalog", f"{many(use.sketches, 'sketch', 'sketches')} of values, {many(use.statistics, 'record')} of frequent ids"),
        ]  # fmt: skip
        models = grid(
            ("live model", "version>", "by*"), ((one.name, str(one.version), _by(one)) for one in live[:_MODELS_SHOWN])
        )
        more = (
            [f"{many(len(live) - _MODELS_SHOWN, 'more model')}: --json lists all"] if len(live) > _MODELS_SHOWN else []
        )
        parts: list[RenderableType] = ["", models, *more] if live else []
        files = grid(
            ("may hold values", "files>", "size>"),
            ((kind, count_text(n), bytes_text(size)) for kind, (n, size) in self.kinds.items()),
        )
        weights = "not in this list: checkpoints and exports of these models, which hold weights and hashed ids, and copies of files"
        return Group(facts(pairs), *parts, "", files, weights)


def _by(model: ColumnModel) -> str:
    return ", ".join((*model.inputs, *(["its label"] if model.by_label else [])))
