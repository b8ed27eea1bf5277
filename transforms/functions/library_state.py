"""State of libraries that calls depend on without naming it: numpy's handling of errors, decimal's context, pandas' options."""

from __future__ import annotations

import decimal
import importlib
import locale
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

_LOCALES = ("LC_COLLATE", "LC_NUMERIC", "LC_MONETARY", "LC_TIME")
#: The options of pandas that change what it computes, not what it shows.
_OPTIONS = ("compute", "future", "mode")


def library_state(packages: Iterable[str]) -> list[tuple[str, str]]:
    """What each state is called, and what it is, of the packages that a function reaches."""
    reached = set(packages)
    lines = list(_of_python())
    if "numpy" in reached:
        lines += [(f"numpy.geterr()[{name!r}]", str(how)) for name, how in sorted(np.geterr().items())]
        lines.append(("numpy.get_printoptions()", repr(sorted(np.get_printoptions().items()))))
    if "pandas" in reached:
        pandas: Any = importlib.import_module("pandas")
        lines += [(f"pandas.options.{name}", repr(value)) for name, value in _options(pandas.options.d, "")
                  if name.startswith(_OPTIONS)]  # fmt: skip
    return lines


def _of_python() -> Iterator[tuple[str, str]]:
    yield "decimal.getcontext()", repr(_without_signals(decimal.getcontext()))
    for category in _LOCALES:
        yield f"locale.setlocale({category})", locale.setlocale(getattr(locale, category))
    yield "sys.get_int_max_str_digits()", str(sys.get_int_max_str_digits())


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
