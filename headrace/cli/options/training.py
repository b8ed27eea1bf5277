"""The file of training options, ``--config``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.cli.options.files import read_file
from transforms.errors import InputError


def read_options(path: str) -> Mapping[str, Any]:
    """The options in a JSON file, or in a JSON object instead of its path; none without either.

    Towers may be a file of ``headrace towers make``, by its path from the folder of the file.
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
    modules = options.get("tower_modules")
    if isinstance(modules, Mapping) and isinstance(modules.get("towers"), str):
        folder = Path() if is_text else Path(path).parent
        return {**options, "tower_modules": {**modules, "towers": _made_towers(folder / modules["towers"])}}
    return options


def _made_towers(path: Path) -> list[list[str]]:
    """The names of the inputs of each tower. Raises :class:`~trainer.errors.ConfigError` for a file that has none."""
    from trainer.planning.towers.tower_document import read_towers

    plan = read_towers(read_file(str(path), "tower_modules.towers, in --config"), str(path))
    return [list(tower) for tower in plan.towers]
