"""Screens of ``headrace model``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.analyze import OfModel, changed_grid
from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, more_rows, percent_text, secs_text

if TYPE_CHECKING:
    from pipelines.analysis.plan import ChangedAnalysis
    from warehouse.matching.submit import Submission
    from warehouse.models.pinned_analyses import UsedAnalysis
    from warehouse.models.version_changes import VersionChanges


@dataclass(frozen=True, slots=True)
class SubmittedRow:
    """One submitted model. ``analyzed``: the results that replace its pinned analyses."""

    client: str
    inputs: int
    submission: Submission
    analyzed: tuple[OfModel[ChangedAnalysis], ...] = ()

    def json_fields(self) -> dict[str, Any]:
        """The fields of the submission; ``pinned`` are the analyses that stay although their data changed."""
        done = self.submission
        return {
            "model": done.model,
            "version": done.version,
            "client": self.client,
            "table": done.table,
            "inputs": self.inputs,
            "hits": done.hits,
            "shared": done.shared,
            "queued": done.queued,
            "failed": done.failed,
            "computed": done.computed,
            "dropped": done.dropped,
            "unjoined": done.unjoined,
            "policy": done.policy,
            "unchanged": done.unchanged,
            "changes": done.changes,
            "pinned": [_pinned_fields(one) for one in self.pinned],
            "analyzed": self.analyzed,
        }

    @property
    def pinned(self) -> tuple[UsedAnalysis, ...]:
        """Pinned analyses whose ranges hold other data now."""
        return tuple(one for one in self.submission.analyses if not one.is_current)

    @property
    def said(self) -> str:
        """The changes of the model as text."""
        return "; ".join(self.submission.changes) or ("unchanged" if self.submission.unchanged else "")

    @property
    def requests(self) -> int:
        """The number of (component, fragment) pairs."""
        return self.submission.hits + self.submission.misses

    @property
    def covered_share(self) -> float | None:
        """The share that needs no new work: memoized, or queued already."""
        return (self.submission.hits + self.submission.shared) / self.requests if self.requests else None


@dataclass(frozen=True, slots=True, repr=False)
class SubmittedScreen(Shown):
    """The models of one file."""

    models: tuple[SubmittedRow, ...]

    def render(self) -> RenderableType:
        """One line per model, and the next step."""
        rows = (
            (done.model, str(done.version), m.client, str(m.inputs), count_text(m.requests), count_text(done.hits),
             count_text(done.shared), count_text(done.queued), percent_text(m.covered_share), m.said)
            for m in self.models
            for done in (m.submission,)
        )  # fmt: skip
        models = grid(
            ("model", "version>", "client", "inputs>", "memos needed>", "ready>", "queued already>", "queued now>",
             "covered>", "changes*"),
            rows,
        )  # fmt: skip
        table = Group(models, *self._analyses())
        submissions = [m.submission for m in self.models]
        waiting = sum(done.queued + done.shared for done in submissions)
        computed = sum(done.computed for done in submissions)
        dropped = sum(done.dropped for done in submissions)
        if failed := sum(done.failed for done in submissions):
            return Group(table, f"{count_text(failed)} are quarantined; next: headrace tasks list shows why, "
                                "headrace tasks retry --all queues them again")  # fmt: skip
        if unjoined := sum(done.unjoined for done in submissions):
            return Group(
                table,
                f"{count_text(unjoined)} wait for joined columns; next: headrace work --until-idle, which computes both",
            )
        if waiting:
            return Group(table, "next: headrace work --until-idle")
        if dropped:
            return Group(table, f"{count_text(dropped)} are dropped, and computed at every read; next: headrace "
                                "tasks list --state dropped")  # fmt: skip
        if computed:
            return Group(table, f"computed at every read, by the admission policy: {count_text(computed)}")
        return Group(table, "everything these models read is memoized")

    def _analyses(self) -> list[RenderableType]:
        """The pinned analyses whose data changed, and the results that replace pinned ones."""
        pinned = [
            (
                m.submission.model,
                f"{p.operator}({p.expression})",
                p.over,
                f"{many(p.rows, 'row')}; {more_rows(p.rows, p.rows_now or 0)}",
            )
            for m in self.models
            for p in m.pinned
        ]
        shown: list[RenderableType] = []
        if pinned:
            shown = ["", grid(("model", "pinned analysis*", "range", "pinned to*"), pinned),
                     "--analyze would analyze again and create new versions; --analyze --dry-run shows what it would read"]  # fmt: skip
        if changes := [change for m in self.models for change in m.analyzed]:
            shown += ["", changed_grid(changes)]
        return [*shown, ""] if shown else []


def _pinned_fields(one: UsedAnalysis) -> dict[str, Any]:
    """A pinned analysis: ``rows`` of its range at the analysis, and ``rows_now``."""
    shown = {name: getattr(one, name) for name in ("operator", "expression", "over", "rows")}
    return {**shown, "rows_now": one.rows_now or 0}


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model in the list: its newest version, and its components' memos by state."""

    name: str
    version: int
    client: str
    priority: int
    table: str
    label: str
    components: int
    memos: dict[str, int]
    task: str = "binary"

    @property
    def label_text(self) -> str:
        """The label, and the task unless it is the default."""
        return self.label if self.task == "binary" else f"{self.label} ({self.task})"


