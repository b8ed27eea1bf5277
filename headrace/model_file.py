"""Reads models from a Python file."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from transforms.errors import HeadraceError, InputError, nearest
from transforms.expressions.model import Model


class ModelFileError(InputError):
    """A model file is missing, raises, or defines no model."""


def load_models(path: str | Path) -> tuple[Model, ...]:
    """Every :class:`~transforms.expressions.model.Model` at the top level of a Python file, in order.

    The file runs with its own folder on the import path, like ``python file.py``. Raises :class:`ModelFileError` if the file
    raises, with the line, and for equal names or no model.
    """
    file = Path(path)
    if not file.is_file():
        raise ModelFileError("the model file does not exist", value=str(path), allowed="a Python file",
                             next_step="see examples/search_ads.py for one")  # fmt: skip
    values = _run(file)
    models = {id(value): value for value in values.values() if isinstance(value, Model)}
    models |= {id(item): item for value in values.values() if isinstance(value, list | tuple)
               for item in value if isinstance(item, Model)}  # fmt: skip
    if not models:
        raise ModelFileError("a model file must define a model, got none", where=str(file),
                             next_step='define one at the top level: model = hr.Model("name", client=..., label=...)')  # fmt: skip
    names = [model.name for model in models.values()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ModelFileError("models of one file must have different names", where=str(file), value=", ".join(twice),
                             next_step="rename one of them")  # fmt: skip
    return tuple(models.values())


def chosen_models(paths: Sequence[str], names: Iterable[str] | None = None) -> tuple[Model, ...]:
    """The models of files in their order, or those of ``names`` in that order.

    Raises :class:`InputError` for an unknown name, :class:`ModelFileError` for a model of two files, and for files that import
    different modules of one name: a process can have one of them.
    """
    models: dict[str, Model] = {}
    file_of: dict[str, str] = {}
    modules: dict[str, Path] = {}
    for path in dict.fromkeys(paths):
        folder = Path(path).resolve().parent
        _refuse_hidden_modules(path, folder, modules)
        before = set(sys.modules)
        for each in load_models(path):
            if each.name in models:
                raise ModelFileError("models that are submitted together must have different names", value=each.name,
                                     where=f"{file_of[each.name]} and {path}", next_step="rename one of them")  # fmt: skip
            models[each.name], file_of[each.name] = each, path
        modules |= dict.fromkeys({name.partition(".")[0] for name in set(sys.modules) - before}, folder)
    for name in names or ():
        if name not in models:
            raise InputError(
                "the file has no such model", where=", ".join(paths), value=name, allowed=nearest(name, models)
            )
    return tuple(models[name] for name in names or models)


def _refuse_hidden_modules(path: str, folder: Path, modules: Mapping[str, Path]) -> None:
    """Refuse a file beside modules of its own that those of an earlier file's folder would hide."""
    for name, earlier in modules.items():
        if earlier != folder and _holds_module(earlier, name) and _holds_module(folder, name):
            raise ModelFileError("model files that are submitted together must not import different modules of one name", where=path,
                                 value=f"{name} of {earlier} and of {folder}",
                                 next_step="rename one, or submit the files one after the other")  # fmt: skip


def _holds_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


def _run(file: Path) -> dict[str, object]:
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        return runpy.run_path(str(file), run_name="__headrace_models__")
    except HeadraceError as error:
        error.where = "; ".join(part for part in (_line_in(file, error), error.where) if part)
        raise
    except SyntaxError as error:
        raise ModelFileError(
            "the model file is not valid Python", where=f"{error.filename or file}:{error.lineno or 1}", value=error.msg
        ) from error
    except Exception as error:
        raise ModelFileError("the model file raised an exception", where=_line_in(file, error) or str(file),
                             value=f"{type(error).__name__}: {error}",
                             next_step=f"run it alone to see the full trace: python {file}") from error  # fmt: skip
    except SystemExit as error:
        raise ModelFileError("a model file must not exit", where=str(file), value=error.code) from error
    finally:
        sys.path.remove(str(file.parent.resolve()))


def _line_in(file: Path, error: BaseException) -> str:
    """The deepest line of ``file`` in the error's trace, as ``file:line: source``."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == file.name]
    return f"{file}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
