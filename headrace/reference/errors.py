"""The reference page of the classes of errors, from the classes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from headrace.reference.markdown import GENERATED, summary_of, table
from transforms.errors import HeadraceError
from transforms.installation import own_module

#: The modules that define errors.
MODULES = (
    "transforms.errors",
    "warehouse.errors",
    "pipelines.errors",
    "trainer.errors",
    "headrace.cli.export",
    "headrace.client.commands",
    "headrace.demo.play",
    "headrace.model_file",
    "headrace.table_files",
    "headrace.tracking.mlflow_server",
    "pipelines.kafka.topic",
    "trainer.job.control.publishing",
    "trainer.run.loop",
    "trainer.wire.flight.error_documents",
    "transforms.functions.errors",
    "transforms.twins.graph",
    "transforms.twins.refusals",
    "warehouse.files.rows_by_key",
)
_HEAD = f"""# Classes of errors

This page lists every error that Headrace raises on purpose. {GENERATED}

The name of a class is its code: it is the field `code` of an error with `--log-format json`, and stays the same between releases. [Errors](errors.md) has the exit statuses and the form of messages.
"""


def error_classes() -> Iterator[type[HeadraceError]]:
    """Each class below the root, sorted by exit status and name."""
    for module in MODULES:
        import_module(own_module(module))
    yield from sorted(_below(HeadraceError), key=lambda kind: (kind.exit_status, kind.__name__))


def _below(root: type[HeadraceError]) -> set[type[HeadraceError]]:
    found = {kind for child in root.__subclasses__() for kind in (child, *_below(child))}
    return {kind for kind in found if kind.__module__ in map(own_module, MODULES)}


def errors_page() -> str:
    """The page as Markdown: one row per class."""
    rows = (
        (f"`{kind.__name__}`", str(kind.exit_status), f"`{kind.__mro__[1].__name__}`", summary_of(kind))
        for kind in error_classes()
    )  # fmt: skip
    return "\n".join([_HEAD, table(["class", "exit status", "is a", "raised for"], rows)])
