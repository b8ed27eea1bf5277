"""``headrace train --export``: the chain of links that training writes while it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.serving.deltas.commit_exporter import CommitExporter, ExportedChain

Export = Annotated[
    str,
    typer.Option(
        "--export",
        metavar="FOLDER",
        help="Write each commit to this chain of links for serving, while training goes on: docs/serving-deltas.md.",
        show_default=False,
    ),
]
ExportQuantize = Annotated[
    str,
    typer.Option(
        "--export-quantize",
        metavar="none|fp16|int8",
        help="How links store the weights of tables. Default: as the newest link, else exact.",
        show_default=False,
    ),
]


def check_export(given: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for options of links that do not fit."""
    from trainer.serving.deltas.row_values import QUANTIZE

    quantize = given["export_quantize"]
    if quantize not in ("", *QUANTIZE):
        raise InputError(
            "a quantization must be a known one", where="--export-quantize", value=quantize, allowed=", ".join(QUANTIZE)
        )
    if quantize and not given["export"]:
        raise InputError("--export-quantize must go with --export", where="--export-quantize", value=quantize,
                         next_step="give --export too")  # fmt: skip


@contextmanager
def open_export(given: Mapping[str, Any], run_dir: str, files: str) -> Iterator[CommitExporter | None]:
    """The exporter of a run while it trains; None without ``--export``.

    Args:
        run_dir: the run directory.
        files: the folder of the job's files, which is the run directory unless that is in a bucket.

    Raises what :func:`trainer.serving.deltas.commit_exporter.exporting` raises, before training.
    """
    if not given["export"]:
        yield None
        return
    from trainer.serving.deltas.commit_exporter import exporting

    chain, holds = local_folder(given["export"], "--export"), Path(files).absolute()
    if chain.resolve() in (holds.resolve(), (holds / "checkpoints").resolve()):
        raise InputError("links must have a folder of their own, got that of the run", where="--export", value=str(chain),
                         next_step=f"such as {chain / 'links'}")  # fmt: skip
    with exporting(run_dir, chain, holds=holds, quantize=given["export_quantize"], tell=say) as exporter:
        yield exporter


def finish_export(exporter: CommitExporter | None) -> ExportedChain | None:
    """Wait until the newest commit is in the chain, or is known not to be."""
    if exporter is None:
        return None
    with progress_bar("writing the link of the newest commit", "bytes") as report:
        return exporter.finish(report)


def check_exported(exported: ExportedChain | None) -> None:
    """Raise the error for which a chain lacks the newest commit."""
    if exported is None or exported.problem is None:
        return
    newest = "has no link" if exported.newest is None else f"ends with {exported.newest.manifest.name}"
    say(
        f"training is done and committed, but {exported.folder} {newest}: the same command writes the link that is missing"
    )
    raise exported.problem


def local_folder(folder: str, what: str) -> Path:
    """A folder of links, or what they are applied to. Raises :class:`InputError` for a location in a bucket."""
    from warehouse.storage.locations import is_uri

    if is_uri(folder):
        raise InputError("links and what they are applied to must be in local folders", where=what, value=folder,
                         next_step="name a folder on this machine")  # fmt: skip
    return Path(folder)
