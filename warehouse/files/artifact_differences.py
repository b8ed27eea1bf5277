"""Differences between two artifacts of an analysis, as counts and text."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from transforms.analysis.full_pass import PREPROCESSING

#: The terms or outputs that a text lists.
_NAMED = 3
#: The names of the values in artifacts that are not lists of terms or boundaries.
_NUMBERS = {"standardize_over": ("mean", "standard deviation"), "min_max_over": ("least", "greatest")}


@dataclass(frozen=True, slots=True)
class ArtifactDifference:
    """The difference between two artifacts.

    Attributes:
        added: new values; of a preprocessing_fn, outputs.
        removed: removed values.
        moved: terms with another id, boundaries and numbers with another value, outputs with another graph.
        text: the difference as text.
    """

    added: int
    removed: int
    moved: int
    text: str


def artifact_difference(operator: str, before: pa.Array, after: pa.Array) -> ArtifactDifference:
    """The difference between two artifacts of ``operator``."""
    if operator == PREPROCESSING:
        return _outputs(before.to_pylist(), after.to_pylist())
    if pa.types.is_floating(before.type):
        return _numbers(operator, before.to_pylist(), after.to_pylist())
    return _terms(before.to_pylist(), after.to_pylist())


def _terms(before: list[str], after: list[str]) -> ArtifactDifference:
    places = {term: place for place, term in enumerate(before)}
    added = [term for term in after if term not in places]
    removed = sorted(places.keys() - set(after), key=places.__getitem__)
    moved = sum(place != places.get(term, place) for place, term in enumerate(after))
    parts = [f"{len(before):,} -> {len(after):,} terms"]
    parts += [
        f"{len(terms):,} {verb} ({_some(terms)})" for verb, terms in (("added", added), ("removed", removed)) if terms
    ]
    parts += [f"{moved:,} with another id"] if moved else []
    return ArtifactDifference(len(added), len(removed), moved, ", ".join(parts))


def _numbers(operator: str, before: list[float], after: list[float]) -> ArtifactDifference:
    if operator in _NUMBERS and len(before) == len(after) == len(_NUMBERS[operator]):
        named = zip(_NUMBERS[operator], before, after, strict=True)
        changed = [f"{name} {old:.6g} -> {new:.6g}" for name, old, new in named if old != new]
        return ArtifactDifference(0, 0, len(changed), ", ".join(changed))
    shifts = [abs(new - old) for old, new in zip(before, after, strict=False)]
    moved = sum(shift != 0 for shift in shifts)
    parts = [f"{len(before):,} -> {len(after):,} boundaries"]
    parts += [f"{moved:,} moved, by {max(shifts):.6g} at most"] if moved else []
    more, fewer = max(len(after) - len(before), 0), max(len(before) - len(after), 0)
    return ArtifactDifference(more, fewer, moved, ", ".join(parts))


def _outputs(before: list[str], after: list[str]) -> ArtifactDifference:
    old, new = ({str(one["output"]): one["graph"] for one in map(json.loads, texts)} for texts in (before, after))
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    parts = [f"{len(changed):,} of {len(new):,} outputs ({_some(changed)})"] if changed else []
    parts += [
        f"{len(names):,} {verb} ({_some(names)})" for verb, names in (("added", added), ("removed", removed)) if names
    ]
    return ArtifactDifference(len(added), len(removed), len(changed), ", ".join(parts))


def _some(names: list[str]) -> str:
    shown = [repr(name if len(name) <= 24 else f"{name[:23]}…") for name in names[:_NAMED]]
    return ", ".join([*shown, *(["…"] if len(names) > _NAMED else [])])
