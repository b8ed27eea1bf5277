"""The metrics of ``headrace checks run``: the drift of a model's inputs and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transforms.metrics.declarations import Metric, gauge
from transforms.metrics.families import Family, by_labels

_LABELS = ("model", "input")
PSI = gauge("headrace_checks_psi_ratio", "Population stability index of an input against the range before.", *_LABELS)
KS = gauge(
    "headrace_checks_ks_ratio",
    "Kolmogorov-Smirnov distance of an input's numbers or lengths to those of the range before.",
    *_LABELS,
)
NEW_IDS = gauge(
    "headrace_checks_new_ids_ratio", "Share of an input's values whose id the range before does not have.", *_LABELS
)
EMPTY = gauge("headrace_checks_empty_ratio", "Share of an input's events that are null or empty.", *_LABELS)
FINDINGS = gauge("headrace_checks_findings", "Figures of an input that are above their limits.", *_LABELS)
METRICS = (PSI, KS, NEW_IDS, EMPTY, FINDINGS)


@dataclass(frozen=True, slots=True)
class InputDrift:
    """The figures of an input; those that are None are left out."""

    input: str
    psi: float | None
    ks: float | None
    new_share: float | None
    empty_share: float | None
    findings: int


def drift_families(model: str, inputs: Sequence[InputDrift]) -> tuple[Family, ...]:
    """All metrics of a model's inputs."""
    values: dict[Metric, list[float | None]] = {
        PSI: [one.psi for one in inputs],
        KS: [one.ks for one in inputs],
        NEW_IDS: [one.new_share for one in inputs],
        EMPTY: [one.empty_share for one in inputs],
        FINDINGS: [float(one.findings) for one in inputs],
    }
    return tuple(
        by_labels(
            metric, [((model, one.input), value) for one, value in zip(inputs, found, strict=True) if value is not None]
        )
        for metric, found in values.items()
    )