@dataclass(frozen=True, slots=True, repr=False)
class ModelsScreen(Listing):
    """The live models."""

    rows_field: ClassVar[str] = "models"
    columns: ClassVar[tuple[str, ...]] = (
        "name",
        "version",
        "client",
        "priority",
        "table",
        "label",
        "components",
        "memos",
        "task",
    )

    models: tuple[ModelRow, ...]

    def render(self) -> RenderableType:
        """One line per model."""
        if not self.models:
            return "there is no live model; next: headrace model submit FILE.py --table TABLE"
        rows = (
            (
                m.name,
                str(m.version),
                m.client,
                str(m.priority),
                m.table,
                m.label_text,
                str(m.components),
                _states(m.memos),
            )
            for m in self.models
        )
        columns = ("model", "version>", "client", "priority>", "table", "label", "components>", "memos*")
        return grid(columns, rows)


def _states(memos: dict[str, int]) -> str:
    return ", ".join(f"{count_text(n)} {state.lower()}" for state, n in memos.items()) or "none"


@dataclass(frozen=True, slots=True)
class InputRow:
    """One input of a model. ``fingerprint`` is the component's."""

    name: str
    type: str
    fingerprint: str
    expression: str


@dataclass(frozen=True, slots=True, repr=False)
class ModelScreen(Shown):
    """One model and its inputs. ``live``: its missing memos are computed; false for old versions and retired models."""

    name: str
    version: int
    client: str
    priority: int
    table: str
    label: str
    live: bool
    inputs: tuple[InputRow, ...]
    task: str = "binary"
    classes: int = 0
    analyses: tuple[UsedAnalysis, ...] = ()

    def json_fields(self) -> dict[str, Any]:
        """The fields; an analysis has its range, its rows, and the digest of its result."""
        names = ("operator", "expression", "over", "rows", "artifact")
        analyses = [{name: getattr(one, name) for name in names} for one in self.analyses]
        return {**fields_of(self), "analyses": analyses}

    def _task(self) -> tuple[tuple[str, str], ...]:
        if self.task == "binary":
            return ()
        return (("task", f"{self.task}, {self.classes} classes" if self.classes else self.task),)

    def render(self) -> RenderableType:
        """Facts, inputs, and pinned analyses."""
        head = facts(
            (("model", self.name), ("version", f"{self.version}{'' if self.live else ', not live'}"),
             ("client", self.client), ("priority", str(self.priority)), ("table", self.table), ("label", self.label), *self._task())
        )  # fmt: skip
        rows = ((i.name, i.type, i.fingerprint[:12], i.expression) for i in self.inputs)
        shown: list[RenderableType] = [head, "", grid(("input", "type", "fingerprint", "expression*"), rows)]
        if self.analyses:
            pinned = (
                (one.operator, one.expression, one.over, count_text(one.rows), one.artifact[:12])
                for one in self.analyses
            )
            shown += ["", grid(("pinned analysis", "expression*", "range", "rows>", "artifact"), pinned)]
        return Group(*shown)


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """The decision of matching for one input over one fragment, with the reason.

    ``read``: how a trainer obtains it now at the least cost. The costs are CPU seconds over the horizon, null if impossible
    or not requested; ``requests``: the expected number over the horizon. A merged fragment is over the partitions from
    ``partition`` to ``last_partition``.
    """

    input: str
    partition: str
    fragment: str
    rows: int
    hit: bool
    state: str
    reason_code: str
    reason: str
    read: str
    load_secs: float | None = None
    compute_secs: float | None = None
    keep_secs: float | None = None
    requests: float | None = None
    last_partition: str = ""
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class NearestRow:
    """The nearest known component of a missed input, and the differences of the input."""

    input: str
    fingerprint: str
    expression: str
    models: tuple[str, ...]
    distance: float
    changes: tuple[dict[str, object], ...]

    @property
    def text(self) -> str:
        """The differences as text."""
        return "; ".join(str(change["sentence"]) for change in self.changes)


def _partitions(decision: DecisionRow) -> str:
    last = decision.last_partition
    return f"{decision.partition} to {last}" if last not in ("", decision.partition) else decision.partition


