"""The generated pages by the names of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.reference.commands import commands_page
from headrace.reference.errors import errors_page
from headrace.reference.json_page import json_page, schemas_text
from headrace.reference.operators import operators_page
from headrace.reference.python_api import python_page
from headrace.reference.training_options import training_options_page

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "error-classes.md": errors_page,
    "json.md": json_page,
    "json-schemas.json": schemas_text,
    "operators.md": operators_page,
    "python-reference.md": python_page,
    "training-options.md": training_options_page,
}


def write_pages(folder: str) -> None:
    """Write every generated page into a folder."""
    for name, page in PAGES.items():
        (Path(folder) / name).write_text(page(), encoding="utf-8")
