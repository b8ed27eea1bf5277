"""A warehouse in Python: what the commands do, as methods that return their screens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from headrace.client.given_files import paths_of
from headrace.client.progress import shown_progress
from headrace.client.started_commands import StartedCommands
from headrace.terminal.parent import Progress
from headrace.terminal.user import user_name
from headrace.views.jobs import FLEET
from transforms.errors import InputError
from transforms.expressions.model import Model
from transforms.time_range import Moment, moment
from warehouse.config import WarehouseConfig
from warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.checks.drift import Limits
    from headrace.client.conditions import Conditions
    from headrace.screens.analyze import OfModel
    from headrace.screens.check import CheckScreen
    from headrace.screens.columns import ColumnScreen
    from headrace.screens.curves import CurvesScreen
    from headrace.screens.drift import DriftScreen
    from headrace.screens.dry_run import DryRunScreen
    from headrace.screens.evictions import EvictionScreen, EvictionsScreen, RestorationScreen
    from headrace.screens.graphs import GraphScreen, GraphsScreen, MemosScreen, ValuesScreen
    from headrace.screens.inferred import InferredScreen
    from headrace.screens.jobs import JobsScreen
    from headrace.screens.joins import EvictedJoinsScreen, JoinsScreen
    from headrace.screens.models import ExplainScreen, ModelDiffScreen, ModelScreen, ModelsScreen, SubmittedScreen
    from headrace.screens.queue import QueueScreen
    from headrace.screens.runs import RunDiffScreen, RunScreen, RunsScreen
    from headrace.screens.states import SkewScreen, StatesScreen
    from headrace.screens.status import StatusScreen
    from headrace.screens.tables import TableScreen, TablesScreen
    from pipelines.analysis.plan import ChangedAnalysis
    from warehouse.search.query import Sort


class Home(StartedCommands):
    """An open warehouse. Methods return what the commands print: screens, with fields, ``to_dict()``, ``to_polars()`` and ``to_pandas()``.

    :meth:`work`, :meth:`train`, :meth:`predict`, :meth:`evaluate`, :meth:`export`, :meth:`add_table` and :meth:`import_log` run their commands as processes of their
    own, so this process imports neither Beam nor TensorFlow, and ends with them. Ctrl-C, or the stop button of a notebook, stops a command as Ctrl-C in
    its terminal does: a training commits first.

    >>> with open(home) as w:
    ...     [one.name for one in w.models().models]
    ['ctr']
    """

    def __init__(self, config: WarehouseConfig, *, progress: bool) -> None:
        super().__init__(config, progress=progress)
        self._warehouse = Warehouse.open(config)

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._warehouse.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"hr.open({self.location!r})"

    # What is there

    def status(self) -> StatusScreen:
        """The warehouse at a glance.

        >>> w.status().models
        1
        """
        from headrace.views.status import warehouse_status

        return warehouse_status(self._warehouse, self.location)

    def tables(self) -> TablesScreen:
        """All tables.

        >>> "log" in [one.name for one in w.tables().tables]
        True
        """
        from headrace.views.tables import listed

        return listed(self._warehouse)

    def table(self, name: str, version: int = 0) -> TableScreen:
        """A table's columns and partitions; ``version`` 0: the newest. Raises :class:`~transforms.errors.NotFound`.

        >>> w.table("log").time_column
        'time'
        """
        from headrace.views.tables import shown

        return shown(self._warehouse, name, version)

    def joins(self, table: str = "") -> JoinsScreen:
        """The columns that models join from other tables: where they have values, and what failed.

        >>> w.joins().joins
        ()
        """
        from headrace.views.joins import listed

        return listed(self._warehouse, table)

    def evict_joins(self, table: str = "", *, dry_run: bool = True) -> EvictedJoinsScreen:
        """Evict the joined columns, of a table or of all, that no live model reads; a dry run unless ``dry_run`` is False.

        >>> w.evict_joins().columns
        ()
        """
        from headrace.views.joins import evicted

        return evicted(self._warehouse, table, dry_run=dry_run)

    def export_states(
        self, model: str, folder: str | Path, *, since: Moment | None = None, full: bool = False
    ) -> StatesScreen:
        """Add a link to the states that online answers of a model's joined columns need; :func:`headrace.online` reads them.

        Args:
            model: a submitted one, ``NAME`` or ``NAME@VERSION``.
            folder: of the links.
            since: answers are for events from this time on; by default from the newest row of the joined tables on.
            full: write all rows again, in place of a delta.

        >>> joined.export_states("counted", states).link
        '000000-full'
        """
        from headrace.views.states import exported_states

        return exported_states(
            self._warehouse, model, Path(folder), since=None if since is None else moment(since), full=full
        )

    def skew(self, logged: str | Path, model: str, *, time: str = "") -> SkewScreen:
        """Logged joined columns against those that the warehouse computes now.

        Args:
            logged: a Parquet file, or a folder of them: keys, the time of each event, and what :func:`headrace.online` answered.
            model: a submitted one, ``NAME`` or ``NAME@VERSION``.
            time: the column of times; "" for the time column of the model's table.

        >>> from datetime import UTC
        >>> now, user = datetime(2026, 4, 1, tzinfo=UTC), {"user_id": 7}
        >>> answers = online(states).features(user, now)
        >>> import pyarrow, pyarrow.parquet
        >>> pyarrow.parquet.write_table(
        ...     pyarrow.table({name: [value] for name, value in {**user, **answers, "time": now}.items()}),
        ...     states + ".parquet",
        ... )
        >>> joined.skew(states + ".parquet", "counted").is_equal
        True
        """
        from headrace.views.states import skew

        return skew(self._warehouse, Path(logged), model, time=time)

    def column(self, table: str, column: str) -> ColumnScreen:
        """What reads a column of a table and would break without it, and which files may hold its values.

        >>> [one.name for one in w.column("log", "price").use.models]
        ['ctr']
        """
        from headrace.views.columns import used

        return used(self._warehouse, table, column)

    def models(self) -> ModelsScreen:
        """The live models, each at its newest version.

        >>> [one.client for one in w.models().models]
        ['search']
        """
        from headrace.views.models import listed

        return listed(self._warehouse)

    def model(self, name: str, version: int = 0) -> ModelScreen:
        """A model's inputs and their expressions; ``version`` 0: the newest. Raises :class:`~transforms.errors.NotFound`.

        >>> [one.name for one in w.model("ctr").inputs]
        ['overlap', 'price']
        """
        from headrace.views.models import shown

        return shown(self._warehouse, name, version)

    def jobs(self) -> JobsScreen:
        """The training jobs of the fleet in a local home.

        >>> w.jobs().jobs
        ()
        """
        from headrace.views.jobs import listed

        return listed(Path(self._folder("the jobs of a fleet")) / FLEET)

    # Runs of training

    def runs(self) -> RunsScreen:
        """The runs of a local home, with their newest figures; as ``headrace runs ls``.

        >>> [one.name for one in w.runs().runs]
        ['ctr-v1']
        """
        from headrace.views.runs import listed

        return listed(self._folder("a list of runs"))

    def run(self, run: str | Path, version: int = 0) -> RunScreen:
        """A run by the name of its model, or by its folder or bucket; its ``history()`` has what each window of steps has measured.

        Raises :class:`~transforms.errors.NotFound`.

        >>> w.run("ctr").history().to_polars("commits")["events"].sum() == w.read("ctr").num_rows
        True
        """
        from headrace.views.runs import shown

        return shown(self._run_folder(run, version))

    def compare(self, first: str | Path, second: str | Path) -> RunDiffScreen:
        """The options, data, inputs and figures that differ between two runs; as ``headrace runs diff``.

        >>> w.compare("ctr", "ctr").comparison.options
        ()
        """
        from headrace.views.runs import compared

        return compared(self._run_folder(first), self._run_folder(second))

    def curves(
        self,
        *runs: str | Path,
        metric: str = "",
        x: Literal["step", "events", "time"] = "step",
        smoothing: float = 0.0,
        commits: bool = False,
    ) -> CurvesScreen:
        """Learning curves of runs, which a notebook draws; as ``headrace runs plot``.

        Args:
            runs: names of models, or folders.
            metric: a figure of their histories; by default the loss divided by that of the best constant prediction.
            x: what they are drawn over.
            smoothing: from 0 to below 1.
            commits: a point for each commit, not for each window of steps.

        >>> [one.run for one in w.curves("ctr", smoothing=0.5).curves]
        ['ctr-v1']
        """
        from headrace.views.runs import plotted

        folders = [self._run_folder(run) for run in runs]
        return plotted(folders, metric=metric, axis=x, smoothing=smoothing, rows="commits" if commits else "windows")

    def _run_folder(self, run: str | Path, version: int = 0) -> str:
        from headrace.runs.run_folders import folder_of_model, is_folder

        name = str(run)
        return name if is_folder(name) else folder_of_model(self._folder("the run of a model"), name, version)

    # Tables

    def infer(
        self,
        files: str | Path | Sequence[str | Path],
        *,
        rows: int = 20_000,
        time_column: str = "",
        row_order: bool = False,
        no_time: bool = False,
    ) -> InferredScreen:
        """The schema of a log's TSV, CSV or JSONL files from a sample of ``rows`` rows, for :meth:`import_log`; as ``headrace table infer``.

        >>> [one.name for one in w.infer(csv).columns]
        ['id', 'time', 'clicked']
        """
        from headrace.views.inferred_schemas import inferred_schema
        from pipelines.inference.event_time import TimeOptions
        from pipelines.inference.infer import infer_schema

        found = infer_schema(paths_of(files), rows=rows, time=TimeOptions(time_column, row_order, no_time))
        return inferred_schema(found, "-")

    # Models

    @overload
    def submit(
        self, *models: Model, table: str = "", policy: str = "", analyze: bool = False, dry_run: Literal[False] = False
    ) -> SubmittedScreen: ...
    @overload
    def submit(
        self, *models: Model, table: str = "", policy: str = "", analyze: bool = False, dry_run: Literal[True]
    ) -> DryRunScreen: ...
    def submit(
        self, *models: Model, table: str = "", policy: str = "", analyze: bool = False, dry_run: bool = False
    ) -> SubmittedScreen | DryRunScreen:
        """Submit models: match what is memoized, queue what is missing. All or none.

        Args:
            models: the models.
            table: the table to read, if the models do not name it.
            policy: which memos to keep: ``all``, ``adaptive`` or ``none``; empty: the model's last policy, at first ``all``.
            analyze: first run the full passes that the data needs. Without it, models keep their pinned results.
            dry_run: show what submitting would do per input; change nothing.

        >>> model = Model("ctr2", client="search", label="clicked", table="log")
        >>> model.input("price", float32("price").fill_null(0).log1p())
        >>> w.submit(model, dry_run=True).to_polars()["queued_tasks"].sum()  # "ctr" has this input
        0
        """
        from headrace.views import analyses
        from headrace.views.models import planned_submissions, submitted

        _check_models(models)
        if dry_run:
            return planned_submissions(self._warehouse, models, table=table, policy=policy)
        waiting = analyses.waiting(models) if analyze else []
        changes: tuple[OfModel[ChangedAnalysis], ...] = ()
        if waiting:
            with shown_progress(is_shown=self._is_shown) as show:

                def report(done: int, total: int, current: str = "") -> None:
                    show(Progress(current or "analyzing", done, total, "partitions"))

                changes = analyses.made(self._warehouse, waiting, table=table, progress=report).changes
        return submitted(self._warehouse, models, table=table, policy=policy, changes=changes)

    def check(self, *models: Model | str, table: str = "", rows: int = 10_000) -> CheckScreen:
        """Every input of models over a sample of ``rows`` events: examples, nulls, distinct values, warnings. Stores nothing.

        ``models``: model objects, or the name of a submitted one.

        >>> [one.input for one in w.check("ctr", rows=50).models[0].inputs]
        ['overlap', 'price']
        """
        from headrace.views.checks import checked_models, checked_submitted

        if len(models) == 1 and isinstance(models[0], str):
            return checked_submitted(self._warehouse, models[0], table=table, rows=rows)
        return checked_models(self._warehouse, _check_models(models), table=table, rows=rows)

    def explain(
        self,
        name: str,
        version: int = 0,
        *,
        inputs: Sequence[str] = (),
        misses: bool = False,
        partitions: bool = False,
        newest: int | None = None,
    ) -> ExplainScreen:
        """Hit or miss of a model's inputs per partition, the reason, and the costs of each alternative, as ``headrace model explain``.

        >>> w.explain("ctr").misses
        0
        """
        from headrace.views.explanations import explanation

        return explanation(
            self._warehouse, name, version, only=inputs, misses=misses, partitions=partitions, newest=newest
        )

    def drift(
        self,
        model: str,
        *,
        against: timedelta = timedelta(days=7),
        last: timedelta = timedelta(days=1),
        end: Moment | None = None,
        limits: Limits | None = None,
    ) -> DriftScreen:
        """A model's inputs and labels in its newest partitions against those before, as ``headrace checks run``.

        Args:
            model: its name, or ``name@version``.
            against: the time before the newest partitions that is compared.
            last: the time of the newest partitions.
            end: their end; None: that of the table.
            limits: of inputs whose author expects no others.

        >>> found = w.drift("ctr", last=timedelta(hours=1), against=timedelta(hours=3))
        >>> [one.input for one in found.inputs]
        ['overlap', 'price', 'label']
        """
        from headrace.checks.drift import Limits
        from headrace.views.drift import drift

        with shown_progress(is_shown=self._is_shown) as show:
            return drift(
                self._warehouse, model, against=against, last=last, end=None if end is None else moment(end), limits=limits or Limits(),
                progress=lambda done, total: show(Progress(f"reading {model}", done, total, "events")),
            )  # fmt: skip

    def read(self, model: str, start: Moment | None = None, end: Moment | None = None, **options: Any) -> Any:
        """A model's inputs as one table, as :func:`headrace.read`.

        >>> w.read("ctr", columns=["query"]).column_names
        ['overlap', 'price', 'label', 'query']
        """
        from headrace.reading import read

        return read(model, start, end, home=self.location, catalog_url=self._config.catalog_url, **options)

    def scan(
        self, model: str, start: Moment | None = None, end: Moment | None = None, **options: Any
    ) -> Iterator[pa.Table]:
        """The table of :meth:`read` by fragment, as :func:`headrace.scan`.

        >>> len(list(w.scan("ctr")))
        4
        """
        from headrace.reading import scan

        return scan(model, start, end, home=self.location, catalog_url=self._config.catalog_url, **options)

    # Components

    def search(
        self,
        *,
        older_than: timedelta | None = None,
        newer_than: timedelta | None = None,
        sort: Sort = "newest",
        limit: int = 50,
        offset: int = 0,
        after: str = "",
        count: bool = False,
        **conditions: Unpack[Conditions],
    ) -> GraphsScreen:
        """The components that meet every condition, as ``headrace graphs search``; ages are since the first request.

        ``after``: the ``next_after`` of the page before.

        ``conditions``: those of :class:`~headrace.client.conditions.Conditions`, such as ``column="query"`` or ``min_size_bytes=10**6``.

        >>> w.search(column="query", sort="saved", count=True).total
        1
        """
        from headrace.client.conditions import query_of
        from headrace.views.graphs import page

        query = query_of(self._before(older_than), self._before(newer_than), **conditions)
        return page(self._warehouse, query, sort=sort, limit=limit, offset=offset, after=after, count=count)

    def component(self, fingerprint: str) -> GraphScreen:
        """One component, by its fingerprint or its first digits: its tree, the models that read it, its memos.

        >>> w.component(w.search(column="price").graphs[0].fingerprint).columns
        ('price',)
        """
        from headrace.views.graphs import component

        return component(self._warehouse, fingerprint)

    def memos(self, fingerprint: str, newest: int = 48) -> MemosScreen:
        """The memos of a component over its newest partitions, as ``headrace graphs memos``.

        >>> len(w.memos(w.search(column="price").graphs[0].fingerprint).partitions) > 0
        True
        """
        from headrace.views.graphs import memos

        return memos(self._warehouse, fingerprint, newest)

    def values(self, fingerprint: str) -> ValuesScreen:
        """The values of a component in its newest memo, as ``headrace graphs values``.

        >>> w.values(w.search(column="price").graphs[0].fingerprint).not_finite
        0
        """
        from headrace.views.graphs import values

        return values(self._warehouse, fingerprint)

    def model_diff(self, name: str, before: int | None = None, after: int | None = None) -> ModelDiffScreen:
        """Two versions of a model, by default the newest and the one before it, as ``headrace model diff``.

        >>> w.model_diff("ctr", 1, 1).found.settings
        ()
        """
        from headrace.views.models import compared

        return compared(self._warehouse, name, before, after)

    def queue(self, last: timedelta = timedelta(hours=1)) -> QueueScreen:
        """Clients, workers that hold leases, and the queue by minute, as ``headrace queue``.

        >>> w.queue().holders
        ()
        """
        from headrace.views.queue import minutes_of, shown

        return shown(self._warehouse, minutes_of("last", last.total_seconds()))

    def evict(
        self,
        *,
        plan: str = "",
        why: str = "evicted by hand",
        start: Moment | None = None,
        end: Moment | None = None,
        older_than: timedelta | None = None,
        newer_than: timedelta | None = None,
        budget_bytes: int | None = None,
        unpaid: bool = False,
        **conditions: Unpack[Conditions],
    ) -> EvictionScreen:
        """A preview of the memos that meet every condition; or evict them, with the ``plan`` of a preview.

        ``w.evict(column="query")`` shows what would go, and ``w.evict(column="query", plan=preview.plan.id)`` evicts exactly that, or raises
        :class:`~warehouse.errors.PlanChanged` if something has changed since. Ages are those of memos; ``conditions`` are those of :meth:`search`.

        >>> preview = w.evict(column="price")
        >>> preview.plan.memos, preview.plan.done
        (4, False)
        """
        from headrace.client.conditions import query_of
        from headrace.views.evictions import evicted, planned
        from warehouse.eviction.plan import EvictionRequest

        if "fingerprint" in conditions:
            conditions["fingerprint"] = self.component(conditions["fingerprint"]).fingerprint  # of exactly one
        request = EvictionRequest(
            query=query_of(**conditions),
            start=None if start is None else moment(start),
            end=None if end is None else moment(end),
            written_before=self._before(older_than),
            written_after=self._before(newer_than),
            budget_bytes=budget_bytes,
            unpaid=unpaid,
        )
        if plan:
            return evicted(self._warehouse, request, why=why, who=user_name(), plan=plan)
        return planned(self._warehouse, request)

    def evictions(self, *, limit: int = 50, before: int | None = None) -> EvictionsScreen:
        """The evictions that were done, newest first; ``before``: those with smaller numbers.

        >>> w.evictions().evictions
        ()
        """
        from headrace.views.evictions import past

        return past(self._warehouse, limit=limit, before=before)

    def restore(self, eviction: int, *, dry_run: bool = False) -> RestorationScreen:
        """Undo an eviction, by its number, as far as ``gc`` has not deleted its files; ``dry_run``: only show what that would do.

        >>> preview = w.evict(column="price")
        >>> done = w.evict(column="price", plan=preview.plan.id)
        >>> w.restore(done.plan.eviction).restoration.memos
        4
        """
        from headrace.views.evictions import restored

        return restored(self._warehouse, eviction, dry_run=dry_run, who=user_name())

    def _before(self, age: timedelta | None) -> float | None:
        """The time so long ago, in epoch seconds."""
        return None if age is None else self._warehouse.clock() - age.total_seconds()

    def _folder(self, what: str) -> str:
        if "://" in self.location:
            raise InputError(f"the home must be a local folder for {what}", where="hr.open", value=self.location)
        return self.location


def _check_models(models: Sequence[object]) -> Sequence[Model]:
    """Raise :class:`InputError` unless all are models, and there is one."""
    found = [one for one in models if isinstance(one, Model)]
    if not models or len(found) < len(models):
        wrong = next((type(one).__name__ for one in models if not isinstance(one, Model)), "none")
        raise InputError("models must be hr.Model objects", where="models", value=wrong,
                         next_step='model = hr.Model("name", client=..., label=...)')  # fmt: skip
    return found
