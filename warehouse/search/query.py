"""The query of a component search as a value, with its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Literal, get_args

from transforms.comparison.pattern import Pattern
from transforms.errors import InputError
from transforms.names import is_whole_number
from warehouse.scheduling.task_states import MemoState

Sort = Literal["newest", "oldest", "size", "hits", "saved", "secs"]
SORTS: tuple[Sort, ...] = get_args(Sort)

_DIGITS = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, kw_only=True)
class ComponentQuery:
    """Conditions on components; all given ones must hold.

    The readers of a component are the models with it as an input; if there are none (a policy keeps it), the
    models that contain it. ``model``, ``client`` and ``table`` must hold for the same model version.

    Attributes:
        column: A raw column that it reads.
        operator: An operator that it applies; may be written ``lower@2``.
        operator_version: The version of that operator.
        subgraph: A prefix of the fingerprint of the component or of a subgraph in it.
        pattern: A pattern that matches in it.
        fingerprint: A prefix of its fingerprint.
        model: A model that reads it.
        client: A client whose model reads it.
        table: A table over which a model reads it.
        created_before: It was first requested before, in epoch seconds, exclusive.
        created_after: It was first requested after, in epoch seconds, inclusive.
        min_size_bytes: Least bytes of its ready memos.
        max_size_bytes: Most bytes of its ready memos.
        min_hits: Least number of submissions and reads for training by its readers.
        min_saved_secs: Least computing seconds that its live readers beyond the first saved.
        state: A state that at least one of its memos has.
    """

    column: str | None = None
    operator: str | None = None
    operator_version: int | None = None
    subgraph: str | None = None
    pattern: Pattern | None = None
    fingerprint: str | None = None
    model: str | None = None
    client: str | None = None
    table: str | None = None
    created_before: float | None = None
    created_after: float | None = None
    min_size_bytes: int | None = None
    max_size_bytes: int | None = None
    min_hits: int | None = None
    min_saved_secs: float | None = None
    state: MemoState | None = None

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for conditions that no component can fulfil."""
        if self.operator is not None and "@" in self.operator:
            name, _, version = self.operator.partition("@")
            if not is_whole_number(version) or self.operator_version not in (None, int(version)):
                raise InputError("operator must be a name, or a name with a version", where="operator", value=self.operator,
                                 allowed="a name, or name@version such as hash_buckets@1")  # fmt: skip
            object.__setattr__(self, "operator", name)
            object.__setattr__(self, "operator_version", int(version))
        if self.operator_version is not None and self.operator is None:
            raise InputError(
                "operator_version must be given with an operator", where="operator_version", value=self.operator_version
            )
        for name in ("fingerprint", "subgraph"):
            prefix = getattr(self, name)
            if prefix is not None and not _DIGITS.fullmatch(prefix):
                raise InputError(f"{name} must be a prefix of a fingerprint", where=name, value=prefix,
                                 allowed="1 to 64 digits of 0-9 and a-f")  # fmt: skip
        for name in ("min_size_bytes", "max_size_bytes", "min_hits", "min_saved_secs"):
            least = getattr(self, name)
            if least is not None and least < 0:
                raise InputError(f"{name} must be >= 0", where=name, value=least, allowed="0 or more")

    @property
    def is_empty(self) -> bool:
        """Whether there is no condition."""
        return self == ComponentQuery()

    @property
    def text(self) -> str:
        """The conditions as text, in the order of the fields; ``every component`` without any."""
        said = [_WORDS[field.name](self) for field in fields(self) if _given(self, field.name)]
        return ", ".join(said) or "every component"


def state_of(name: str, *, where: str = "state") -> MemoState:
    """The state of memos of this name, in letters of either case. Raises :class:`InputError`; ``where``: what gave the name."""
    known = {one.lower(): one for one in MemoState}
    if name.lower() not in known:
        raise InputError(f"{where} must be a state of memos", where=where, value=name, allowed=", ".join(known))
    return known[name.lower()]


def _given(query: ComponentQuery, name: str) -> bool:
    return name in _WORDS and getattr(query, name) is not None


def _moment(at: float | None) -> str:
    return f"{datetime.fromtimestamp(at or 0, UTC):%Y-%m-%d %H:%M}"


def _operator(query: ComponentQuery) -> str:
    version = "" if query.operator_version is None else f"@{query.operator_version}"
    return f"operator {query.operator}{version}"


_WORDS: dict[str, Callable[[ComponentQuery], str]] = {
    "column": lambda q: f"column {q.column}",
    "operator": _operator,
    "subgraph": lambda q: f"subgraph {(q.subgraph or '')[:12]}",
    "pattern": lambda q: f"pattern {q.pattern}",
    "fingerprint": lambda q: f"fingerprint {(q.fingerprint or '')[:12]}",
    "model": lambda q: f"model {q.model}",
    "client": lambda q: f"client {q.client}",
    "table": lambda q: f"table {q.table}",
    "created_before": lambda q: f"known before {_moment(q.created_before)}",
    "created_after": lambda q: f"known since {_moment(q.created_after)}",
    "min_size_bytes": lambda q: f"at least {q.min_size_bytes} bytes",
    "max_size_bytes": lambda q: f"at most {q.max_size_bytes} bytes",
    "min_hits": lambda q: f"asked for at least {q.min_hits} times",
    "min_saved_secs": lambda q: f"at least {q.min_saved_secs:g} s saved",
    "state": lambda q: f"state {q.state}",
}
