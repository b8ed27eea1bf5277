"""``headrace model export``: a model's transforms as a TensorFlow SavedModel, for serving."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import emit
from headrace.cli.quiet import import_quietly
from headrace.cli.session import AsJson, Home, open_warehouse
from transforms.errors import InputError, StorageError

if TYPE_CHECKING:
    from transforms.graph import Node
    from transforms.twins.export import Unservable

#: TensorFlow Serving passes over this folder; other tools find here what the graph means.
EXTRA = "assets.extra/headrace.json"


class NotServable(InputError):
    """Inputs of a model use operators that TensorFlow cannot express."""


class ExportExists(InputError):
    """There is an export of this version already."""


def export(
    name: Annotated[str, typer.Argument(help="Name of the model.")],
    output: Annotated[
        str, typer.Option(help="Folder of the served model; the export goes to a folder in it, named by the version.")
    ],
    version: Annotated[
        int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
    ] = 0,
    skip_unservable: Annotated[
        bool, typer.Option("--skip-unservable", help="Leave out inputs that TensorFlow cannot compute.")
    ] = False,
    trained: Annotated[
        str,
        typer.Option(help="Folder of a training run: the export gives its predictions.", show_default=False),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace an export of the same version.")] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write a SavedModel that maps raw columns to the model's inputs, or with --trained to its predictions."""
    from headrace.screens.export import ExportScreen, LeftOut
    from warehouse.artifacts import ArtifactSource
    from warehouse.models import get_model, stored_inputs

    with open_warehouse(home) as warehouse:
        with warehouse.catalog.read() as connection:
            model = get_model(connection, name, version or None)
            components = {item.name: item.component for item in stored_inputs(connection, model.id)}
        artifacts = ArtifactSource(warehouse.storage.home)
    target = Path(output) / str(model.version)
    if target.exists() and not force:
        raise ExportExists("this version of the model was exported already", where=f"model {name}", value=str(target),
                           next_step="give another --output, or --force to replace it")  # fmt: skip
    import_quietly("transforms.twins.export")
    from transforms.twins.export import SIGNATURES, Serving, unservable

    left_out = unservable(components)
    _check(name, components, left_out, skip_unservable and not trained)
    finish = _predictions(trained, components) if trained else None
    served = {key: root for key, root in components.items() if key not in {each.name for each in left_out}}
    serving = Serving(served, artifacts, finish)
    document = {
        **serving.document,
        "model": name,
        "version": model.version,
        "table": model.table,
        **({"run": trained, "outputs": ["prediction"]} if trained else {}),
        "left_out": [{"input": each.name, "operator": each.operator, "reason": each.reason} for each in left_out],
    }
    size_bytes = _publish(serving, document, target)
    screen = ExportScreen(
        model=name,
        version=model.version,
        path=str(target),
        inputs=len(served),
        columns=len(document["columns"]),
        signatures=SIGNATURES,
        size_bytes=size_bytes,
        left_out=tuple(LeftOut(each.name, each.operator, each.reason) for each in left_out),
    )
    emit(screen, as_json=as_json)


def _predictions(run_dir: str, components: Mapping[str, Node]) -> Any:
    """What turns the inputs into predictions. Raises :class:`InputError` where the run was trained on other inputs."""
    from trainer.served import ServedModel
    from trainer.trained import load_trained

    trained = load_trained(run_dir)
    known = {item["name"]: item["fingerprint"] for item in trained.identity.inputs}
    given = {key: root.identity for key, root in components.items()}
    if known != given:
        differing = sorted(key for key in {*known, *given} if known.get(key) != given.get(key))
        raise InputError("a run must be trained on the inputs of the exported version, got others", where=run_dir,
                         value=", ".join(differing), next_step="name the version that was trained with --version")  # fmt: skip
    return ServedModel(trained).predictions


def _check(model: str, components: Mapping[str, Node], left_out: tuple[Unservable, ...], skip: bool) -> None:
    if not left_out or (skip and len(left_out) < len(components)):
        return
    raise NotServable(
        "TensorFlow cannot compute every input of this model" if not skip else "no input is left to export",
        where=f"model {model}, input " + ", ".join(each.name for each in left_out),
        value="; ".join(f"{each.name}: operator {each.operator}" for each in left_out),
        allowed="operators with a TensorFlow twin; "
        + "; ".join(dict.fromkeys(f"{each.operator} has none: {each.reason.rstrip('.')}" for each in left_out)),
        next_step="express these inputs by other operators"
        + ("" if skip else ", or leave them out with --skip-unservable and compute them before serving"),
    )


def _publish(serving: Any, document: Mapping[str, Any], target: Path) -> int:
    """Write everything beside the target, then put it in place; returns its size in bytes."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as staging:
            made = Path(staging) / "new"
            serving.save(str(made))
            extra = made / EXTRA
            extra.parent.mkdir(parents=True, exist_ok=True)
            extra.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            _synced(made)
            if target.exists():
                os.rename(target, Path(staging) / "old")
            os.rename(made, target)
    except (OSError, shutil.Error) as error:
        raise StorageError("the export cannot be written", where=str(target), value=str(error)) from error
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def _synced(folder: Path) -> None:
    for path in (*sorted(folder.rglob("*")), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
