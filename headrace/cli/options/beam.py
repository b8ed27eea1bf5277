"""The options for a Beam runner and, after ``--``, Beam's own pipeline options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

Runner = Annotated[
    str,
    typer.Option(help="The Beam runner: DirectRunner, FlinkRunner, SparkRunner, PortableRunner or DataflowRunner."),
]
BeamOptions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="BEAM_OPTIONS",
        help="After --: Beam's own options, such as -- --direct_num_workers=2.",
    ),
]


def split_beam_options(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The files, and Beam's options: everything from the first word that begins with ``--``.

    The parser of the command line drops the ``--`` itself, and reads no option as a file before it.
    """
    first = next((index for index, word in enumerate(words) if word.startswith("--")), len(words))
    return list(words[:first]), tuple(words[first:])
