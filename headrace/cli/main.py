"""The root of the command line: command groups, and errors as one message and an exit status.

Exit status: 0 done; 2 wrong input; 3 damaged or missing stored data; 4 not found; 5 conflict with another process;
6 storage failed; 7 a held job; 70 a defect in Headrace; 130 interrupted (Ctrl-C); 143 terminated (SIGTERM).
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
from typing import Annotated

import typer

from headrace.cli.lazy_group import Place, group_of
from headrace.cli.shell_completion import COMPLETE_VARIABLE, know_shells
from headrace.terminal.logs import FORMAT_VARIABLE, VERBOSITY_VARIABLE, LogSettings, use_log_settings, write_line
from headrace.terminal.output import record_to, say_error
from headrace.terminal.parent import Parent, parent_of
from headrace.tracing.process_traces import OTLP_VARIABLE, begin_tracing, end_tracing
from transforms.errors import HeadraceError, InputError

DEFECT_STATUS = 70
LINEAGE_VARIABLE = "HEADRACE_LINEAGE"

#: Objects between two garbage collections. Python's 700 means hundreds of them while modules are imported, which make none.
_COLLECTED_AFTER = 50_000

#: Optional packages, and the extra that installs each.
EXTRAS = {"apache_beam": "beam", "tensorflow": "tensorflow", "keras": "tensorflow", "tensorflow_transform": "tft",
          "google": "gcs", "ortools": "plan", "scipy": "train", "threadpoolctl": "train"}  # fmt: skip

app = typer.Typer(
    help="Computes each feature once for all models, stores it, and feeds the trainers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
#: The commands and groups in the order of ``--help``.
COMMANDS = {
    "init": Place("headrace.cli.init", "init"),
    "analyze": Place("headrace.cli.analyze", "analyze"),
    "work": Place("headrace.cli.work", "work"),
    "train": Place("headrace.cli.train", "COMMAND"),
    "runs": Place("headrace.cli.runs", "app"),
    "ckpt": Place("headrace.cli.checkpoints", "app"),
    "export": Place("headrace.cli.export_links", "app"),
    "holds": Place("headrace.cli.holds", "app"),
    "preempt": Place("headrace.cli.preempt", "preempt"),
    "jobs": Place("headrace.cli.jobs", "app"),
    "sweep": Place("headrace.cli.sweep", "app"),
    "plan": Place("headrace.cli.plan", "app"),
    "towers": Place("headrace.cli.towers", "app"),
    "stats": Place("headrace.cli.stats", "app"),
    "prune": Place("headrace.cli.prune", "app"),
    "tpu": Place("headrace.cli.tpu", "app"),
    "predict": Place("headrace.cli.predict", "predict"),
    "evaluate": Place("headrace.cli.evaluate", "evaluate"),
    "chaos": Place("headrace.cli.chaos", "chaos"),
    "role": Place("headrace.cli.roles", "app"),
    "ps": Place("headrace.cli.parameter_servers", "app"),
    "status": Place("headrace.cli.status", "status"),
    "ui": Place("headrace.cli.ui", "ui"),
    "pins": Place("headrace.cli.maintenance", "pins"),
    "gc": Place("headrace.cli.maintenance", "gc"),
    "compact": Place("headrace.cli.maintenance", "compact"),
    "verify": Place("headrace.cli.maintenance", "verify"),
    "demo": Place("headrace.cli.demo", "demo"),
    "table": Place("headrace.cli.tables", "app"),
    "model": Place("headrace.cli.models", "app"),
    "check": Place("headrace.cli.skew", "app"),
    "checks": Place("headrace.cli.checks", "app"),
    "graphs": Place("headrace.cli.graphs", "app"),
    "tasks": Place("headrace.cli.tasks", "app"),
    "config": Place("headrace.cli.settings", "app"),
    "queue": Place("headrace.cli.queue", "queue"),
    "clients": Place("headrace.cli.clients", "app"),
}


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    record: Annotated[str, typer.Option(help="Also write the result as JSON to this file.")] = "",
    log_format: Annotated[
        str,
        typer.Option(
            metavar="text|json",
            envvar=FORMAT_VARIABLE,
            show_envvar=False,
            show_default=False,
            help="Write what is said on standard error as text, or as one JSON object a line.",
        ),
    ] = "text",
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, show_default=False, help="Write more of the log; twice: all of it."
        ),
    ] = 0,
    quiet: Annotated[
        int,
        typer.Option(
            "--quiet", "-q", count=True, show_default=False, help="Write warnings and errors alone; twice: errors."
        ),
    ] = 0,
    verbosity: Annotated[int, typer.Option(envvar=VERBOSITY_VARIABLE, hidden=True)] = 0,
    otlp: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar=OTLP_VARIABLE,
            show_envvar=False,
            show_default=False,
            help="Send traces to this collector of OpenTelemetry, such as http://127.0.0.1:4318.",
        ),
    ] = "",
    lineage: Annotated[
        str,
        typer.Option(
            metavar="URL|FILE",
            envvar=LINEAGE_VARIABLE,
            show_envvar=False,
            show_default=False,
            help="Send events of OpenLineage for what is committed to this receiver, such as http://127.0.0.1:5000, or to a file.",
        ),
    ] = "",
    install_completion: Annotated[
        bool, typer.Option("--install-completion", help="Install completion of commands and names for this shell.")
    ] = False,
    show_completion: Annotated[
        bool, typer.Option("--show-completion", help="Print the completion script of this shell.")
    ] = False,
    report_fd: Annotated[int, typer.Option(hidden=True, help="The pipe to the Python process that started this.")] = -1,
) -> None:
    settings = LogSettings(log_format, verbosity + verbose - quiet)
    use_log_settings(settings)
    os.environ.update(settings.variables())  # of the processes that the command starts
    if otlp:
        begin_tracing(otlp, os.environ)
    if lineage:  # a setting of the warehouse, also in the processes that the command starts
        os.environ[LINEAGE_VARIABLE] = lineage if "://" in lineage else os.path.abspath(lineage)
    record_to.set(record)
    parent_of.set(Parent(report_fd) if report_fd >= 0 else None)
    if show_version:
        from importlib.metadata import version

        sys.stdout.write(f"headrace {version('headrace')}\n")
        raise typer.Exit
    if install_completion or show_completion:
        from headrace.cli import shell_completion

        (shell_completion.install_completion if install_completion else shell_completion.show_completion)()
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
    status = run(arguments)
    gc.freeze()  # an ending interpreter looks through all objects several times, up to a quarter of a second
    sys.exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    use_log_settings(LogSettings())
    try:
        return _run(arguments)
    finally:
        end_tracing()


def _run(arguments: list[str] | None) -> int:
    if COMPLETE_VARIABLE in os.environ:
        know_shells()
    try:
        group_of(app, COMMANDS)(args=arguments, prog_name="headrace")
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else 0
    except HeadraceError as error:
        if (parent := parent_of.get()) is not None:
            parent.error(error)
        else:
            say_error(f"error: {error}", code=type(error).__name__)
        return error.exit_status
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            return _defect(error)
        say_error(
            f"error: this command needs a package that is not installed\n  value:   {error.name!r}\n"
            f"  next:    pip install 'headrace[{extra}]'"
        )
        return InputError.exit_status
    except Exception as error:
        return _defect(error)
    return 0


def _defect(error: Exception) -> int:
    write_line("".join(traceback.format_exception(error)).rstrip(), level=logging.ERROR)
    write_line(
        f"defect: {type(error).__name__}: {error}\n  next:    please report this trace; nothing was half written",
        level=logging.ERROR,
    )
    return DEFECT_STATUS
