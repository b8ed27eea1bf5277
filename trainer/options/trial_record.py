"""The outcome of a trial of options as a run records it: one row for each candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from trainer.errors import ConfigError
from trainer.options.checks import check_known, refuse_option

_PAGE = "docs/training-inside.md"
_MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A candidate of a trial. Losses and errors are shares of the loss of the base rate on the same events.

    Attributes:
        name: what is special about it.
        passes: after how many passes its loss was lowest.
        slices: the slices of time on which it was validated; fewer than others if it was far behind.
        events: the validated events.
        loss: its loss; below 1 is better than the base rate.
        loss_error: the standard error of its difference to the base rate.
        behind: how much higher its loss is than that of the chosen candidate, on the slices that it has.
        behind_error: the standard error of this difference, paired by event and by slice.
        is_linear: whether it has no network.
        is_chosen: whether its options were chosen.
    """

    name: str
    passes: int
    slices: int
    events: int
    loss: float
    loss_error: float
    behind: float
    behind_error: float
    is_linear: bool
    is_chosen: bool

    def to_document(self) -> dict[str, object]:
        """A JSON object, which :func:`read_trial` reads."""
        return asdict(self)


def read_trial(document: object) -> tuple[TrialRow, ...]:
    """The rows of a list of objects, or of rows. Raises :class:`ConfigError`."""
    if not isinstance(document, (list, tuple)) or len(document) > _MOST_ROWS:
        refuse_option("trial", type(document).__name__, f"a list of at most {_MOST_ROWS} candidates", _PAGE)
    return tuple(one if isinstance(one, TrialRow) else _read_row(one, k) for k, one in enumerate(document))


def _read_row(document: object, k: int) -> TrialRow:
    where, known = f"trial[{k}]", {field.name: field.type for field in fields(TrialRow)}
    if not isinstance(document, Mapping):
        refuse_option(where, type(document).__name__, "an object", _PAGE)
    check_known(document, known, where=where, of="a trial's candidate")
    for name, kind in known.items():
        value = document.get(name)
        if not _fits(value, str(kind)):
            raise ConfigError(f"{where}.{name} must be a {kind}", where=where, value=str(value)[:80], allowed=str(kind),
                              next_step=f"leave trial out, it is chosen: {_PAGE}")  # fmt: skip
    return TrialRow(**document)


def _fits(value: object, kind: str) -> bool:
    if kind == "str":
        return isinstance(value, str)
    if kind == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, int) and value >= 0
    return isinstance(value, (int, float)) and not math.isnan(value)
