"""Conditions on components as fields of a form: from the query of an address, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self
from urllib.parse import urlencode

from headrace.terminal.quantities import age_of, bytes_of, moment_of
from transforms.comparison.pattern import Pattern
from transforms.errors import InputError
from warehouse.eviction.plan import EvictionRequest
from warehouse.search.query import ComponentQuery, state_of


@dataclass(frozen=True)
class FormFields:
    """Fields of a form as they were typed; an empty one is no condition."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """The fields among those of an address; others are left out."""
        return cls(**{one.name: given.get(one.name, "").strip() for one in fields(cls)})

    def address(self, **more: object) -> str:
        """The given fields as the query of an address, with ``more``."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return urlencode({name: value for name, value in {**given, **more}.items() if value not in ("", None)})

    def narrowed(self, name: str, value: str) -> Self:
        """The same fields with a further one, in place of one of this name."""
        return replace(self, **{name: value})

    @property
    def is_empty(self) -> bool:
        """Whether no field is filled in."""
        return self == type(self)()


@dataclass(frozen=True)
class Conditions(FormFields):
    """Conditions on components."""

    column: str = ""
    operator: str = ""
    pattern: str = ""
    subgraph: str = ""
    fingerprint: str = ""
    model: str = ""
    client: str = ""
    table: str = ""
    state: str = ""
    min_size: str = ""
    max_size: str = ""
    min_hits: str = ""
    min_saved: str = ""
    older_than: str = ""
    newer_than: str = ""

    def query(self, now: float) -> ComponentQuery:
        """The query of a search, in which ages are those of components. Raises :class:`InputError`."""
        return self._query(age_of("older than", self.older_than, now), age_of("newer than", self.newer_than, now))

    def _query(self, before: float | None, after: float | None) -> ComponentQuery:
        return ComponentQuery(
            column=self.column or None,
            operator=self.operator or None,
            pattern=Pattern.parse(self.pattern) if self.pattern else None,
            subgraph=self.subgraph.lower() or None,
            fingerprint=self.fingerprint.lower() or None,
            model=self.model or None,
            client=self.client or None,
            table=self.table or None,
            state=state_of(self.state) if self.state else None,
            min_size_bytes=bytes_of("least size", self.min_size),
            max_size_bytes=bytes_of("most size", self.max_size),
            min_hits=None if (least := _number("least requests", self.min_hits)) is None else int(least),
            min_saved_secs=_number("least seconds saved", self.min_saved),
            created_before=before,
            created_after=after,
        )

    def request(self, now: float, *, start: str, end: str, budget: str) -> EvictionRequest:
        """The request of an eviction, in which ages are those of memos. Raises :class:`InputError`, also without any condition."""
        return EvictionRequest(
            query=self._query(None, None),
            start=moment_of("partitions from", start),
            end=moment_of("partitions before", end),
            written_before=age_of("older than", self.older_than, now),
            written_after=age_of("newer than", self.newer_than, now),
            budget_bytes=bytes_of("budget", budget),
        )


def _number(field: str, text: str) -> float | None:
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not abs(found) < 2**63:  # neither NaN nor more than SQL has
        raise InputError(f"{field} must be a number below 2^63", where=field, value=text)
    return found
