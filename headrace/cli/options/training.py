"""The file of training options, ``--config``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.cli.options.files import read_file
from transforms.errors import InputError


def read_options(path: str, *, hot_rows: bool = True) -> Mapping[str, Any]:
    """The options in a JSON file, or in a JSON object instead of its path; none without either.

    Towers may be a file of ``headrace towers make``, and hot rows one of ``headrace plan hot``, by its path from the folder of the file.
    ``hot_rows``: whether these are wanted; a plan needs none, and may be made before the file is there.
    """
    options: object = {}
    is_text = path.startswith("{")
    if path:
        try:
            options = json.loads(path if is_text else Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(
                "the training options cannot be read",
                where="--config" if is_text else path,
                value=str(error),
                allowed="a JSON object",
            ) from None
    if not isinstance(options, Mapping):
        raise InputError("training options must be a JSON object", where=path, value=type(options).__name__)
    if not hot_rows:
        options = {name: value for name, value in options.items() if name != "hot_rows"}
    folder = Path() if is_text else Path(path).parent
    return _with_files(
        options, hot_rows=lambda file: _hot_rows(folder / file), towers=lambda file: _made_towers(folder / file)
    )


def with_paths(options: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """The training options with their paths of files changed."""
    return _with_files(options, hot_rows=change, towers=change)


def _with_files(
    options: Mapping[str, Any], *, hot_rows: Callable[[str], object], towers: Callable[[str], object]
) -> dict[str, Any]:
    """The training options with something in place of each path of a file."""
    found = dict(options)
    if isinstance(path := found.get("hot_rows"), str) and path != "auto":
        found["hot_rows"] = hot_rows(path)
    modules = found.get("tower_modules")
    if isinstance(modules, Mapping) and isinstance(path := modules.get("towers"), str):
        found["tower_modules"] = {**modules, "towers": towers(path)}
    return found


def _hot_rows(path: Path) -> object:
    """What a file of hot rows says, which is checked with the other options."""
    try:
        return json.loads(read_file(str(path), "hot_rows, in --config"))
    except (ValueError, RecursionError) as error:
        raise InputError("a file of hot rows must be a JSON object", where=f"hot_rows, in --config: {path}", value=str(error),
                         next_step="headrace plan hot MODEL --output FILE writes one") from None  # fmt: skip


def _made_towers(path: Path) -> list[list[str]]:
    """The names of the inputs of each tower. Raises :class:`~trainer.errors.ConfigError` for a file that has none."""
    from trainer.planning.towers.tower_document import read_towers

    plan = read_towers(read_file(str(path), "tower_modules.towers, in --config"), str(path))
    return [list(tower) for tower in plan.towers]
