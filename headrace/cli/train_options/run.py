"""Where ``headrace train`` writes, by which training options, and what it prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from headrace.cli.options.option_groups import Mark
from headrace.cli.options.session import HOME_HELP


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The run: its options, folders, warehouse and output."""

    PANEL: ClassVar[str] = "Run"

    from_file: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A run file, which says what flags say; other flags replace its keys: docs/run-file.md.",
            show_default=False,
        ),
        Mark.FIRST,
        Mark.OF_THE_CALL,
    ] = ""
    save_as: Annotated[
        str,
        typer.Option(metavar="FILE", help="Write the run file of these flags, then train.", show_default=False),
        Mark.FIRST,
        Mark.OF_THE_CALL,
    ] = ""
    phase: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With phases in the run file: train only this one, initial or caught_up. Default: both.",
            show_default=False,
        ),
        Mark.OF_THE_CALL,
    ] = ""
    catch_up_secs: Annotated[
        float,
        typer.Option(
            help="With phases: initial training begins again for data that has landed, until it takes at most this long."
        ),
    ] = 600.0
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A JSON file of training options, or the JSON object itself: docs/training.md."
        ),
        Mark.FIRST,
        Mark.PATH,
    ] = ""
    run_dir: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the checkpoints, or with --hosts gs://bucket/path. Default: runs/MODEL-vVERSION in the home.",
        ),
        Mark.FIRST,
        Mark.PATH,
    ] = ""
    job_dir: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Local folder for the job's other files, of a run in a bucket. Default: in bucket-jobs of the home.",
            show_default=False,
        ),
        Mark.PATH,
    ] = ""
    home: Annotated[str, typer.Option("--home", metavar="FOLDER", help=HOME_HELP, show_default=False), Mark.PATH] = ""
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of a table."), Mark.OF_THE_CALL
    ] = False
    supervisor: Annotated[
        int,
        typer.Option("--supervisor", help="The process that started this one; it ends with it.", hidden=True),
        Mark.OF_THE_CALL,
    ] = 0
