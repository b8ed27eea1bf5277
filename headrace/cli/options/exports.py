"""``headrace train --export``: the chain of links that training writes while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from headrace.cli.options.option_groups import Mark
from headrace.cli.options.session import run_location
from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.serving.deltas.commit_exporter import CommitExporter, ExportedChain


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """The chain of links that training writes for serving. Raises :class:`InputError` for options of links that do not fit."""

    PANEL: ClassVar[str] = "Serving"

    export: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Write each commit to this chain of links for serving, in a folder or gs://bucket/path, while training goes on: "
            "docs/serving-deltas.md.",
            show_default=False,
        ),
        Mark.FIRST,
        Mark.PATH,
    ] = ""
    export_quantize: Annotated[
        str,
        typer.Option(
            metavar="none|fp16|int8",
            help="How links store the weights of tables. Default: as the newest link, else exact.",
            show_default=False,
        ),
    ] = ""

    def __post_init__(self) -> None:
        quantize = self.export_quantize
        if not quantize:
            return
        from trainer.serving.deltas.row_values import QUANTIZE

        if quantize not in QUANTIZE:
            raise InputError("a quantization must be a known one", where="--export-quantize", value=quantize,
                             allowed=", ".join(QUANTIZE))  # fmt: skip
        if not self.export:
            raise InputError("--export-quantize must go with --export", where="--export-quantize", value=quantize,
                             next_step="give --export too")  # fmt: skip


@contextmanager
def open_export(options: ServingOptions, run_dir: str, files: str) -> Iterator[CommitExporter | None]:
    """The exporter of a run while it trains; None without ``--export``.

    Args:
        run_dir: the run directory.
        files: the folder of the job's files, which is the run directory unless that is in a bucket.

    Raises what :func:`trainer.serving.deltas.commit_exporter.exporting` raises, before training.
    """
    if not options.export:
        yield None
        return
    from trainer.serving.deltas.commit_exporter import exporting

    chain, holds = chain_place(options.export, "--export"), Path(files).absolute()
    _check_apart(chain, run_dir, holds)
    with exporting(run_dir, chain, holds=holds, quantize=options.export_quantize, tell=say) as exporter:
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
    say(f"training is done and committed, but {exported.place} {newest}: the same command writes the link that is missing")  # fmt: skip
    raise exported.problem


def _check_apart(chain: str | Path, run_dir: str, holds: Path) -> None:
    """Raise :class:`InputError` for links in the place of the run."""
    if isinstance(chain, str):
        places = [f"{run_dir.partition('?')[0].rstrip('/')}{folder}" for folder in ("", "/checkpoints")]
        is_apart = chain.partition("?")[0].rstrip("/") not in places
    else:
        is_apart = chain.resolve() not in (holds.resolve(), (holds / "checkpoints").resolve())
    if not is_apart:
        raise InputError("links must have a folder of their own, got that of the run", where="--export", value=str(chain),
                         next_step=f"such as {str(chain).partition('?')[0].rstrip('/')}/links")  # fmt: skip


def chain_place(chain: str, what: str) -> str | Path:
    """A chain of links: a local folder, or ``gs://bucket/path``, which may be on an emulator. Raises :class:`InputError` for another location."""
    from warehouse.storage.locations import is_gcs, is_uri, parse_gcs

    if not is_uri(chain):
        return Path(chain)
    if not is_gcs(chain) or not parse_gcs(chain).name:
        raise InputError("links must be in a local folder or in a folder of a bucket", where=what, value=chain,
                         allowed="a folder, or gs://bucket/path")  # fmt: skip
    return run_location(chain)


def local_folder(folder: str, what: str) -> Path:
    """What links are applied to. Raises :class:`InputError` for a location in a bucket."""
    from warehouse.storage.locations import is_uri

    if is_uri(folder):
        raise InputError("what links are applied to must be a local folder", where=what, value=folder,
                         next_step="name a folder on this machine; the links may be in a bucket")  # fmt: skip
    return Path(folder)
