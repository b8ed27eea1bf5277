"""What is searched for among the components: one value with every condition, and how it is said in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Literal, get_args

from transforms.comparison.pattern import Pattern
from transforms.errors import InputError
from warehouse.scheduling.task_states import MemoState

Sort = Literal["newest", "oldest", "size", "hits", "saved", "secs"]
SORTS: tuple[Sort, ...] = get_args(Sort)

_DIGITS = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, kw_only=True)
class ComponentQuery:
    """Conditions on components; all that are given hold for every component that is found.

    ``column``: it reads this raw column. ``operator``: it applies it, in ``operator_version`` if one is given; it may
    also be written ``lower@2``. ``subgraph``: it is, or contains, the subgraph whose fingerprint starts so. ``pattern``:
    it contains a match. ``fingerprint``: its own starts so. ``model``, ``client``, ``table``: one and the same version of
    a model of this name, of this client, over this table reads it. The readers of a component are the models of which
    it is an input; of a component that is an input of none (a policy keeps it) those that contain it.
    ``created_before`` and ``created_after``: epoch seconds at which a model first asked for it; half-open.
    ``min_size_bytes`` and ``max_size_bytes``: bytes of its ready memos, both inclusive. ``min_hits``: how often its
    readers were submitted, or read for training. ``min_saved_secs``: computing time of its ready memos for every live reader beyond the first.
    ``state``: at least one of its memos is so.
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
        """Raises :class:`InputError` for what no component can be like."""
        if self.operator is not None and "@" in self.operator:
            name, _, version = self.operator.partition("@")
            if not version.isdigit() or self.operator_version not in (None, int(version)):
                raise InputError("not an operator and its version", where="operator", value=self.operator,
                                 allowed="a name, or name@version such as hash_buckets@1")  # fmt: skip
            object.__setattr__(self, "operator", name)
            object.__setattr__(self, "operator_version", int(version))
        if self.operator_version is not None and self.operator is None:
            raise InputError("a version is of an operator, and none is named", where="operator_version",
                             value=self.operator_version)  # fmt: skip
        for name in ("fingerprint", "subgraph"):
            prefix = getattr(self, name)
            if prefix is not None and not _DIGITS.fullmatch(prefix):
                raise InputError("not the start of a fingerprint", where=name, value=prefix,
                                 allowed="1 to 64 digits of 0-9 and a-f")  # fmt: skip
        for name in ("min_size_bytes", "max_size_bytes", "min_hits", "min_saved_secs"):
            least = getattr(self, name)
            if least is not None and least < 0:
                raise InputError("less than nothing", where=name, value=least, allowed="0 or more")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked: every component is found."""
        return self == ComponentQuery()

    @property
    def text(self) -> str:
        """The conditions in words, in the order of the fields; ``every component`` when there are none."""
        said = [_WORDS[field.name](self) for field in fields(self) if _given(self, field.name)]
        return ", ".join(said) or "every component"


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
