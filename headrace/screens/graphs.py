"""Screens of ``headrace graphs``: the components that are known, memoized or not."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.screens.grid import facts, grid
from headrace.screens.units import bytes_text, count_text, secs_text


@dataclass(frozen=True, slots=True)
class GraphRow:
    """One component: how much of it is kept and who reads it."""

    fingerprint: str
    type: str
    expression: str
    models: tuple[str, ...]
    memos: dict[str, int]
    rows: int
    size_bytes: int
    secs: float


@dataclass(frozen=True, slots=True)
class GraphsScreen:
    """A list of components."""

    graphs: tuple[GraphRow, ...]

    def render(self) -> RenderableType:
        """A line a component."""
        if not self.graphs:
            return "no component matches"
        rows = (
            (g.fingerprint[:12], count_text(g.memos.get("READY", 0)), count_text(g.rows), bytes_text(g.size_bytes), secs_text(g.secs),
             str(len(g.models)), g.expression)
            for g in self.graphs
        )  # fmt: skip
        return grid(("fingerprint", "ready memos>", "rows>", "size>", "computed in>", "models>", "expression*"), rows)


@dataclass(frozen=True, slots=True)
class GraphScreen:
    """One component: its tree, its readers, its memos."""

    fingerprint: str
    type: str
    columns: tuple[str, ...]
    operators: dict[str, int]
    models: tuple[str, ...]
    memos: dict[str, int]
    rows: int
    size_bytes: int
    secs: float
    tree: str

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
                ("memos", memos or "none"),
                ("kept", f"{count_text(self.rows)} rows, {bytes_text(self.size_bytes)}"),
                ("computed in", secs_text(self.secs)),
            )
        )
        return Group(head, "", Text(self.tree, no_wrap=True, overflow="ignore"))


@dataclass(frozen=True, slots=True)
class EvictedScreen:
    """What evicting a component deletes, or would delete."""

    fingerprint: str
    dry_run: bool
    memos: int
    rows: int
    size_bytes: int
    files: int
    models: tuple[str, ...]

    def render(self) -> RenderableType:
        """One sentence, and the next step."""
        verb = "would evict" if self.dry_run else "evicted"
        text = (f"{verb} {count_text(self.memos)} memos of {self.fingerprint[:12]}: {count_text(self.rows)} rows, "
                f"{bytes_text(self.size_bytes)}; read by {', '.join(self.models) or 'no model'}")  # fmt: skip
        return text + ("\nnothing was changed; next: the same command with --yes" if self.dry_run else "")
