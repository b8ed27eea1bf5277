"""Packages that Beam imports where they are installed, and that a worker on one machine does not use.

They are pandas and the clients of Google's services and of Hadoop: with ``apache-beam[gcp]`` nearly half of Beam's import. It works
without them, and ``headrace work`` on ``DirectRunner`` imports it as if they were absent.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

#: The packages that Beam imports if they are installed, that ``DirectRunner`` does not need, and whose absence Beam does
#: not report on standard error.
_UNUSED = ("google.api_core", "google.auth", "google.cloud", "hdfs", "oauth2client", "pandas")


def require_beam() -> None:
    """Raise :class:`ModuleNotFoundError` if Beam is not installed; it is not imported."""
    is_refused = "apache_beam" in sys.modules and sys.modules["apache_beam"] is None
    if is_refused or ("apache_beam" not in sys.modules and importlib.util.find_spec("apache_beam") is None):
        raise ModuleNotFoundError("No module named 'apache_beam'", name="apache_beam")


def keep_beam_light() -> None:
    """From now on Beam's own modules find none of these packages; all other modules do.

    For a process that runs jobs on ``DirectRunner`` only. Without effect once Beam is imported.
    """
    if "apache_beam" not in sys.modules and not any(isinstance(one, _Unused) for one in sys.meta_path):
        sys.meta_path.insert(0, _Unused())


class _Unused(MetaPathFinder):
    """Refuses the packages to Beam."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse, or leave the search to the other finders."""
        if _is_unused(fullname) and _importer(sys._getframe(1)).partition(".")[0] == "apache_beam":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def _is_unused(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in _UNUSED)


def _importer(frame: FrameType | None) -> str:
    """The name of the module whose code imports."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))
