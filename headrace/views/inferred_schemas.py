"""What a sample of a log says of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.inferred import InferredScreen
    from pipelines.inference.infer import Inferred


def inferred_schema(inferred: Inferred, output: str) -> InferredScreen:
    """A schema that was inferred; ``output``: the file that has it."""
    from headrace.screens.inferred import InferredColumnRow, InferredScreen

    return InferredScreen(
        output=output,
        files=inferred.files,
        rows=inferred.rows,
        rejected=inferred.rejected,
        reject=inferred.reject,
        about_rows=inferred.about_rows,
        schema=inferred.schema.to_document(),
        columns=tuple(
            InferredColumnRow(
                one.column.name, _type_text(one.column.to_document()), one.missing_share(inferred.schema.null), one.distinct,
                one.examples, one.unsure, one.label,
            )
            for one in inferred.columns
        ),
        labels=inferred.labels,
        unsure=inferred.unsure,
    )  # fmt: skip


def _type_text(column: dict[str, object]) -> str:
    """A column's type as text: ``list of int64, by "|"``."""
    kind = str(column["type"])
    if column.get("list"):
        return f"list of {kind}"
    if "separator" in column:
        return f'list of {kind}, by "{column["separator"]}"'
    if column.get("json"):
        return "JSON text"
    form = column.get("unit") or column.get("format")
    return kind if form is None else f"{kind}, {form}"
