"""Screens of ``headrace graphs``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many, moment, percent_text, secs_text

if TYPE_CHECKING:
    from headrace.checks.histogram import Bin, ValueCount
    from headrace.checks.statistics import Spread
    from warehouse.search.component_memos import PartitionMemos
    from warehouse.search.neighbours import Around, SharedPart


@dataclass(frozen=True, slots=True)
class GraphRow:
    """One component, its memos, and the models that read it.

    ``within``: the models that contain it, if none has it as an input. ``created_at``: epoch seconds.
    """

    fingerprint: str
    type: str
    expression: str
    models: tuple[str, ...]
    within: tuple[str, ...]
    memos: dict[str, int]
    rows: int
    size_bytes: int
    secs: float
    saved_secs: float
    hits: int
    created_at: float


@dataclass(frozen=True, slots=True, repr=False)
class GraphsScreen(Listing):
    """A page of components from ``offset`` on, or after the key of another page.

    ``total``: the number of all, if requested; ``is_least``: there are more than that. ``next_after``: the key after which the next page begins;
    None if there are no further components.
    """

    rows_field: ClassVar[str] = "graphs"
    columns: ClassVar[tuple[str, ...]] = (
        "fingerprint",
        "type",
        "expression",
        "models",
        "within",
        "memos",
        "rows",
        "size_bytes",
        "secs",
        "saved_secs",
        "hits",
        "created_at",
    )

    graphs: tuple[GraphRow, ...]
    offset: int
    more: bool
    total: int | None
    is_least: bool = False
    next_after: str | None = None

    def render(self) -> RenderableType:
        """One line per component."""
        if not self.graphs:
            none = "no component matches" if not self.offset else f"no component from --offset {self.offset} on"
            return none + ("" if self.total is None else f"; {count_text(self.total)} in total")
        rows = (
            (g.fingerprint[:12], count_text(g.memos.get("READY", 0)), count_text(g.rows), bytes_text(g.size_bytes), secs_text(g.secs),
             secs_text(g.saved_secs), count_text(g.hits), _readers(g), g.expression)
            for g in self.graphs
        )  # fmt: skip
        columns = ("fingerprint", "ready memos>", "rows>", "size>", "computed in>", "saved>", "requests>", "models>",
                   "expression*")  # fmt: skip
        table = grid(columns, rows)
        said = [] if self.total is None else [f"{count_text(self.total)} in total"]
        said += [f"there are more: --offset {self.offset + len(self.graphs)}"] if self.more else []
        return Group(table, "; ".join(said)) if said else table


def _readers(graph: GraphRow) -> str:
    return f"in {len(graph.within)}" if graph.within else str(len(graph.models))


@dataclass(frozen=True, slots=True, repr=False)
class GraphScreen(Shown):
    """One component: its tree, its readers, its memos."""

    fingerprint: str
    type: str
    columns: tuple[str, ...]
    operators: dict[str, int]
    models: tuple[str, ...]
    within: tuple[str, ...]
    memos: dict[str, int]
    rows: int
    size_bytes: int
    secs: float
    saved_secs: float
    hits: int
    tree: str
    parts: tuple[SharedPart, ...] = ()
    around: tuple[Around, ...] = ()
    more_around: bool = False

    def render(self) -> RenderableType:
        """Facts, then the tree."""
        operators = ", ".join(f"{name} v{version}" for name, version in sorted(self.operators.items()))
        memos = ", ".join(f"{count_text(n)} {state.lower()}" for state, n in self.memos.items())
        head = facts(
            (
                ("fingerprint", self.fingerprint),
                ("type", self.type),
                ("raw columns", ", ".join(self.columns)),
                ("operators", operators),
                ("read by", ", ".join(self.models) or "-"),
                *([("contained in", ", ".join(self.within))] if self.within else []),
                ("requests", count_text(self.hits)),
                ("memos", memos or "none"),
                ("stored", f"{many(self.rows, 'row')}, {bytes_text(self.size_bytes)}"),
                ("computed in", f"{secs_text(self.secs)}; {secs_text(self.saved_secs)} more saved by sharing"),
            )
        )
        return Group(head, "", Text(self.tree, no_wrap=True, overflow="ignore"), *self._neighbours())

    def _neighbours(self) -> list[RenderableType]:
        """The parts that others contain, and the components that contain this one."""
        shown: list[RenderableType] = []
        if self.parts:
            rows = (
                (one.fingerprint[:12], counted_text(one), ", ".join(one.models) or "-", one.expression)
                for one in self.parts
            )
            shown += ["", grid(("shared part", "in other components>", "of models*", "expression*"), rows)]
        if self.around:
            shown += ["", grid(("contained in", "expression*"), ((one.fingerprint[:12], one.expression) for one in self.around))]  # fmt: skip
            shown += ["and in more"] if self.more_around else []
        return shown


def counted_text(part: SharedPart) -> str:
    """The number of other components that contain a part."""
    return f"more than {count_text(part.components)}" if part.is_least else count_text(part.components)


@dataclass(frozen=True, slots=True, repr=False)
class MemosScreen(Listing):
    """The memos of a component by partition, in time order; the newest partitions with memos."""

    rows_field: ClassVar[str] = "partitions"
    columns: ClassVar[tuple[str, ...]] = ("table", "partition", "states", "rows", "size_bytes", "start")

    fingerprint: str
    partitions: tuple[PartitionMemos, ...]

    def json_fields(self) -> dict[str, Any]:
        """The fields, with the start of each partition as text."""
        rows = [
            {**fields_of(one, "start_at"), "start": moment(one.start_at), "states": dict(one.states)}
            for one in self.partitions
        ]
        return {"fingerprint": self.fingerprint, "partitions": rows}

    def render(self) -> RenderableType:
        """One line per partition."""
        if not self.partitions:
            return "the component has no memo over current data"
        rows = (
            (one.table, one.partition, ", ".join(f"{count_text(n)} {state.lower()}" for state, n in one.states.items()),
             count_text(one.rows), bytes_text(one.size_bytes))
            for one in self.partitions
        )  # fmt: skip
        return grid(("table", "partition", "memos", "rows>", "size>"), rows)


@dataclass(frozen=True, slots=True, repr=False)
class ValuesScreen(Shown):
    """The values of a component in one ready memo.

    Attributes:
        table: of the memo; empty if the component has no ready memo of a size that is read.
        empty_share: the share of nulls or empty lists; None without events.
        not_finite: NaN and infinite numbers.
        lengths: least, median and greatest length of lists.
        numbers: least, mean and greatest of finite numbers that are not ids.
        bins: how often numbers occur.
        values: the most frequent ids, texts or booleans.
        examples: the first distinct values.
    """

    fingerprint: str
    expression: str
    type: str
    table: str = ""
    partition: str = ""
    rows: int = 0
    empty_share: float | None = None
    distinct: int = 0
    not_finite: int = 0
    lengths: Spread | None = None
    numbers: Spread | None = None
    bins: tuple[Bin, ...] = ()
    values: tuple[ValueCount, ...] = ()
    examples: tuple[str, ...] = ()

    def render(self) -> RenderableType:
        """Facts, then how often values occur."""
        if not self.table:
            return "the component has no ready memo of at most 16 MiB; next: headrace work"
        head = facts(
            [("component", f"{self.fingerprint[:12]}  {self.expression}"), ("type", self.type), ("over", f"{self.table}, {self.partition}"),
             ("events", count_text(self.rows)), ("empty", percent_text(self.empty_share)), ("distinct values", count_text(self.distinct)),
             *([("NaN or infinite", count_text(self.not_finite))] if self.not_finite else []),
             *([("length", spread_text(self.lengths))] if self.lengths else []),
             *([("numbers", spread_text(self.numbers))] if self.numbers else []),
             ("examples", ", ".join(self.examples) or "-")]
        )  # fmt: skip
        shown: list[RenderableType] = [head]
        if self.values:
            shown += ["", grid(("value", "times>"), ((one.value, count_text(one.count)) for one in self.values))]
        if self.bins:
            shown += ["", grid(("from>", "to>", "values>"), ((f"{one.low:.6g}", f"{one.high:.6g}", count_text(one.count)) for one in self.bins))]  # fmt: skip
        return Group(*shown)


def spread_text(spread: Spread) -> str:
    """Least, middle and greatest."""
    return " / ".join(f"{each:.6g}" for each in (spread.least, spread.middle, spread.most))
