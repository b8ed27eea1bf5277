"""Compare a bundle, rebuilt in a clean process, with the function that it was written from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from transforms.functions.bundle import Bundle
from transforms.functions.clean_process import CleanProcess, ProcessEnded
from transforms.functions.description import INCOMPARABLE, Line, describe
from transforms.functions.errors import Unfingerprintable
from transforms.functions.rebuild import parsed

_SHOWN_CHARACTERS = 200
_MEND = "write the value in the source, or pass it as a parameter"
_PROCESS = CleanProcess(seed=0, idle_secs=60.0)


def check_rebuilt(bundle: Bundle, name: str) -> None:
    """Raise :class:`Unfingerprintable` for the first attribute that a clean process rebuilds otherwise."""
    here = _lines_here(bundle, name)
    answer = _answer(bundle.text, name)
    if "error" in answer:
        raise Unfingerprintable(
            f"it cannot be rebuilt from its source: {answer['error']}", function=name, next_step=_MEND
        )
    there: list[Line] = [(path, text) for path, text in answer["lines"]]
    for number, (path, text) in enumerate(here):
        if text.startswith(INCOMPARABLE):
            raise _refusal(f"{path} must be a plain value or a function, got {text}", name, path)
        if number >= len(there) or there[number] != (path, text):
            raise _other((path, text), there[number] if number < len(there) else None, dict(here), dict(there), name)
    if len(there) > len(here):
        path, text = there[len(here)]
        raise _refusal(f"{path} must be what its source gives, {_short(text)}, got nothing", name, path)


def _lines_here(bundle: Bundle, name: str) -> list[Line]:
    try:
        return describe(parsed(bundle.text), bundle.root, bundle.objects, bundle.namespaces, is_rebuilt=False)
    except RecursionError:
        raise Unfingerprintable("what it reaches is nested too deep", function=name, next_step=_MEND) from None


def _other(
    line: Line, there: Line | None, all_here: Mapping[str, str], all_there: Mapping[str, str], name: str
) -> Unfingerprintable:
    """The refusal for the first line that differs from the clean process's line at its place."""
    path, text = line
    if there is not None and there[0] != path and there[0] not in all_here:
        return _refusal(f"{there[0]} must be what its source gives, {_short(there[1])}, got nothing", name, there[0])
    if there is None or (there[0] != path and path not in all_there):
        return _refusal(f"{path} must be absent, as its source has it, got {_short(text)}", name, path)
    expected = there[1] if there[0] == path else all_there[path]
    return _refusal(f"{path} must be what its source gives, {_short(expected)}, got {_short(text)}", name, path)


def _refusal(why: str, name: str, path: str) -> Unfingerprintable:
    return Unfingerprintable(why, function=name, attribute=path, next_step=_MEND)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


@lru_cache(maxsize=1024)
def _answer(text: str, name: str) -> dict[str, Any]:
    """The clean process's description of a bundle, with one retry if the process had ended."""
    for attempt in range(2):
        try:
            return dict(_PROCESS.ask({"do": "describe", "bundle": text})[0])
        except ProcessEnded as error:
            if attempt:
                raise Unfingerprintable(f"it cannot be rebuilt in another process: {error}", function=name,
                                        next_step="repair what its classes do when they are defined") from error  # fmt: skip
    raise AssertionError("the second attempt returns or raises")
