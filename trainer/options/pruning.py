"""The training option ``pruning``: how many rows embedding tables keep, and how the rows that stay are found while training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

from trainer.options.checks import check_known, refuse_option

#: What makes a row important, see :mod:`trainer.tables.kernels.importance`. A row's gradient is the sum of those of its lookups, so it grows with them.
METRICS = ("gradient", "frequency_gradient", "frequency", "random")
#: The values of a row that gets the place of another one.
RESETS = ("zero", "initial", "restored", "none")
#: How the hosts of a job have the places of a group.
PLACES = ("shared", "divided")
_MOST_ROWS = (1 << 31) - 16
_MOST_STEPS = 1 << 32


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """A group of tables that share rows.

    Attributes:
        tables: their names.
        rows: how many; 0: a share of the budget.
    """

    tables: tuple[str, ...]
    rows: int = 0

    @classmethod
    def read(cls, document: object) -> GroupOptions:
        """A group of an object with its members. Raises :class:`ConfigError`."""
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping) or not {"tables"} <= document.keys() <= {"tables", "rows"}:
            _refuse("groups", document, "a list of objects with tables and, if wanted, rows")
        tables, rows = document["tables"], document.get("rows", 0)
        if not isinstance(tables, list | tuple) or not tables or not all(isinstance(one, str) for one in tables):
            _refuse("groups.tables", tables, "a list of names")
        if type(rows) is not int or not 0 <= rows <= _MOST_ROWS:
            _refuse("groups.rows", rows, f"an integer in [0, {_MOST_ROWS:,}]")
        return cls(tuple(tables), rows)


@dataclass(frozen=True, slots=True)
class PruningOptions:
    """How embedding tables are pruned in training (AdaEmbed, Lai et al., OSDI 2023).

    Attributes:
        budget: the share of the weights of all tables that there is memory for, in (0, 1].
        metric: what makes a row important, one of :data:`METRICS`.
        reset: the values of a row that gets the place of another one, one of :data:`RESETS`: zeros, its initial values, those that it had before, or
            those of the other one.
        decay, decay_steps: importance is multiplied by the first every so many steps.
        check_steps: steps between samples of the importance of rows.
        crossing_share: a round of pruning begins when this share of the rows that are kept has crossed the cut-off.
        deviation: how far shares of a sample may be from those of all rows, with a chance of 99 %.
        spare_share: the share of a group's places that a round leaves free, for rows that are looked up afterwards.
        round_steps: a round begins every so many steps instead; 0: when rows have crossed.
        normalised: importance is divided by the 95th percentile of its table before tables are compared.
        groups: the groups of tables; none: tables of one width and optimizer are a group.
        places: how the hosts of a job have those of a group, one of :data:`PLACES`: the most important rows of all hosts have them, or those of each host
            have a share by its rows. In one process there is no difference, and servers divide them.
    """

    budget: float = 0.5
    metric: str = "gradient"
    reset: str = "zero"
    decay: float = 0.8
    decay_steps: int = 100
    check_steps: int = 20
    crossing_share: float = 0.01
    deviation: float = 0.01
    spare_share: float = 0.05
    round_steps: int = 0
    normalised: bool = False
    groups: tuple[GroupOptions, ...] = ()
    places: str = "shared"

    @classmethod
    def read(cls, document: object) -> PruningOptions:
        """The options of an object by name, or options that were read. Raises :class:`ConfigError`."""
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping):
            _refuse("", document, "an object of options")
        check_known(document, _NAMES, where="pruning", of="pruning")
        values = {name: _read_member(name, document[name]) for name in document}
        return cls(**values)

    def to_document(self) -> dict[str, Any]:
        """The options that differ from the defaults, and those of :data:`_EARLIER`, as a JSON object."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value != one.default or one.name in _EARLIER:
                found[one.name] = value
        if self.groups:
            found["groups"] = [
                {"tables": list(one.tables), **({"rows": one.rows} if one.rows else {})} for one in self.groups
            ]
        return found

    def of_servers(self) -> PruningOptions:
        """The options as servers have them, which divide places whatever the option says."""
        return replace(self, places=PLACES[0])

    def to_server_document(self) -> dict[str, Any]:
        """As :meth:`to_document`, of :meth:`of_servers`: without ``places``, which servers of earlier releases do not know."""
        return {name: value for name, value in self.to_document().items() if name != "places"}


#: The defaults that earlier releases had: a document of theirs means these.
_EARLIER: Mapping[str, Any] = {"metric": "frequency_gradient", "spare_share": 0.1, "places": "divided"}


def with_recorded_defaults(document: object) -> object:
    """``pruning`` as a run recorded it: with the defaults that it had where nothing says another value."""
    return {**_EARLIER, **document} if isinstance(document, Mapping) else document


def with_kept_defaults(asked: object, recorded: object) -> object:
    """``pruning`` that is asked of a run which goes on: with what the run has of the options whose defaults have changed."""
    if isinstance(asked, Mapping) and isinstance(recorded, Mapping):
        return {**{name: recorded[name] for name in _EARLIER if name in recorded}, **asked}
    return asked


_NAMES = [one.name for one in fields(PruningOptions)]
_WHOLE = {"decay_steps": (1, _MOST_STEPS), "check_steps": (1, _MOST_STEPS), "round_steps": (0, _MOST_STEPS)}
#: The largest of numbers from 0 on, and whether 0 is one of them.
_REAL = {"budget": (1.0, False), "decay": (1.0, False), "crossing_share": (1.0, False), "deviation": (0.5, False),
         "spare_share": (0.9, True)}  # fmt: skip


def _read_member(name: str, value: Any) -> Any:
    if name in _WHOLE:
        least, most = _WHOLE[name]
        if type(value) is not int or not least <= value <= most:
            _refuse(name, value, f"an integer in [{least}, {most:,}]")
        return value
    if name in _REAL:
        most_real, has_zero = _REAL[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= most_real or not (value or has_zero):
            _refuse(name, value, f"a number in {'[' if has_zero else '('}0, {most_real:g}]")
        return float(value)
    if name == "normalised":
        if not isinstance(value, bool):
            _refuse(name, value, "true or false")
        return value
    if name == "groups":
        if not isinstance(value, list | tuple):
            _refuse(name, value, "a list of objects with tables and, if wanted, rows")
        return tuple(GroupOptions.read(one) for one in value)
    allowed = {"metric": METRICS, "reset": RESETS, "places": PLACES}[name]
    if value not in allowed:
        _refuse(name, value, f"one of {', '.join(allowed)}")
    return value


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    refuse_option(f"pruning.{name}" if name else "pruning", value, allowed, "docs/pruning.md")
