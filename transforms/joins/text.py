"""A definition as one line, close to what a user writes."""

from __future__ import annotations

from transforms.durations import duration_text
from transforms.joins.column_names import Aggregate
from transforms.joins.definition import JoinDefinition
from transforms.joins.parts import parts_of
from transforms.render import expression_text


def definition_text(definition: JoinDefinition) -> str:
    """Such as ``table(clicks, available_after=10m).where(clicked).by(item).count(window=7d)``; expressions are printed as elsewhere."""
    parts = parts_of(definition)
    calls = [_call("table", [definition.table], _table_options(definition))]
    if parts.where is not None:
        calls.append(_call("where", [expression_text(parts.where)], {}))
    for other, own in zip(parts.other, parts.own, strict=True):
        calls.append(_call("by", [expression_text(other)], {} if own == other else {"equals": expression_text(own)}))
    given = [str(definition.rows)] if definition.rows else []
    given += [] if parts.value is None else [expression_text(parts.value)]
    options = _options(definition) | ({} if parts.order is None else {"order": expression_text(parts.order)})
    return ".".join([*calls, _call(str(definition.aggregate), given, options)])


def _call(name: str, given: list[str], options: dict[str, str]) -> str:
    return f"{name}({', '.join([*given, *(f'{key}={value}' for key, value in options.items())])})"


def _table_options(definition: JoinDefinition) -> dict[str, str]:
    options = {}
    if definition.available_after_micros:
        options["available_after"] = duration_text(definition.available_after_micros)
    if definition.known_at:
        options["known_at"] = definition.known_at
    if definition.includes_equal:
        options["including_equal"] = "True"
    if definition.as_of is not None:
        options |= {"as_of": "day", "zone": definition.as_of.zone}
    return options


def _options(definition: JoinDefinition) -> dict[str, str]:
    options = {}
    if definition.window_micros is not None:
        name = "max_age" if definition.aggregate is Aggregate.LATEST else "window"
        options[name] = duration_text(definition.window_micros)
    if definition.hop_micros:
        options["hop"] = duration_text(definition.hop_micros)
    if definition.prior:
        options["prior"] = f"({definition.prior[0]:g}, {definition.prior[1]:g})"
    if definition.half_life_micros:
        options["half_life"] = duration_text(definition.half_life_micros)
    if definition.precision:
        options |= {"exact_most": str(definition.exact_most), "precision": str(definition.precision)}
    return options
