"""The settings of a warehouse, and where each value comes from: what is given, the environment, ``headrace.toml`` in the home, or the default.

    lease_secs = 120.0
    catalog_url = "postgresql://headrace@db/catalog"

    [prices]
    byte_month = 2.3e-11

A setting of :class:`~warehouse.config.WarehouseConfig` is a key, and its rates and prices are tables; in the environment ``prices.byte_month`` is
``$HEADRACE_PRICES_BYTE_MONTH``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

from transforms.errors import InputError, nearest
from warehouse.config import WarehouseConfig
from warehouse.errors import MissingFile
from warehouse.storage.storage import Storage

#: The file of a warehouse's settings in its home.
FILE = "headrace.toml"
#: What a name in the environment begins with.
PREFIX = "HEADRACE_"
_MOST_BYTES = 1 << 16
#: The setting that says where the file is, and so cannot be in it.
_HOME = "home"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: such as ``lease_secs`` or ``prices.byte_month``.
        value: an integer, a float or a text.
        source: ``default``, the file, a variable of the environment, or what the value was given as.
    """

    name: str
    value: int | float | str
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a warehouse.

    Attributes:
        config: their values.
        each: where each comes from, in the order of the configuration.
    """

    config: WarehouseConfig
    each: tuple[Setting, ...]


def settings_of(home: str, given: Mapping[str, tuple[Any, str]], environment: Mapping[str, str]) -> Settings:
    """The settings of the warehouse at ``home``; what is given comes before the environment, and that before the file.

    Args:
        home: a location.
        given: values by name, each with what it was given as, such as ``--catalog-url``.
        environment: variables; those that do not name a setting are left alone.

    Raises :class:`InputError` for a value that is not allowed, and for a file with other keys.
    """
    named = given.get("catalog_url", ("", ""))[0] or environment.get(variable_of("catalog_url"), "")
    WarehouseConfig(home, named)  # raises, before a bucket is asked for a file
    return settings_from(home, given, environment, _content(home))


def settings_from(
    home: str, given: Mapping[str, tuple[Any, str]], environment: Mapping[str, str], content: bytes | None
) -> Settings:
    """:func:`settings_of` with the content of the file; None without one. Pure."""
    found = {name: Setting(name, value, _DEFAULT) for name, value in _defaults().items()}
    where = f"{home.rstrip('/')}/{FILE}"
    for name, value in _of_file(content, where).items():
        found[name] = Setting(name, _checked(name, value, f"{where}, {name}"), FILE)
    for name in found:
        variable = variable_of(name)
        if text := environment.get(variable, ""):
            found[name] = Setting(name, _parsed(name, text, f"${variable}"), f"${variable}")
    for name, (value, source) in given.items():
        found[name] = Setting(name, _checked(name, value, source), source)
    try:
        config = _config(home, {name: one.value for name, one in found.items()})
    except InputError as error:
        place, _, name = error.where.partition(".")
        setting = found.get({"Rates": "rates.", "Prices": "prices."}.get(place, "") + name)
        if setting is not None and setting.source != _DEFAULT:
            error.where = f"{where}, {setting.name}" if setting.source == FILE else setting.source
        raise
    return Settings(config, tuple(found.values()))


def variable_of(name: str) -> str:
    """The variable of a setting: ``$HEADRACE_PRICES_BYTE_MONTH`` of ``prices.byte_month``, without the dollar sign."""
    return PREFIX + name.replace(".", "_").upper()


def variables() -> tuple[str, ...]:
    """The variables of all settings."""
    return tuple(map(variable_of, _defaults()))


def _content(home: str) -> bytes | None:
    storage = Storage(home)
    try:
        if storage.is_local:
            # A file of any size is read up to the most bytes only.
            with open(f"{storage.root.removeprefix('file://')}/{FILE}", "rb") as stream:
                return stream.read(_MOST_BYTES + 1)
        return storage.read_bytes(FILE)
    except (FileNotFoundError, NotADirectoryError, MissingFile):
        return None
    except OSError as error:
        raise InputError("the settings of the warehouse must be a file that can be read", where=f"{home}/{FILE}", value=str(error)) from error  # fmt: skip


@cache
def _defaults() -> dict[str, int | float | str]:
    """The settings and their defaults."""
    return dict(_flat(WarehouseConfig, ""))


def _flat(kind: Any, before: str) -> Iterator[tuple[str, Any]]:
    for one in fields(kind):
        value = one.default
        if is_dataclass(value):
            yield from (
                (name, getattr(value, name.rpartition(".")[2])) for name, _ in _flat(type(value), f"{one.name}.")
            )
        elif before + one.name != _HOME and value is not MISSING:
            yield before + one.name, value


def _of_file(content: bytes | None, where: str) -> dict[str, Any]:
    """The values of a file by name. Raises :class:`InputError`."""
    if content is None:
        return {}
    if len(content) > _MOST_BYTES:
        raise InputError("the settings of a warehouse must be a short file", where=where, value=f"over {_MOST_BYTES:,} bytes", allowed=f"{_MOST_BYTES:,} bytes")  # fmt: skip
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError("the settings of a warehouse must be TOML", where=where, value=str(error)[:200], allowed="such as: lease_secs = 120.0") from None  # fmt: skip
    groups = {name.partition(".")[0] for name in _defaults() if "." in name}
    found: dict[str, Any] = {}
    for key, value in document.items():
        if key in groups and isinstance(value, dict):
            found |= {f"{key}.{name}": one for name, one in value.items()}
        elif key in groups:
            raise InputError(f"{key} must be a table", where=where, value=type(value).__name__, allowed=f"[{key}]")
        else:
            found[key] = value
    for name in found:
        if name not in _defaults():
            raise InputError("a setting must be one of those of a warehouse", where=where, value=name[:100],
                             allowed=nearest(name[:100], [*_defaults()]), next_step="headrace config show lists them all")  # fmt: skip
    return found


def _checked(name: str, value: Any, where: str) -> int | float | str:
    """A value of the type of its default. Raises :class:`InputError`, which does not show a text: it may hold a password."""
    kind = type(_defaults()[name])
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        shown = type(value).__name__ if isinstance(value, str | dict | list) else value
        raise InputError(f"{name} must be {_noun(kind)}", where=where, value=shown)
    checked: int | float | str = value
    return checked


def _parsed(name: str, text: str, where: str) -> int | float | str:
    kind = type(_defaults()[name])
    try:
        return _checked(name, kind(text), where)
    except ValueError:
        raise InputError(f"{name} must be {_noun(kind)}", where=where, value=text) from None


def _noun(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "text"}[kind]


def _config(home: str, values: Mapping[str, Any]) -> WarehouseConfig:
    own = {name: value for name, value in values.items() if "." not in name}
    defaults = {one.name: one.default for one in fields(WarehouseConfig) if is_dataclass(one.default)}
    for group, default in defaults.items():
        inner = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{group}.")}
        own[group] = replace(default, **inner)  # type: ignore[type-var]
    return WarehouseConfig(home, **own)


def given_settings(**values: Any) -> dict[str, tuple[Any, str]]:
    """Arguments of a function as given values; empty ones are not given."""
    return {name: (value, name) for name, value in values.items() if value != ""}
