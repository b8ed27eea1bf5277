"""Run files: TOML that says what the flags of ``headrace train`` say.

A key is the name of a flag without its dashes; the table ``options`` holds the training options of ``--config``. The tables ``initial``
and ``caught_up`` hold what is different in a phase of the run. Paths are relative to the file. What belongs to one call, such as ``--json``, is in no file, and passwords are not written.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import tomli_w

from headrace.cli.options.option_groups import Mark, OptionField, is_given
from headrace.cli.options.training import with_paths
from transforms.errors import InputError, nearest

_MOST_BYTES = 1 << 20
#: The table with the training options, whose flag is ``--config``.
_OPTIONS, _CONFIG = "options", "config"
#: The tables of phases, in their order.
PHASES = ("initial", "caught_up")
_STANDARD_OUTPUT = "-"
_PAGE = "docs/run-file.md"
#: Control characters, which no name or path of a command line has.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: A user, with a password or a token, in a URL, and an option of a URL that is one.
_PASSWORD = re.compile(
    r"://[^/\s\"']*@|\b(?:password|passwd|sslpassword|passfile|token|secret)\s*=\s*[^&\s\"']", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run file that is read.

    Attributes:
        path: as it was named.
        values: of the options that it has, by parameter.
        phases: by phase, the values that are different there; none for a file without phases.
    """

    path: str
    values: Mapping[str, Any]
    phases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of_phase(self, phase: str) -> Mapping[str, Any]:
        """The values of a phase, by parameter. Raises :class:`InputError` for a phase that the file does not have."""
        if phase not in self.phases:
            raise InputError("a phase must be a table of the run file", where="--phase", value=phase,
                             allowed=", ".join(self.phases) or f"none: {self.path} has no phases")  # fmt: skip
        return {**self.values, **self.phases[phase]}

    def place(self, key: str) -> str:
        """A key of the file, as errors name it."""
        return f"{self.path}:{key}"


def key_of(field: OptionField) -> str:
    """The key of an option in run files."""
    return field.name if field.is_argument else field.flag.removeprefix("--")


def read_run_file(path: str, fields: Sequence[OptionField], by_phase: Collection[str] = ()) -> RunFile:
    """Read a run file of a command with these options, of which those ``by_phase`` may be different in phases.

    Raises :class:`InputError` for a file that cannot be read or is not TOML, an unknown key, and a value of another type.
    """
    document = _parse(path)
    known = {key_of(one): one for one in fields if Mark.OF_THE_CALL not in one.marks}
    if _OPTIONS in document and _CONFIG in document:
        raise InputError("a run file must have the table options or the key config", where=f"{path}:{_OPTIONS}, {path}:{_CONFIG}",
                         value="both", next_step="leave one of them out")  # fmt: skip
    values, sections = {}, {one: document.pop(one) for one in PHASES if one in document}
    for key, value in document.items():
        where = f"{path}:{_shown_key(key)}"
        if key == _OPTIONS:
            values[_CONFIG] = _config_of(value, where, path)
        elif key in known:
            values[known[key].name] = _value_of(known[key], value, where, path)
        else:
            raise _unknown(key, where, fields, known)
    if not sections:
        return RunFile(path, values)
    of_phases = {key: one for key, one in known.items() if one.name in by_phase}
    return RunFile(path, values, {
        name: _phase_of(sections.get(name, {}), f"{path}:{name}", path, of_phases, document) for name in PHASES
    })  # fmt: skip


