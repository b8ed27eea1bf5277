"""Towers as an option: groups of the names of features, and the training option ``tower_modules``, which compresses each group's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from trainer.errors import ConfigError
from trainer.options.checks import check_known, refuse_option
from transforms.errors import listed

Towers = tuple[tuple[str, ...], ...]

#: The most that a tower is compressed, and the most vectors and columns of one.
_MOST_COMPRESSION, _MOST_COUNT = 4096, 1 << 16
#: Options that say the outputs of DLRM's modules in place of the ratio.
_SHAPES = ("combinations", "projections", "dim")


@dataclass(frozen=True, slots=True)
class TowerOptions:
    """The modules of towers (Luo et al., "Disaggregated Multi-Tower", MLSys 2024, section 3.2).

    Attributes:
        towers: the names of the inputs of each tower; each embedded input is in one.
        compression: the columns of the towers' inputs over those of their outputs, from 1 on; 0 if the shape is given in its place.
        combinations: the paper's c: linear combinations of a tower's features, for each of them; DLRM only.
        projections: the paper's p: vectors that are linear in all columns of a tower; DLRM only.
        dim: the paper's D: the columns of each of these vectors, and of the bottom MLP's result; 0: ``dim`` over ``compression``.
    """

    towers: Towers
    compression: float = 0.0
    combinations: float = 1.0
    projections: int = 0
    dim: int = 0

    @classmethod
    def read(cls, document: object) -> TowerOptions:
        """The options of an object by name, or options that were read. Raises :class:`ConfigError`."""
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping) or "towers" not in document:
            _refuse("tower_modules", document, "an object with towers and compression")
        known = ("towers", "compression", *_SHAPES)
        check_known(document, known, where="tower_modules", of="tower_modules")
        towers = document["towers"]
        check_towers(towers, where="tower_modules.towers")
        if ("compression" in document) == ("dim" in document):
            given = "both" if "dim" in document else "neither"
            _refuse("tower_modules", given, "an object with compression, a ratio, or dim, a width, one of them")
        if "compression" in document and ("combinations" in document or "projections" in document):
            _refuse(
                "tower_modules",
                "compression with a shape",
                "an object with dim where combinations or projections are given",
            )
        _check_number("compression", document.get("compression", 1), 1, _MOST_COMPRESSION)
        _check_number("combinations", document.get("combinations", 1), 0, _MOST_COUNT)
        for name, least in (("projections", 0), ("dim", 1)):
            if type(document.get(name, 1)) is not int or not least <= document.get(name, 1) <= _MOST_COUNT:
                _refuse(f"tower_modules.{name}", document[name], f"an integer in [{least}, {_MOST_COUNT}]")
        found = cls(**{**document, "towers": tuple(tuple(tower) for tower in towers)})
        if not found.combinations and not found.projections:
            _refuse("tower_modules.combinations", 0, "above 0 unless projections is")
        return found

    def to_document(self) -> dict[str, object]:
        """The options as an object, without those that are not given."""
        towers = [list(tower) for tower in self.towers]
        if self.compression:
            return {"towers": towers, "compression": self.compression}
        return {"towers": towers, **{name: getattr(self, name) for name in _SHAPES}}


def check_towers(towers: object, *, where: str = "towers") -> None:
    """Raise :class:`ConfigError` unless ``towers`` are lists of names, none of them empty, and each name is in one tower."""
    if not isinstance(towers, (list, tuple)) or not towers:
        raise ConfigError("towers must be a list of lists of names of features", where=where, value=towers,
                          next_step='give them as [["user", "city"], ["item"]]')  # fmt: skip
    names: list[str] = []
    for t, tower in enumerate(towers):
        if not isinstance(tower, (list, tuple)) or not tower or not all(isinstance(one, str) and one for one in tower):
            raise ConfigError("a tower must be a list of names of features", where=f"{where}[{t}]", value=tower,
                              allowed="at least one name", next_step="leave out empty towers")  # fmt: skip
        names += tower
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError("a feature must be in one tower", where=where, value=listed(twice), allowed="each name once",
                          next_step="leave it in one of its towers")  # fmt: skip


def check_members(tables: Mapping[str, str], towers: Towers, *, where: str = "towers") -> None:
    """Raise :class:`ConfigError` unless each feature is in a tower, nothing else is, and features that share a table are together.

    ``tables``: the table of each feature by its name.
    """
    names = list(tables)
    if len(towers) > len(names):
        raise ConfigError("the number of towers must be at most the number of embedding inputs", where=where, value=len(towers), allowed=f"1 to {len(names)}",
                          next_step="join towers")  # fmt: skip
    tower_of = {name: t for t, tower in enumerate(towers) for name in tower}
    unknown, missing = (
        [name for name in tower_of if name not in tables],
        [name for name in names if name not in tower_of],
    )
    if unknown:
        raise ConfigError("a tower must name features of ids", where=where, value=listed(unknown), allowed=listed(names),
                          next_step="leave out dense inputs, and correct the names")  # fmt: skip
    if missing:
        raise ConfigError("each feature of ids must be in a tower", where=where, value=f"{listed(missing)} in none",
                          allowed="all of " + listed(names), next_step="add it to the tower of the features that it is used with")  # fmt: skip
    first: dict[str, str] = {}
    for name, table in tables.items():
        other = first.setdefault(table, name)
        if tower_of[other] != tower_of[name]:
            raise ConfigError("features that share a table must be in one tower", where=f"table {table}",
                              value=f"{other} in tower {tower_of[other]}, {name} in tower {tower_of[name]}",
                              allowed="the same tower", next_step="put them in one tower, or give each a table of its own")  # fmt: skip


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        _refuse(f"tower_modules.{name}", value, f"a number in [{least}, {most}]")


def _refuse(where: str, value: Any, allowed: str) -> NoReturn:
    refuse_option(where, value, allowed, "docs/towers.md")
