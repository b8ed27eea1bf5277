"""How a command takes a Beam runner and, after a ``--``, Beam's own pipeline options."""

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
        help="After a --: options of Beam, as Beam takes them, such as -- --direct_num_workers=2.",
    ),
]


def split_beam_options(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Files, and the Beam options that a ``--`` set apart: everything from the first word that begins with ``--``.

    The command line's parser drops the ``--`` itself, and takes no option for a file before it.
    """
    first = next((index for index, word in enumerate(words) if word.startswith("--")), len(words))
    return list(words[:first]), tuple(words[first:])
