"""``headrace model export``: a model's transforms as a TensorFlow SavedModel."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.runs import named_run, run_folder, run_folder_of
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.quiet import import_quietly
from transforms.errors import InputError, StorageError, listed
from warehouse.storage.durable_files import sync_path

if TYPE_CHECKING:
    from trainer.serving.tensorflow_model import Scorer
    from trainer.serving.trained import Trained
    from transforms.graphs.graph import Node
    from transforms.twins.export import Serving, Unservable
    from warehouse.models.models import ModelRecord


class NotServable(InputError):
    """Inputs of a model use operators that TensorFlow cannot express."""


class ExportExists(InputError):
    """The export of a version exists already."""


def export(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=model_names,
            help="Name of the model, or the folder MODEL-vVERSION of a run: export the trained model.",
        ),
    ],
    output: Annotated[
        str, typer.Option(help="Folder of the served model; the export is a folder in it, named by the version.")
    ],
    version: Annotated[
        int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
    ] = 0,
    skip_unservable: Annotated[
        bool, typer.Option("--skip-unservable", help="Skip inputs that TensorFlow cannot compute.")
    ] = False,
    trained: Annotated[
        str,
        typer.Option(
            help="Folder of a training run, gs://bucket/path, or the model's name for its run in the home: export the trained "
            "model, from raw columns to predictions."
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an export of the same version.")] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write a SavedModel that maps raw columns to the model's inputs, bit-equal to the warehouse, or to predictions."""
    from headrace.screens.export import ExportScreen, LeftOut
    from warehouse.files.artifacts import ArtifactSource
    from warehouse.models.models import get_model, stored_inputs

    named = named_run(name, version)
    name, trained = named.model, trained or named.run_dir
    with open_warehouse(home) as warehouse:
        with warehouse.catalog.read() as connection:
            model = get_model(connection, name, named.version or None)
            components = {item.name: item.component for item in stored_inputs(connection, model.id)}
        artifacts = ArtifactSource(warehouse.storage.home)
    target = _target(output, model, force=force)
    if trained and skip_unservable:
        raise InputError("a trained model must be exported with all of its inputs", where="--skip-unservable",
                         next_step="leave it out, or train without these inputs")  # fmt: skip
    import_quietly("transforms.twins.export")
    from transforms.twins.export import SIGNATURES, Serving, unservable

    left_out = unservable(components)
    _check(name, components, left_out, skip_unservable)
    served = {key: root for key, root in components.items() if key not in {each.name for each in left_out}}
    run = _trained(_run_of(trained, model, home), components, model) if trained else None
    scorer = _scorer(run)
    serving = Serving(served, artifacts, scorer)
    size_bytes = _publish(serving, _document(serving, model, run, scorer, left_out), target)
    screen = ExportScreen(
        model=name,
        version=model.version,
        path=str(target),
        inputs=len(served),
        columns=len(serving.document["columns"]),
        signatures=SIGNATURES,
        size_bytes=size_bytes,
        left_out=tuple(LeftOut(each.name, each.operator, each.reason) for each in left_out),
        checkpoint=Path(run.checkpoint).name if run else "",
    )
    emit(screen, as_json=as_json)


def _run_of(trained: str, model: ModelRecord, home: str) -> str:
    """The run of ``--trained``; the name of the model is that of its run in the home."""
    if trained == model.name and not Path(trained).is_dir():
        return run_folder_of("", model.name, model.version, home)
    return run_folder(trained, 0, home)


def _target(output: str, model: ModelRecord, *, force: bool) -> Path:
    """The folder of this version. Raises :class:`ExportExists` if it exists, unless ``force``."""
    target = Path(output) / str(model.version)
    if target.exists() and not force:
        raise ExportExists("the export of a version must not exist yet", where=f"model {model.name}", value=str(target),
                           next_step="give another --output, or --force to replace it")  # fmt: skip
    return target


def _document(
    serving: Serving, model: ModelRecord, run: Trained | None, scorer: Scorer | None, left_out: Sequence[Unservable]
) -> dict[str, Any]:
    """The description beside the graph."""
    return {
        **serving.document,
        "model": model.name,
        "version": model.version,
        "table": model.table,
        **_run_document(run),
        **({} if scorer is None else {"served": scorer.served.to_document()}),
        "left_out": [{"input": each.name, "operator": each.operator, "reason": each.reason} for each in left_out],
    }


def _trained(run_dir: str, components: Mapping[str, Node], model: ModelRecord) -> Trained:
    """The model of a run, which must have been trained on these inputs."""
    from headrace.terminal.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    from trainer.errors import RunMismatch
    from trainer.serving.trained import load_trained

    trained = load_trained(run_dir)
    theirs = [(item["name"], item["fingerprint"]) for item in trained.identity.inputs]
    ours = [(name, root.identity) for name, root in components.items()]
    if theirs != ours:
        other = sorted({name for name, _ in {*theirs} ^ {*ours}}) or [name for name, _ in ours]
        raise RunMismatch("the run must have been trained on the inputs of this version, got others",
                          where=f"run {run_dir}, model {model.name} version {model.version}", value=listed(other),
                          next_step="name the version that was trained with --version, or train this one")  # fmt: skip
    return trained


def _scorer(run: Trained | None) -> Scorer | None:
    if run is None:
        return None
    from trainer.serving.tensorflow_model import Scorer

    return Scorer(run)


def _run_document(run: Trained | None) -> dict[str, Any]:
    if run is None:
        return {}
    from trainer.serving.tensorflow_model import prediction_name

    outputs = [
        {
            "tensor": prediction_name(name),
            "task": one.task,
            "shape": ["rows"] if one.width == 1 else ["rows", one.width],
        }
        for name, one in run.weights.head.each
    ]
    return {"outputs": outputs, "checkpoint": Path(run.checkpoint).name}


def _check(model: str, components: Mapping[str, Node], left_out: tuple[Unservable, ...], skip: bool) -> None:
    if not left_out or (skip and len(left_out) < len(components)):
        return
    raise NotServable(
        "TensorFlow cannot compute every input of this model" if not skip else "no input is left to export",
        where=f"model {model}, input " + ", ".join(each.name for each in left_out),
        value=listed([f"{each.name}: operator {each.operator}" for each in left_out]),
        allowed="operators with a TensorFlow twin; "
        + "; ".join(dict.fromkeys(f"{each.operator} has none: {each.reason.rstrip('.')}" for each in left_out)),
        next_step="express these inputs by other operators"
        + ("" if skip else ", or leave them out with --skip-unservable and compute them before serving"),
    )


def _publish(serving: Any, document: Mapping[str, Any], target: Path) -> int:
    """Write the export to a temporary folder and rename it to the target; returns its size in bytes."""
    from trainer.serving.saved_model_document import EXTRA

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as staging:
            made = Path(staging) / "new"
            serving.save(str(made))
            extra = made / EXTRA
            extra.parent.mkdir(parents=True, exist_ok=True)
            extra.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            for path in (*sorted(made.rglob("*")), made):
                sync_path(path)
            if target.exists():
                os.rename(target, Path(staging) / "old")
            os.rename(made, target)
    except (OSError, shutil.Error) as error:
        raise StorageError("the export cannot be written", where=str(target), value=str(error)) from error
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