def _phase_of(
    table: Any, where: str, path: str, known: Mapping[str, OptionField], document: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that are different in a phase."""
    if not isinstance(table, dict):
        raise InputError("a phase must be a table", where=where, value=table, allowed="[initial], then a line for each")
    values: dict[str, Any] = {}
    for key, value in table.items():
        place = f"{where}.{_shown_key(key)}"
        if key == _OPTIONS:
            if _CONFIG in document:
                raise InputError("training options of a phase must be beside the table options", where=f"{path}:{_CONFIG}, {place}",
                                 value=document[_CONFIG], next_step="write the options of the file into the table [options]")  # fmt: skip
            own, of_all = json.loads(_config_of(value, place, path)), document.get(_OPTIONS, {})
            values[_CONFIG] = json.dumps({**json.loads(_config_of(of_all, place, path)), **own})
        elif key in known:
            values[known[key].name] = _value_of(known[key], value, place, path)
        else:
            raise InputError("a phase must have keys that may be different in phases", where=place, value=key[:100],
                             allowed=nearest(key[:100], known) or f"{_OPTIONS}, and flags of hosts, servers, serving, devices and machines",
                             next_step="write other keys above the tables of phases")  # fmt: skip
    return values


def write_run_file(values: Mapping[str, Any], fields: Sequence[OptionField], folder: str) -> str:
    """The text of a run file in ``folder`` that says what ``values`` say; options with their defaults are left out.

    Raises :class:`InputError` for text that no file holds, and for a password.
    """
    panels: dict[str, dict[str, Any]] = {}
    options: Mapping[str, Any] | None = None
    for one in fields:
        value = values[one.name]
        if Mark.OF_THE_CALL in one.marks or not is_given(one, value):
            continue
        if one.name == _CONFIG and (options := _table_of(value, folder)) is not None:
            continue
        panels.setdefault("" if one.is_argument else one.panel, {})[key_of(one)] = _written(one, value, folder)
    head = f"# headrace train --from THIS_FILE; a flag beside it replaces a key, and paths are relative to the file: {_PAGE}\n"
    parts = [(f"\n# {panel}\n" if panel else "\n") + tomli_w.dumps(table) for panel, table in panels.items()]
    if options is not None:
        parts.append("\n# Training options\n" + tomli_w.dumps({_OPTIONS: options}))
    text = head + "".join(parts)
    if (found := _PASSWORD.search(text)) is not None:
        raise InputError("a run file must hold no password", where="--save-as", value="a URL with one" if "@" in found[0] else found[0].partition("=")[0],
                         next_step="leave user and password out of the URL")  # fmt: skip
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the values of a run file must be Unicode text", where="--save-as",
                         next_step="name files by UTF-8 text") from None  # fmt: skip
    return text


def save_run_file(path: str, text: str, *, replaces: bool) -> None:
    """Write a run file. Raises :class:`InputError` for another file there, unless it ``replaces`` that, and where nothing can be written."""
    place = Path(path)
    try:
        found = place.read_bytes() if place.exists() else None
        if found == text.encode():
            return
        if found is not None and not replaces:
            raise InputError("a run file must not replace another file", where="--save-as", value=path,
                             next_step="give another name, or remove the file")  # fmt: skip
        part = place.with_name(place.name + ".part")
        part.write_text(text, encoding="utf-8")
        part.replace(place)
    except (OSError, ValueError) as error:
        raise InputError("the run file cannot be written", where="--save-as", value=str(error),
                         next_step="name a file in a folder that exists") from None  # fmt: skip


def _parse(path: str) -> dict[str, Any]:
    """The keys and values of a TOML file."""
    try:
        if not Path(path).is_file():
            raise InputError("a run file must be a file", where="--from", value=path, next_step="headrace train MODEL --save-as FILE writes one")  # fmt: skip
        with open(path, "rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError("the run file cannot be read", where=path, value=str(error)) from None
    if len(content) > _MOST_BYTES:
        raise InputError("a run file must be short", where=path, value=f"over {_MOST_BYTES:,} bytes", allowed=f"{_MOST_BYTES:,} bytes")  # fmt: skip
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError("a run file must be TOML", where=path, value=str(error)[:200], allowed="such as: hosts = 2",
                         next_step=f"correct it: {_PAGE}") from None  # fmt: skip


def _unknown(key: str, where: str, fields: Sequence[OptionField], known: Mapping[str, OptionField]) -> InputError:
    """The error of a key that no run file has."""
    if key in {key_of(one) for one in fields}:
        return InputError("a run file must hold what holds for every call", where=where, value=key,
                          next_step=f"give --{key} on the command line")  # fmt: skip
    near = nearest(key[:100].replace("_", "-"), [*known, _OPTIONS])
    return InputError("a run file must have the keys of flags", where=where, value=key[:100],
                      allowed=near or f"{_OPTIONS}, and the flags of headrace train without --",
                      next_step="training options, such as batch_rows, belong in the table [options]")  # fmt: skip


def _value_of(field: OptionField, value: Any, where: str, path: str) -> Any:
    """The value of an option. Raises :class:`InputError` for one of another type."""
    found, allowed = _typed(field, value)
    if found is None:
        shown = type(value).__name__ if _PASSWORD.search(str(value)) else value
        raise InputError("a value of a run file must have its flag's type", where=where, value=shown, allowed=allowed)
    for text in found if isinstance(found, list) else [found]:
        if isinstance(text, str) and _CONTROL.search(text):
            raise InputError("text of a run file must have no control characters", where=where, value=text[:100])
    if field.is_argument and not found:
        raise InputError("a model must have a name", where=where, value=found)
    return _from_folder(found, path) if _is_path(field, found) else found


def _typed(field: OptionField, value: Any) -> tuple[Any, str]:
    """The value as its flag gives it, or None; and what is allowed."""
    is_int = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    if field.kind is bool:
        return (value if isinstance(value, bool) else None), "true or false"
    if field.kind in (int, int | None):
        return (value if is_int else None), "a whole number of 64 bits"
    if field.kind is float:
        is_number = is_int or (isinstance(value, float) and abs(value) < float("inf"))
        return (float(value) if is_number else None), "a finite number"
    if field.kind is not str:
        is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return (value if is_list else None), "a list of strings"
    if Mark.COUNT in field.marks:
        if is_int and value >= 0:
            return str(value), ""
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            return ",".join(value), ""
        return (value if isinstance(value, str) else None), 'a number, or addresses such as ["10.0.0.2:7500"]'
    if Mark.RANGE in field.marks:
        is_text = isinstance(value, str) and bool(value)
        return (str(value) if is_text or (is_int and value > 0) else None), 'a number, or a range such as "2..8"'
    if Mark.TIME in field.marks and isinstance(value, date):  # or a datetime
        return value.isoformat(), ""
    return (value if isinstance(value, str) else None), "a time" if Mark.TIME in field.marks else "a string"


def _config_of(options: Any, where: str, path: str) -> str:
    """Training options as ``--config`` takes them: one JSON object."""
    if not isinstance(options, dict):
        raise InputError(
            "options must be a table", where=where, value=options, allowed="[options], then a line for each"
        )
    try:
        _check_json(options, where)
        return json.dumps(with_paths(options, lambda file: _from_folder(file, path)))
    except (RecursionError, ValueError):  # such as a number of more digits than Python prints
        raise InputError("training options must be short and flat", where=where) from None


def _check_json(value: Any, where: str) -> None:
    """Raise :class:`InputError` for what JSON does not have."""
    if isinstance(value, dict):
        for key, one in value.items():
            _check_json(one, f"{where}.{_shown_key(key)}")
    elif isinstance(value, list):
        for one in value:
            _check_json(one, where)
    elif not isinstance(value, (str, int, float)):
        raise InputError("a training option must be text, a number, true or false, a list or a table", where=where,
                         value=str(value), next_step="write times in quotes")  # fmt: skip
    elif isinstance(value, str) and _CONTROL.search(value):
        raise InputError("text of a run file must have no control characters", where=where, value=value[:100])


def _shown_key(key: str) -> str:
    return key if len(key) <= 60 and key.isprintable() else f"{key[:60]!r}"


def _from_folder(path: str, file: str) -> str:
    """A path of a run file, from the folder of this process."""
    return path if _is_fixed(path) else os.path.join(os.path.dirname(file), path)


def _is_path(field: OptionField, text: str) -> bool:
    return Mark.PATH in field.marks and not (Mark.AUTO in field.marks and text == Mark.AUTO.value)


def _to_folder(path: str, folder: str) -> str:
    """A path of this process, from the folder of a run file."""
    if _is_fixed(path) or os.path.realpath(folder) == os.path.realpath(os.curdir):
        return path
    return os.path.relpath(path, os.path.realpath(folder))


def _is_fixed(path: str) -> bool:
    """Whether a text is the same from every folder: a URL, an absolute path, JSON, standard output, or nothing."""
    return "://" in path or os.path.isabs(path) or path.startswith("{") or path in ("", _STANDARD_OUTPUT)


def _written(field: OptionField, value: Any, folder: str) -> Any:
    """A value as the file holds it."""
    if _is_path(field, value):
        return _to_folder(value, folder)
    if (
        field.marks & {Mark.COUNT, Mark.RANGE}
        and value.isascii()
        and value.isdigit()
        and len(value) < 9
        and str(int(value)) == value
    ):
        return int(value)
    return value


def _table_of(config: str, folder: str) -> Mapping[str, Any] | None:
    """The training options of a ``--config`` that holds them itself; None for a file, and for what TOML does not have, such as null."""
    if not config.startswith("{"):
        return None
    try:
        options = with_paths(json.loads(config), lambda file: _to_folder(file, folder))
        text = tomli_w.dumps(options)
        text.encode()
        is_kept = json.dumps(tomllib.loads(text), sort_keys=True) == json.dumps(options, sort_keys=True)
        _check_json(options, "")
        return options if is_kept else None
    except (ValueError, TypeError, RecursionError, InputError):
        return None
