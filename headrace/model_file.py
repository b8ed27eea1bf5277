"""Reading models from a Python file, as ``headrace model submit`` does."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from transforms.errors import HeadraceError, InputError, nearest
from transforms.expressions.model import Model


class ModelFileError(InputError):
    """A model file is missing, raises, or defines no model."""


def load_models(path: str | Path) -> tuple[Model, ...]:
    """Every :class:`~transforms.expressions.model.Model` bound at the top level of a Python file, in the order they were bound.

    The file runs with its own folder on the import path, as ``python file.py`` would. Raises :class:`ModelFileError`
    with the line of the file for whatever it raises, two models of one name, or none at all.
    """
    file = Path(path)
    if not file.is_file():
        raise ModelFileError("the model file does not exist", value=str(path), allowed="a Python file",
                             next_step="examples/search_ads.py shows what one looks like")  # fmt: skip
    values = _run(file)
    models = {id(value): value for value in values.values() if isinstance(value, Model)}
    models |= {id(item): item for value in values.values() if isinstance(value, list | tuple)
               for item in value if isinstance(item, Model)}  # fmt: skip
    if not models:
        raise ModelFileError("the model file defines no model", where=str(file),
                             next_step='bind one at the top level: model = hr.Model("name", client=..., label=...)')  # fmt: skip
    names = [model.name for model in models.values()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ModelFileError("two models of one file have the same name", where=str(file), value=", ".join(twice),
                             next_step="rename one of them")  # fmt: skip
    return tuple(models.values())


def chosen_models(path: str, names: Iterable[str] | None = None) -> tuple[Model, ...]:
    """The models of a file, or those of ``names`` in that order. Raises :class:`InputError` for a name it does not define."""
    models = {each.name: each for each in load_models(path)}
    for name in names or ():
        if name not in models:
            raise InputError("the file defines no model of this name", where=path, value=name,
                             allowed=nearest(name, models))  # fmt: skip
    return tuple(models[name] for name in names or models)


def _run(file: Path) -> dict[str, object]:
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        return runpy.run_path(str(file), run_name="__headrace_models__")
    except HeadraceError as error:
        error.where = "; ".join(part for part in (_line_in(file, error), error.where) if part)
        raise
    except SyntaxError as error:
        raise ModelFileError("the model file is not valid Python", where=f"{error.filename or file}:{error.lineno or 1}",
                             value=error.msg) from error  # fmt: skip
    except Exception as error:
        raise ModelFileError("the model file raised an exception", where=_line_in(file, error) or str(file),
                             value=f"{type(error).__name__}: {error}",
                             next_step=f"run it alone to see the whole trace: python {file}") from error  # fmt: skip
    except SystemExit as error:
        raise ModelFileError("the model file called exit", where=str(file), value=error.code) from error
    finally:
        sys.path.remove(str(file.parent.resolve()))


def _line_in(file: Path, error: BaseException) -> str:
    """The deepest place in ``file`` that the error passed through, as ``file:line: source``."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == file.name]
    return f"{file}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