def _alike(decision: DecisionRow) -> str:
    """The reason without the details that differ by fragment, such as the event of a failure."""
    return decision.reason.partition("; ")[0] if decision.reason_code == "failed" else decision.reason


@dataclass(frozen=True, slots=True, repr=False)
class ExplainScreen(Shown):
    """Hit or miss for every input and partition of a model, with reasons.

    Attributes:
        hits: all hits, also those that are not in ``decisions``.
        misses: all misses, likewise.
        summarised: whether the text has one line per equal decision of an input.
        label_is_computed: whether the label is an expression.
    """

    model: str
    version: int
    policy: str
    hits: int
    misses: int
    decisions: tuple[DecisionRow, ...]
    nearest: tuple[NearestRow, ...]
    summarised: bool = True
    label: str = ""
    label_is_computed: bool = False

    def render(self) -> RenderableType:
        """One line per equal decision of an input, or per partition."""
        if not self.decisions and not self.misses:
            return (
                f"model {self.model} version {self.version}, policy {self.policy}: {many(self.hits, 'hit')}, 0 misses"
            )
        head = (
            f"model {self.model} version {self.version}, policy {self.policy}: {many(self.hits, 'hit')}, "
            f"{count_text(self.misses)} {'miss' if self.misses == 1 else 'misses'}"
        )
        answers = self._summary() if self.summarised else self._every_partition()
        nearest = ["", self._nearest()] if self.nearest else []
        failed = any(one.reason_code == "failed" for one in self.decisions)
        next_step = ["", f"next: headrace tasks list --model {self.model} shows what failed"] if failed else []
        label = [f"label {self.label}, computed when it is read"] if self.label_is_computed else []
        return Group(head, *label, answers, *([_COSTS_MEAN] if self.decisions else []), *nearest, *next_step)

    def _nearest(self) -> RenderableType:
        rows = ((n.input, n.fingerprint[:12], ", ".join(n.models) or "-", n.text) for n in self.nearest)
        return grid(("missed input", "nearest known", "read by", "differences of the input*"), rows)

    def _every_partition(self) -> RenderableType:
        rows = (
            (d.input, _partitions(d), d.fragment[:12], count_text(d.rows), "hit" if d.hit else "miss", d.read,
             *_costs((d,)), d.reason)
            for d in self.decisions
        )  # fmt: skip
        return grid(("input", "partition", "fragment", "rows>", "", "read", *_COSTS, "why*"), rows)

    def groups(self) -> list[list[DecisionRow]]:
        """The equal decisions of each input, input by input, the largest group first."""
        alike: dict[tuple[str, bool, str, str], list[DecisionRow]] = {}
        for d in self.decisions:
            alike.setdefault((d.input, d.hit, d.read, _alike(d)), []).append(d)
        order = {d.input: i for i, d in reversed(list(enumerate(self.decisions)))}
        return sorted(alike.values(), key=lambda group: (order[group[0].input], -len(group)))

    def _summary(self) -> RenderableType:
        rows = (
            (group[0].input, "hit" if group[0].hit else "miss", count_text(len(group)),
             count_text(sum(d.rows for d in group)), group[0].read, *_costs(group), group[0].reason)
            for group in self.groups()
        )  # fmt: skip
        return grid(("input", "", "fragments>", "rows>", "read", *_COSTS, "why*"), rows)


_COSTS = ("if loaded>", "if computed>", "if kept>")
_COSTS_MEAN = "if loaded, if computed, if kept: CPU time of all expected requests if the column is obtained in this way"


def _costs(decisions: Sequence[DecisionRow]) -> tuple[str, str, str]:
    """The total cost of each way to obtain the columns; a dash if a way is impossible."""

    def text(secs: Iterable[float | None]) -> str:
        listed = list(secs)
        known = [one for one in listed if one is not None]
        return secs_text(sum(known)) if len(known) == len(listed) else "-"

    return (text(d.load_secs for d in decisions), text(d.compute_secs for d in decisions),
            text(d.keep_secs for d in decisions))  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class ModelDiffScreen(Shown):
    """Two versions of a model."""

    found: VersionChanges

    def json_fields(self) -> dict[str, Any]:
        """The fields of the comparison."""
        return fields_of(self.found)

    def render(self) -> RenderableType:
        """Settings, then the inputs that differ."""
        found = self.found
        head = f"model {found.model}: version {found.before} to version {found.after}"
        same = sum(one.state == "same" for one in found.inputs)
        rows = [
            (one.name, one.state, one.before[:12] or "-", one.after[:12] or "-", "; ".join(one.changes) or "-")
            for one in found.inputs
            if one.state != "same"
        ]
        table = [grid(("input", "state", "component before", "component after", "differences*"), rows)] if rows else []
        return Group(head, *found.settings, *table, f"{many(same, 'input')} {'is' if same == 1 else 'are'} the same")
