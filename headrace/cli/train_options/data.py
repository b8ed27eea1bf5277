"""The range that ``headrace train`` reads, and what changes of trained data mean."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

import typer

from headrace.cli.options.option_groups import Mark
from headrace.terminal.quantities import bytes_of, moment_of
from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The data of a run. Raises :class:`InputError` for texts that are no times or sizes, and a test range without a beginning."""

    PANEL: ClassVar[str] = "Data"

    version: Annotated[
        int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
    ] = 0
    start: Annotated[
        str,
        typer.Option(metavar="TIME", help="Train on partitions from this time on (ISO 8601, UTC)."),
        Mark.FIRST,
        Mark.TIME,
    ] = ""
    end: Annotated[
        str,
        typer.Option(metavar="TIME", help="Train on partitions that start before this time."),
        Mark.FIRST,
        Mark.TIME,
    ] = ""
    test_end: Annotated[
        str,
        typer.Option(metavar="TIME", help="Then test on the partitions from --end to this time."),
        Mark.FIRST,
        Mark.TIME,
    ] = ""
    evaluate_commits: Annotated[
        bool,
        typer.Option(
            "--evaluate-commits/--no-evaluate-commits",
            help="Also test each checkpoint while training goes on, by a process of low priority.",
        ),
    ] = False
    table_version: Annotated[
        int,
        typer.Option(help="Train on this version of the table. Default: the newest.", show_default=False),
    ] = 0
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Also test this raw column alone as a baseline; may be repeated."),
    ] = None
    accept_changed: Annotated[
        bool,
        typer.Option(
            "--accept-changed/--no-accept-changed",
            help="Continue although values of trained events changed; these events are not trained again.",
        ),
    ] = False
    train_changed_labels: Annotated[
        bool,
        typer.Option(
            "--train-changed-labels/--no-train-changed-labels",
            help="Train events again whose labels have changed since, once per change.",
        ),
    ] = False

    batch_files: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Keep batches in files of the home, of at most this size in all, such as 50GB: later passes and other runs of the model read them. Default: none.",
            show_default=False,
        ),
    ] = ""

    def __post_init__(self) -> None:
        self.batch_file_bytes()
        _, last, until = self.moments()
        if until is not None and last is None:
            raise InputError(
                "--test-end must go with --end", where="--test-end", value=self.test_end, next_step="give --end too"
            )
        if self.evaluate_commits and until is None:
            raise InputError("--evaluate-commits must go with a range of events", where="--evaluate-commits", value="no --test-end",
                             next_step="give --end and --test-end too")  # fmt: skip

    def batch_file_bytes(self) -> int:
        """The most bytes of all files of batches; 0 without any. Raises :class:`InputError`."""
        return bytes_of("--batch-files", self.batch_files) or 0

    def moments(self) -> tuple[datetime | None, datetime | None, datetime | None]:
        """Start, end, and the end of the test; None for a side without a limit. Raises :class:`InputError`."""
        return (
            moment_of("--start", self.start),
            moment_of("--end", self.end),
            moment_of("--test-end", self.test_end),
        )
