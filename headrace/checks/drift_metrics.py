"""Figures of drift in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

#: Metrics by the figure that they hold: the name, and what it says.
METRICS = {
    "psi": ("headrace_checks_psi_ratio", "Population stability index of an input against the range before."),
    "ks": (
        "headrace_checks_ks_ratio",
        "Kolmogorov-Smirnov distance of an input's numbers or lengths to those of the range before.",
    ),
    "new_id": ("headrace_checks_new_ids_ratio", "Share of an input's values whose id the range before does not have."),
    "empty": ("headrace_checks_empty_ratio", "Share of an input's events that are null or empty."),
    "findings": ("headrace_checks_findings", "Figures of an input that are above their limits."),
}


def metrics_text(model: str, figures: Mapping[str, Mapping[str, float | None]]) -> str:
    """The metrics of a model's inputs; ``figures``: by input and by the names of :data:`METRICS`. Figures that are None are left out."""
    lines = []
    for figure, (name, text) in METRICS.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        for column, values in figures.items():
            value = values.get(figure)
            if value is not None:
                lines.append(f'{name}{{model="{_escaped(model)}",input="{_escaped(column)}"}} {value!r}')
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
