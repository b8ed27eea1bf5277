"""Sources of preemption notices for a job: a file, and the metadata of a cloud's machine; :mod:`trainer.job.launch.http_notice` has another one.

A source runs in a thread and calls ``on_notice`` with the seconds that are left. It never delays the job: a source that fails is
tried again, and one that is away is no notice.
"""

from __future__ import annotations

import logging
import math
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from transforms.errors import InputError

_LOG = logging.getLogger(__name__)
#: Called with the seconds until the machine ends.
OnNotice = Callable[[float], None]
MOST_GRACE_SECS = 86_400.0
_MOST_FILE_BYTES = 64
_METADATA_PATH = "/computeMetadata/v1/instance/preempted"
_FLAVOR = ("Metadata-Flavor", "Google")
#: The longest wait of the metadata server for a change, and for any answer.
_CHANGE_SECS = 60
_ANSWER_SECS = 75.0
_MOST_WAIT_SECS = 30.0
#: How long the end of a job waits for a source, such as for its port.
_END_SECS = 0.5


class NoticeSource(Protocol):
    """A source of notices."""

    def run(self, on_notice: OnNotice, ended: threading.Event) -> None:
        """Call ``on_notice`` at a notice, until ``ended``."""
        ...


@contextmanager
def watch_notices(sources: Sequence[NoticeSource], on_notice: OnNotice) -> Iterator[None]:
    """Run sources in threads, which do not delay the end of the process."""
    ended = threading.Event()

    def run(source: NoticeSource) -> None:
        try:
            source.run(on_notice, ended)
        except Exception:  # a defect of a source must not end the job
            _LOG.exception("a source of preemption notices failed")

    threads = [threading.Thread(target=run, args=(one,), name=type(one).__name__, daemon=True) for one in sources]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(_END_SECS)


class FileNotice:
    """A notice when a file appears, or is there already. It may hold the number of seconds that are left.

    Args:
        path: of the file.
        grace_secs: without a number in it.
        look_secs: between looks.
    """

    def __init__(self, path: Path, *, grace_secs: float = 30.0, look_secs: float = 0.5) -> None:
        self._path, self._grace_secs, self._look_secs = path, grace_secs, look_secs

    def run(self, on_notice: OnNotice, ended: threading.Event) -> None:
        """Look for the file until it is there."""
        while not self._path.exists():
            if ended.wait(self._look_secs):
                return
        on_notice(self._left_secs())

    def _left_secs(self) -> float:
        try:
            with open(self._path, "rb") as file:
                return _seconds(float(file.read(_MOST_FILE_BYTES)), self._grace_secs)
        except (OSError, ValueError):
            return self._grace_secs


def _seconds(found: float, otherwise: float) -> float:
    return found if math.isfinite(found) and 0 <= found <= MOST_GRACE_SECS else otherwise


def _is_base_url(text: str) -> bool:
    try:
        found = urlsplit(text)
        return found.port != 0 and found.scheme in ("http", "https") and bool(found.hostname) and not (found.query or found.fragment)  # fmt: skip
    except ValueError:
        return False


class MetadataNotice:
    """The notice of Google's cloud: the machine's metadata ``instance/preempted`` becomes ``TRUE``.

    A request waits at the server for a change. While the server does not answer, it is asked again with growing waits.

    Args:
        base_url: of the metadata server.
        grace_secs: that a machine has after it.
        least_secs: between two requests.
    """

    def __init__(self, base_url: str, *, grace_secs: float = 30.0, least_secs: float = 1.0) -> None:
        if not _is_base_url(base_url):
            raise InputError("a metadata server must be named by its URL", value=base_url, allowed="http://host:port")
        self._url = base_url.rstrip("/") + _METADATA_PATH
        self._grace_secs, self._least_secs = grace_secs, least_secs
        # The server is on the machine: never by a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def run(self, on_notice: OnNotice, ended: threading.Event) -> None:
        """Ask until the machine is preempted."""
        etag, wait_secs = "", self._least_secs
        while not ended.is_set():
            try:
                is_preempted, etag = self._ask(etag)
                wait_secs = self._least_secs
            except (OSError, HTTPException, ValueError) as error:
                _LOG.debug("the metadata server did not answer: %s", error)
                is_preempted, etag, wait_secs = False, "", min(2 * wait_secs, _MOST_WAIT_SECS)
            if is_preempted:
                on_notice(self._grace_secs)
                return
            ended.wait(wait_secs)

    def _ask(self, etag: str) -> tuple[bool, str]:
        """Whether the machine is preempted, and the version of the answer; with a version, after a change of it."""
        query = f"?wait_for_change=true&timeout_sec={_CHANGE_SECS}&last_etag={quote(etag, safe='')}" if etag else ""
        request = urllib.request.Request(self._url + query, headers=dict([_FLAVOR]))
        with self._opener.open(request, timeout=_ANSWER_SECS) as response:
            if response.headers.get(_FLAVOR[0]) != _FLAVOR[1]:
                raise ValueError("another server answered")
            return response.read(16).strip().upper() == b"TRUE", response.headers.get("ETag") or ""
