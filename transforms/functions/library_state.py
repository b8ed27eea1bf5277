"""State of libraries that calls depend on without naming it: numpy's handling of errors, decimal's context, pandas' options."""

from __future__ import annotations

import decimal
import importlib
import locale
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

#: What in a source may use a state; where nothing does, the state may be anything.
_USES_DECIMAL = re.compile(r"decimal|Decimal")
_USES_LOCALE = re.compile(r"strftime|strptime|strxfrm|strcoll|format|:[^{}]*n}")
_USES_PRINTING = re.compile(r"str|repr|format|print|array2string|%|f'|f\"")
_LOCALES = ("LC_COLLATE", "LC_NUMERIC", "LC_MONETARY", "LC_TIME")
#: The options of pandas that change what it computes, not what it shows.
_OPTIONS = ("compute", "future", "mode")
#: Ways of numpy to take an error that leave the values as they are.
_QUIET = ("ignore", "warn", "print", "log")


def library_state(packages: Sequence[str] | Mapping[str, str], sources: str) -> list[tuple[str, str]]:
    """What each state is called, and what it is: of the packages that a function reaches, where its sources may use it."""
    lines: list[tuple[str, str]] = []
    if _USES_DECIMAL.search(sources):
        lines.append(("decimal.getcontext()", repr(_without_signals(decimal.getcontext()))))
    if _USES_LOCALE.search(sources):
        lines += [(f"locale.setlocale({name})", locale.setlocale(getattr(locale, name))) for name in _LOCALES]
    if "numpy" in packages:
        lines += [(f"numpy.geterr()[{name!r}]", "quiet" if how in _QUIET else str(how))
                  for name, how in sorted(np.geterr().items())]  # fmt: skip
        if _USES_PRINTING.search(sources):
            lines.append(("numpy.get_printoptions()", repr(sorted(np.get_printoptions().items()))))
    if "pandas" in packages:
        pandas: Any = importlib.import_module("pandas")
        lines += [(f"pandas.options.{name}", repr(value)) for name, value in _options(pandas.options.d, "")
                  if name.startswith(_OPTIONS)]  # fmt: skip
    return lines


def _without_signals(context: decimal.Context) -> list[object]:
    """A context but for the signals that earlier computations have left in it."""
    traps = sorted(signal.__name__ for signal, trapped in context.traps.items() if trapped)
    return [context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps]


def _options(options: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in sorted(options.items()):
        if isinstance(value, dict):
            yield from _options(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
