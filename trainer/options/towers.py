"""Towers as an option: groups of the names of features, and the training option ``tower_modules``, which compresses each group's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from trainer.errors import ConfigError
from trainer.options.checks import check_known, refuse_option
from transforms.errors import listed

Towers = tuple[tuple[str, ...], ...]

#: The most that a tower is compressed, and the most vectors and columns of one.
_MOST_COMPRESSION, _MOST_COUNT = 4096, 1 << 16
#: Of DLRM, in place of a ratio: the paper's c, p and D. Of DCN-v2: the columns of a tower's outputs, and the rank of its cross layer.
_DLRM_SHAPE, _DCN_SHAPE = ("combinations", "projections", "dim"), ("width", "rank")
PROJECTION, COMBINATION = "projection", "combination"
_KINDS = (PROJECTION, COMBINATION)


@dataclass(frozen=True, slots=True)
class HostTowers:
    """How the hosts of a job exchange by towers; flat without any, and then it is false.

    Attributes:
        towers: the names of the inputs of each tower.
        machine_hosts: so many hosts, in the order of their ranks, share a machine: bags cross machines between hosts of equal places only, and
            dense gradients may be added in two legs, also without towers.
        sends_sums: hosts of a tower may send sums of their rows in place of rows, which gives other bits.
    """

    towers: Towers = ()
    machine_hosts: int = 1
    sends_sums: bool = False

    def __bool__(self) -> bool:
        return bool(self.towers)


#: Hosts that do not exchange by towers.
FLAT = HostTowers()


@dataclass(frozen=True, slots=True)
class TowerOptions:
    """The modules of towers (Luo et al., "Disaggregated Multi-Tower", MLSys 2024, section 3.2).

    Without a ratio and a shape a tower of DLRM halves the width of its vectors, and one of DCN-v2 gives as many columns as one input has.

    Attributes:
        towers: the names of the inputs of each tower; each embedded input is in one.
        module: of DLRM: "projection", the paper's, or "combination", that of runs whose options do not say it.
        compression: the columns of the towers' inputs over those of their outputs, from 1 on; 0 if it follows from the shape.
        combinations: the paper's c, DLRM only: the vectors that each feature gives, a whole number. Of "combination": linear combinations of
            the features, for each of them.
        projections: the paper's p: vectors that are linear in all columns of a tower; DLRM only.
        dim: the paper's D: the columns of each of these vectors, and of the bottom MLP's result; 0: it follows from the ratio.
        width: the columns that each tower of DCN-v2 gives; 0: it follows from the ratio, or is that of one input.
        rank: of the matrices of its cross layer; 0: the model's ``cross_rank``.
    """

    towers: Towers
    module: str = PROJECTION
    compression: float = 0.0
    combinations: float = 1.0
    projections: int = 0
    dim: int = 0
    width: int = 0
    rank: int = 0

    @classmethod
    def read(cls, document: object) -> TowerOptions:
        """The options of an object by name, or options that were read. Raises :class:`ConfigError`."""
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping) or "towers" not in document:
            _refuse("tower_modules", document, "an object with towers")
        check_known(document, [one.name for one in fields(cls)], where="tower_modules", of="tower_modules")
        check_towers(document["towers"], where="tower_modules.towers")
        _check_shape(document)
        found = cls(**{**document, "towers": tuple(tuple(tower) for tower in document["towers"])})
        if not found.combinations and not found.projections:
            _refuse("tower_modules.combinations", 0, "above 0 unless projections is")
        if found.module == PROJECTION and found.combinations != int(found.combinations):
            _refuse(
                "tower_modules.combinations", found.combinations, "a whole number: each feature gives as many vectors"
            )
        return found

    def to_document(self) -> dict[str, object]:
        """The options as an object: the towers, the module, and all else that is not as it is by default."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return {**given, "towers": [list(tower) for tower in self.towers], "module": self.module}


def with_recorded_module(document: object) -> object:
    """``tower_modules`` as a run recorded them: "combination" where nothing says the module, as there was no other."""
    return {"module": COMBINATION, **document} if isinstance(document, Mapping) else document


def with_kept_module(asked: object, recorded: object) -> object:
    """``tower_modules`` that are asked of a run which goes on: they have its module where they do not say one."""
    if isinstance(asked, Mapping) and isinstance(recorded, Mapping) and "module" in recorded:
        return {"module": recorded["module"], **asked}
    return asked


def _check_shape(document: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` unless numbers are in range, and the outputs have one width by a ratio, by DLRM's shape or by DCN's."""
    if document.get("module", PROJECTION) not in _KINDS:
        _refuse("tower_modules.module", document["module"], " or ".join(_KINDS))
    if "compression" in document and ("dim" in document or "width" in document):
        _refuse(
            "tower_modules",
            "a ratio and a width",
            "an object with compression, a ratio, or dim or width, columns: one of them",
        )
    if "compression" in document and ("combinations" in document or "projections" in document):
        _refuse(
            "tower_modules",
            "compression with a shape",
            "an object with dim where combinations or projections are given",
        )
    _check_number("compression", document.get("compression", 1), 1, _MOST_COMPRESSION)
    _check_number("combinations", document.get("combinations", 1), 0, _MOST_COUNT)
    for name, least in (("projections", 0), ("dim", 1), ("width", 1), ("rank", 1)):
        if type(document.get(name, 1)) is not int or not least <= document.get(name, 1) <= _MOST_COUNT:
            _refuse(f"tower_modules.{name}", document[name], f"an integer in [{least}, {_MOST_COUNT}]")


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
