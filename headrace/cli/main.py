"""The root of the command line: command groups, and errors as one message and an exit status.

Exit status: 0 done; 2 wrong input; 3 damaged or missing stored data; 4 not found; 5 conflict with another process;
6 storage failed; 70 a defect in Headrace; 130 interrupted (Ctrl-C); 143 terminated (SIGTERM).
"""

from __future__ import annotations

import logging
import sys
import traceback
from importlib.metadata import version
from typing import Annotated

import typer

from headrace.cli import (
    analyze,
    clients,
    demo,
    graphs,
    maintenance,
    models,
    predict,
    status,
    tables,
    tasks,
    train,
    work,
)
from headrace.terminal.output import PrintableFormatter, record_to, say, say_error
from transforms.errors import HeadraceError, InputError

DEFECT_STATUS = 70

#: Optional packages, and the extra that installs each.
EXTRAS = {"apache_beam": "beam", "tensorflow": "train", "keras": "train", "tensorflow_transform": "tft",
          "google": "gcs"}  # fmt: skip

app = typer.Typer(
    help="Computes each feature once for all models, stores it, and feeds the trainers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(tables.app, name="table")
app.add_typer(models.app, name="model")
app.add_typer(graphs.app, name="graphs")
app.add_typer(tasks.app, name="tasks")
app.add_typer(clients.app, name="clients")
app.command("analyze")(analyze.analyze)
app.command("work")(work.work)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("status")(status.status)
app.command("pins")(maintenance.pins)
app.command("gc")(maintenance.gc)
app.command("compact")(maintenance.compact)
app.command("verify")(maintenance.verify)
app.command("demo")(demo.demo)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    record: Annotated[str, typer.Option(help="Also write the result as JSON to this file.")] = "",
) -> None:
    record_to.set(record)
    if show_version:
        sys.stdout.write(f"headrace {version('headrace')}\n")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())
    try:
        app(args=arguments, prog_name="headrace")
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else 0
    except HeadraceError as error:
        say_error(f"error: {error}")
        return error.exit_status
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            return _defect(error)
        say(f"error: this command needs a package that is not installed\n  value:   {error.name!r}\n"
             f"  next:    pip install 'headrace[{extra}]'")  # fmt: skip
        return InputError.exit_status
    except Exception as error:
        return _defect(error)
    return 0


def _defect(error: Exception) -> int:
    say("".join(traceback.format_exception(error)).rstrip())
    say(f"defect: {type(error).__name__}: {error}\n  next:    please report this trace; nothing was half written")
    return DEFECT_STATUS
