"""The implicit state of libraries: numpy's error handling, decimal's context, pandas' options."""

from __future__ import annotations

import decimal
import importlib
import locale
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

#: The names in a source that may use a state; without one the state has no effect.
_USES_DECIMAL = re.compile(r"decimal|Decimal")
_USES_LOCALE = re.compile(r"strftime|strptime|strxfrm|strcoll|format|:[^{}]*n}")
_USES_PRINTING = re.compile(r"str|repr|format|print|array2string|%|f'|f\"")
_LOCALES = ("LC_COLLATE", "LC_NUMERIC", "LC_MONETARY", "LC_TIME")
#: The options of pandas that change results, not only output.
_OPTIONS = ("compute", "future", "mode")
#: Modes of numpy's error handling that leave the values unchanged.
_QUIET = ("ignore", "warn", "print", "log")


def library_state(packages: Sequence[str] | Mapping[str, str], sources: str) -> list[tuple[str, str]]:
    """The name and the value of each state of the packages that a function reaches and may use."""
    lines: list[tuple[str, str]] = []
    if _USES_DECIMAL.search(sources):
        lines.append(("decimal.getcontext()", repr(_without_signals(decimal.getcontext()))))
    if _USES_LOCALE.search(sources):
        lines += [(f"locale.setlocale({name})", locale.setlocale(getattr(locale, name))) for name in _LOCALES]
    if "numpy" in packages:
        lines += [
            (f"numpy.geterr()[{name!r}]", "quiet" if how in _QUIET else str(how))
            for name, how in sorted(np.geterr().items())
        ]
        if _USES_PRINTING.search(sources):
            lines.append(("numpy.get_printoptions()", repr(sorted(np.get_printoptions().items()))))
    if "pandas" in packages:
        pandas: Any = importlib.import_module("pandas")
        lines += [(f"pandas.options.{name}", repr(value)) for name, value in _options(pandas.options.d, "")
                  if name.startswith(_OPTIONS)]  # fmt: skip
    return lines


def _without_signals(context: decimal.Context) -> list[object]:
    """A context without the signals of earlier computations."""
    traps = sorted(signal.__name__ for signal, trapped in context.traps.items() if trapped)
    return [context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps]


def _options(options: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in sorted(options.items()):
        if isinstance(value, dict):
            yield from _options(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
