"""The lines of a process on standard error: what its command says, and its log; as text or one JSON object a line.

Screens are on standard output and do not pass here.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from headrace.terminal.printable import json_printable, printable
from transforms.errors import InputError
from transforms.log_fields import current_fields, set_process_fields

TEXT, JSON = "text", "json"
#: Where children of a command find its options, which are theirs too.
FORMAT_VARIABLE, VERBOSITY_VARIABLE = "HEADRACE_LOG_FORMAT", "HEADRACE_VERBOSITY"
_MOST_VERBOSITY = 2
_TEXT_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How a process writes its lines. Raises :class:`InputError` for an unknown format.

    Attributes:
        format: "text" or "json".
        verbosity: 0 as usual; above, more of the log; below, warnings and errors alone.
    """

    format: str = TEXT
    verbosity: int = 0

    def __post_init__(self) -> None:
        if self.format not in (TEXT, JSON):
            raise InputError("--log-format must be a known one", where=f"--log-format or ${FORMAT_VARIABLE}", value=self.format[:100],
                             allowed=f"{TEXT}, {JSON}")  # fmt: skip

    @property
    def is_json(self) -> bool:
        """Whether each line is a JSON object."""
        return self.format == JSON

    @property
    def is_quiet(self) -> bool:
        """Whether only warnings and errors are written."""
        return self.verbosity < 0

    def level(self, usual: int) -> int:
        """The level of the log of a process whose ``usual`` level is that of :mod:`logging`."""
        at = _LEVELS.index(usual) + max(-_MOST_VERBOSITY, min(self.verbosity, _MOST_VERBOSITY))
        return _LEVELS[max(0, min(at, len(_LEVELS) - 1))]

    def variables(self) -> dict[str, str]:
        """The environment of children."""
        return {FORMAT_VARIABLE: self.format, VERBOSITY_VARIABLE: str(self.verbosity)} if self != LogSettings() else {}


_settings = LogSettings()


def log_settings() -> LogSettings:
    """Those of this process."""
    return _settings


def use_log_settings(settings: LogSettings) -> None:
    """Write lines by these settings from now on. A command logs warnings, and what it says."""
    global _settings  # standard error is one of the process
    _settings = settings
    logging.getLogger().addFilter(_is_of_use)
    if settings != LogSettings():
        _begin_log(logging.INFO if settings.is_json else logging.WARNING)
    elif logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())


def _is_of_use(record: logging.LogRecord) -> bool:
    """Whether a line of the root's log says something: without the extra ``dataflow`` an import of Beam warns of a package that nothing here needs."""
    return not (isinstance(record.msg, str) and record.msg.startswith("apitools not found"))


def log_as_role(role: str, **fields: object) -> None:
    """Write the log of a process that has no screen, whose usual level is INFO; ``fields`` are on each line."""
    set_process_fields(role=role, **fields)
    _begin_log(logging.INFO)


def _begin_log(usual: int) -> None:
    handler = _StandardError()
    handler.setFormatter(JsonFormatter() if _settings.is_json else PrintableFormatter(_TEXT_LINE))
    logging.basicConfig(level=_settings.level(usual), handlers=[handler], force=True)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at the moment of a line."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Standard error."""
        return sys.stderr


class PrintableFormatter(logging.Formatter):
    """Formats log records with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text, escaped."""
        return printable(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects, one a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as :func:`json_line`, with a trace as "error"."""
        error = self.formatException(record.exc_info) if record.exc_info else ""
        at = datetime.fromtimestamp(record.created, UTC)
        return json_line(at, record.levelname.lower(), record.getMessage(), {"logger": record.name, "error": error})


def json_line(at: datetime, level: str, message: str, more: Mapping[str, str]) -> str:
    """A line: time (UTC), level, message, then the fields of the process and the block, then others that are not empty."""
    line = {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "message": message,
        **current_fields(),
        **{name: value for name, value in more.items() if value},
    }
    return json_printable(json.dumps(line, ensure_ascii=False))


def write_line(text: str, *, level: int = logging.INFO, code: str = "") -> None:
    """Write what a command says on standard error; in quiet settings only warnings and errors. ``code``: of an error, for JSON alone."""
    if _settings.is_quiet and level < logging.WARNING:
        return
    if _settings.is_json:
        text = json_line(datetime.now(UTC), logging.getLevelName(level).lower(), text, {"code": code})
    sys.stderr.write((text if _settings.is_json else printable(text)) + "\n")
