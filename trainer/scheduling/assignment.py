"""Which reader serves which unit. Pure.

Hosts consume their units in order, so units are requested in order and the lowest number has precedence. A unit is served by one
reader, or by two if the first is a straggler; if both are, a third replaces the first. Assignments are not logged: they decide on no weight, and a controller or a host that starts
again assigns what it needs again; readers are stateless and hosts ignore units that they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from transforms.errors import InputError

#: The most readers that serve one unit.
MOST_SERVICES = 2
#: The number of measured durations that decide what a straggler is.
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class AssignmentSettings:
    """The limits of assignments.

    Attributes:
        units_per_reader: units that one reader serves at once.
        straggler_factor: a unit is a straggler after this multiple of the median duration per row.
        straggler_secs: no unit is a straggler before.
        least_measured: durations that must have been measured before any unit is a straggler.
        most_speculated: the largest share of units in flight that are served twice; at least one may be.
    """

    units_per_reader: int = 2
    straggler_factor: float = 3.0
    straggler_secs: float = 0.5
    least_measured: int = 5
    most_speculated: float = 0.25

    def __post_init__(self) -> None:
        if self.units_per_reader < 1 or self.straggler_factor < 1 or self.straggler_secs < 0 or self.least_measured < 1:
            raise InputError("settings of assignments must be in the allowed range", value=self,
                             allowed="units_per_reader, straggler_factor, least_measured >= 1, straggler_secs >= 0")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Service:
    """A reader that serves a unit since a moment."""

    reader: str
    since_secs: float


@dataclass(frozen=True, slots=True)
class FlyingUnit:
    """A unit in flight: its host, its size, and the one or two readers that serve it.

    ``failed``: the readers that failed to serve it, which get it again only if there is no other. ``home``: a number that is equal for
    units of the same rows, which several hosts take parts of; None for a unit of one host.
    """

    number: int
    host: str
    rows: int
    services: tuple[Service, ...] = ()
    failed: frozenset[str] = frozenset()
    home: int | None = None


@dataclass(frozen=True, slots=True)
class AssignUnit:
    """Instruction: ``reader`` serves a unit to ``host``."""

    unit: int
    reader: str
    host: str


@dataclass(frozen=True, slots=True)
class RevokeUnit:
    """Instruction: ``reader`` stops serving a unit; if it has been served, nothing happens."""

    unit: int
    reader: str


Change = AssignUnit | RevokeUnit


@dataclass(frozen=True, slots=True)
class Assignments:
    """All units in flight of an attempt.

    Attributes:
        attempt: the attempt.
        units: by number; a unit without a service waits for a reader.
        secs_per_row: the last measured durations, of services without a failure.
    """

    attempt: int = 0
    units: Mapping[int, FlyingUnit] = field(default_factory=dict)
    secs_per_row: tuple[float, ...] = ()

    def loads(self) -> dict[str, int]:
        """The number of units that each reader serves."""
        found: dict[str, int] = {}
        for unit in self.units.values():
            for service in unit.services:
                found[service.reader] = found.get(service.reader, 0) + 1
        return found

    @property
    def usual_secs_per_row(self) -> float:
        """The median measured duration per row; 0 without measurements."""
        return sorted(self.secs_per_row)[len(self.secs_per_row) // 2] if self.secs_per_row else 0.0


def request_units(
    held: Assignments, host: str, wanted: Sequence[tuple[int, int]], homes: Mapping[int, int] = MappingProxyType({})
) -> Assignments:
    """Add units, as pairs of number and rows, that ``host`` has space for. Units that are in flight stay as they are.

    ``homes``: by number, the :attr:`FlyingUnit.home` of units that have one.
    """
    new = {
        number: FlyingUnit(number, host, rows, home=homes.get(number))
        for number, rows in wanted
        if number not in held.units
    }
    return replace(held, units={**held.units, **new}) if new else held


def assign_units(
    held: Assignments, readers: Sequence[str], now_secs: float, settings: AssignmentSettings
) -> tuple[Assignments, tuple[Change, ...]]:
    """Give waiting units and stragglers, lowest number first, to the least loaded readers.

    A straggler has precedence over later units: its host waits for it before it needs them. A unit with a home goes to the reader of that
    home while it can take one: so all hosts ask one reader for their parts of the same rows, which it reads once.

    ``readers``: those that can take work. Units of other readers are assigned again.
    """
    held = _without_readers(held, readers)
    loads = dict.fromkeys(sorted(readers), 0) | held.loads()
    units, present = dict(held.units), sorted(readers)
    told: list[Change] = []

    def give(unit: FlyingUnit) -> bool:
        serving = {one.reader for one in unit.services}
        if not unit.failed >= loads.keys():
            serving |= unit.failed
        free = [one for one, load in loads.items() if one not in serving and load < settings.units_per_reader]
        reader = min(free, key=lambda one: (one != _reader_at(unit.home, present), loads[one], one), default=None)
        if reader is None:
            return False
        loads[reader] += 1
        kept = unit.services
        if len(kept) == MOST_SERVICES:  # all are late: the oldest is replaced
            oldest, *rest = sorted(kept, key=lambda one: one.since_secs)
            loads[oldest.reader] -= 1
            kept = tuple(rest)
            told.append(RevokeUnit(unit.number, oldest.reader))
        units[unit.number] = replace(unit, services=(*kept, Service(reader, now_secs)))
        told.append(AssignUnit(unit.number, reader, unit.host))
        return True

    late = _affordable(held, stragglers(held, now_secs, settings), settings)
    waiting = [unit for unit in units.values() if not unit.services]
    for unit in sorted([*waiting, *late], key=lambda one: one.number):
        if not give(unit) and not unit.services:
            break
    return replace(held, units=units), tuple(told)


def _reader_at(home: int | None, readers: Sequence[str]) -> str | None:
    return None if home is None or not readers else readers[home % len(readers)]


def _affordable(held: Assignments, late: list[FlyingUnit], settings: AssignmentSettings) -> list[FlyingUnit]:
    """The stragglers that may be given to another reader now, lowest number first."""
    speculated = sum(len(unit.services) > 1 for unit in held.units.values())
    budget = max(1, int(len(held.units) * settings.most_speculated)) - speculated
    first = {unit.number for unit in [one for one in late if len(one.services) == 1][: max(0, budget)]}
    return [unit for unit in late if len(unit.services) > 1 or unit.number in first]


def stragglers(held: Assignments, now_secs: float, settings: AssignmentSettings) -> list[FlyingUnit]:
    """The units all of whose services take far longer than usual, lowest number first."""
    if len(held.secs_per_row) < settings.least_measured:
        return []
    usual = held.usual_secs_per_row
    return [
        unit
        for number, unit in sorted(held.units.items())
        if unit.services
        and now_secs - max(one.since_secs for one in unit.services)
        > max(settings.straggler_secs, settings.straggler_factor * usual * unit.rows)
    ]


def receive_unit(
    held: Assignments, number: int, reader: str, now_secs: float
) -> tuple[Assignments, tuple[Change, ...]]:
    """A host received a whole unit from ``reader``: other services of it are revoked. A second delivery changes nothing."""
    unit = held.units.get(number)
    if unit is None:
        return held, ()
    own = [one for one in unit.services if one.reader == reader]
    measured = held.secs_per_row
    if own and now_secs >= own[0].since_secs and unit.rows:
        measured = (*measured, (now_secs - own[0].since_secs) / unit.rows)[-_REMEMBERED:]
    units = {other: one for other, one in held.units.items() if other != number}
    revoked = tuple(RevokeUnit(number, one.reader) for one in unit.services if one.reader != reader)
    return replace(held, units=units, secs_per_row=measured), revoked


def fail_service(held: Assignments, number: int, reader: str) -> Assignments:
    """A reader failed to serve a unit: it waits for another service, unless a second reader serves it."""
    held = withdraw_service(held, number, reader)
    unit = held.units.get(number)
    if unit is None:
        return held
    return replace(held, units={**held.units, number: replace(unit, failed=unit.failed | {reader})})


def withdraw_service(held: Assignments, number: int, reader: str) -> Assignments:
    """A reader does not serve a unit any more, for a reason that is not its own."""
    unit = held.units.get(number)
    if unit is None:
        return held
    left = tuple(one for one in unit.services if one.reader != reader)
    return replace(held, units={**held.units, number: replace(unit, services=left)})


def withdraw_reader(held: Assignments, reader: str) -> Assignments:
    """A reader is gone, and may come back without its units before units are assigned again."""
    return _without_readers(held, [one for one in held.loads() if one != reader])


def _without_readers(held: Assignments, readers: Sequence[str]) -> Assignments:
    """Without the services of readers that are gone. They need no order: they are gone, or leave after their units."""
    present = set(readers)
    if all(one.reader in present for unit in held.units.values() for one in unit.services):
        return held
    units = {
        number: replace(unit, services=tuple(one for one in unit.services if one.reader in present))
        for number, unit in held.units.items()
    }
    return replace(held, units=units)
