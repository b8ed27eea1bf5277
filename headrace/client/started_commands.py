"""The commands of a warehouse that run as processes of their own, as methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.client.arguments import Value, arguments_of
from headrace.client.commands import run_command, to_stderr
from headrace.client.given_files import file_of, paths_of
from headrace.client.progress import shown_progress
from transforms.errors import InputError
from transforms.time_range import Moment
from warehouse.config import WarehouseConfig
from warehouse.settings import variable_of, variables

if TYPE_CHECKING:
    from headrace.screens.evaluation import EvaluationScreen
    from headrace.screens.export import ExportScreen
    from headrace.screens.inferred import InferredScreen
    from headrace.screens.lakes import LakeScreen
    from headrace.screens.predict import PredictedScreen
    from headrace.screens.sweeps import SweepScreen
    from headrace.screens.tables import ImportedScreen, RegisteredScreen
    from headrace.screens.topics import TopicScreen
    from headrace.screens.training import TrainedScreen
    from headrace.screens.work import WorkScreen

T = TypeVar("T")


class StartedCommands:
    """Starts the commands of a warehouse, and returns their screens."""

    def __init__(self, config: WarehouseConfig, *, progress: bool) -> None:
        self._config = config
        self._is_shown = progress

    @property
    def location(self) -> str:
        """The folder or the bucket of the warehouse."""
        return self._config.home

    def add_table(
        self, name: str, folder: str | Path, *, time_column: str = "", **options: Value
    ) -> RegisteredScreen | LakeScreen | TopicScreen:
        """Register a folder of hive-partitioned Parquet, a Delta or Iceberg table, or a topic of Kafka; again to bring what is new.

        ``options``: those of ``headrace table add``, such as ``partition_by="hour"``.

        >>> w.add_table("log", logs, time_column="time").added  # again: nothing is new
        ()
        """
        _refuse_endless(options)
        found = self._run(object, "table", "add", name, str(folder), time_column=time_column or None, **options)
        return cast("RegisteredScreen | LakeScreen | TopicScreen", found)

    def import_log(
        self,
        name: str,
        files: str | Path | Sequence[str | Path],
        *,
        schema: InferredScreen | Mapping[str, Any] | str | Path = "",
        **options: Value,
    ) -> ImportedScreen:
        """Import logs as partitions of Parquet, and register them; bad rows go to reject files.

        ``schema``: of text files: what :meth:`infer` found, a schema as a mapping, or a schema file. ``options``: those of ``headrace table import``, such as
        ``unique_by="id"``.

        >>> w.import_log("clicks", csv, schema=w.infer(csv)).rows
        300
        """
        from headrace.screens.tables import ImportedScreen

        document = schema if isinstance(schema, Mapping | str | Path) else schema.schema
        with file_of(document) as file:
            return self._run(ImportedScreen, "table", "import", name, *paths_of(files), schema=file, **options)

    def work(self, *, until_idle: bool = True, **options: Value) -> WorkScreen:
        """Compute what is queued, as ``headrace work``; ``options``: those of the command, such as ``memory_limit="2GB"``.

        >>> w.work().tasks  # all is computed
        0
        """
        from headrace.screens.work import WorkScreen

        return self._run(WorkScreen, "work", until_idle=until_idle, **options)

    def train(
        self,
        model: str,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        test_end: Moment | None = None,
        config: Mapping[str, Any] | str | Path = "",
        **options: Value,
    ) -> TrainedScreen:
        """Train a submitted model over partitions in time order, as ``headrace train``; again to go on where it ended.

        Args:
            model: its name.
            start: the first partition.
            end: the end of the trained partitions, not included.
            test_end: the end of the partitions after ``end`` that test the model, not included.
            config: training options as a mapping, or their file.
            options: those of the command, such as ``hosts=2`` or ``servers="1..4"``.

        >>> w.train("ctr", config={"linear": True, "deep": False, "linear_learning_rate": 0.05, "passes": 1}).finished
        True
        """
        from headrace.screens.training import TrainedScreen

        with file_of(config) as file:
            return self._run(
                TrainedScreen, "train", model, start=start, end=end, test_end=test_end, config=file, **options
            )

    def sweep(
        self,
        name: str,
        model: str,
        space: Mapping[str, Sequence[Any] | tuple[float, float]],
        *,
        end: Moment,
        test_end: Moment,
        config: Mapping[str, Any] | str | Path = "",
        **options: Value,
    ) -> SweepScreen:
        """Try training options by successive halving, as ``headrace sweep run``; again to go on where it ended.

        Args:
            name: of the sweep.
            model: of the model.
            space: for each training option a list of values, or a tuple of the ends of a range of numbers.
            end: the end of the trained partitions, not included.
            test_end: the end of the partitions that test the last trials.
            config: training options of all trials as a mapping, or their file.
            options: those of the command, such as ``trials=16``, ``rungs=3`` or ``slots=2``.

        >>> fixed = {"deep": False, "linear": True, "passes": 1}
        >>> rates = {"linear_learning_rate": [0.01, 0.1]}
        >>> found = w.sweep(
        ...     "rates", "ctr", rates, end="2026-03-02T02:00", test_end="2026-03-02T04:00", config=fixed, rungs=1
        ... )
        >>> found.finished, len(found.trials)
        (True, 2)
        """
        from headrace.screens.sweeps import SweepScreen

        varied = [f"{option}={_space_text(values)}" for option, values in space.items()]
        with file_of(config) as file:
            return self._run(
                SweepScreen,
                "sweep",
                "run",
                name,
                model,
                option=varied,
                end=end,
                test_end=test_end,
                config=file,
                **options,
            )

    def predict(
        self,
        model: str,
        output: str | Path,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        columns: Sequence[str] = (),
        **options: Value,
    ) -> PredictedScreen:
        """Score partitions with the newest checkpoint of a trained model into the folder ``output``, as ``headrace predict``.

        ``columns``: raw columns to write with the scores.

        >>> w.predict("ctr", scores, columns=["query"]).partitions
        4
        """
        from headrace.screens.predict import PredictedScreen

        return self._run(
            PredictedScreen,
            "predict",
            model,
            output=output,
            start=start,
            end=end,
            columns=",".join(columns) or None,
            **options,
        )

    def evaluate(
        self,
        model: str,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        by: Sequence[str] = (),
        **options: Value,
    ) -> EvaluationScreen:
        """The figures of a trained model on partitions, also by the values of raw columns, as ``headrace evaluate``.

        >>> w.evaluate("ctr", by=["category"]).partitions
        4
        """
        from headrace.screens.evaluation import EvaluationScreen

        _refuse_endless(options)
        return self._run(EvaluationScreen, "evaluate", model, start=start, end=end, by=list(by), **options)

    def export(
        self, model: str, output: str | Path, *, trained: str | Path | bool = False, **options: Value
    ) -> ExportScreen:
        """A SavedModel of a model's inputs, or of the trained model from raw columns to predictions, as ``headrace model export``.

        ``trained``: True for the model's run in the home, or the folder of a run.

        >>> w.export("ctr", served, trained=True).columns
        3
        """
        from headrace.screens.export import ExportScreen

        run = model if trained is True else trained or None
        return self._run(ExportScreen, "model", "export", model, output=output, trained=run, **options)

    def _run(self, kind: type[T], *words: str, **options: Value) -> T:
        """The screen of a command of this warehouse, which runs as a process."""
        command, arguments = _command(words)
        with shown_progress(is_shown=self._is_shown) as show:
            found = run_command(
                [*command, f"--home={self.location}", *arguments_of(options), "--", *arguments],
                changes={**dict.fromkeys(variables(), ""), variable_of("catalog_url"): self._config.catalog_url},
                show=show,
                tell=to_stderr,
            )
        if not isinstance(found, kind):
            raise TypeError(f"headrace {' '.join(command)} must show {kind.__name__}, got {type(found).__name__}")
        return found


def _space_text(values: Sequence[Any] | tuple[float, float]) -> str:
    """A list of values, or a range, as the command takes it."""
    if isinstance(values, tuple):
        least, most = values
        return f"{least!r}..{most!r}"
    return ",".join(one if isinstance(one, str) else json.dumps(one) for one in values)


#: Groups of commands, whose first word is followed by the command.
_GROUPS = ("table", "model", "sweep")


def _command(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """A command, and its arguments."""
    count = 2 if words[0] in _GROUPS else 1
    return words[:count], words[count:]


def _refuse_endless(options: Mapping[str, Value]) -> None:
    if options.get("follow"):
        raise InputError(
            "a method must end", where="follow", value=True, next_step="run the command with --follow in a terminal"
        )
