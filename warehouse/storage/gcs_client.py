"""The client of Google Cloud Storage: opening it, its transient errors, and their translation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import requests
import urllib3
from google.api_core import exceptions as google_errors
from google.auth import exceptions as auth_errors
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

from transforms.errors import HeadraceError, StorageError
from warehouse.scheduling.backoff import Retry
from warehouse.storage.errors import credentials_error, missing_file, storage_error, unreachable
from warehouse.storage.locations import GcsSettings

_T = TypeVar("_T")
_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_CONNECTIONS = 64
_GOOGLES = "https://storage.googleapis.com"
_NO_PROJECT = "unnamed"


def open_client(settings: GcsSettings) -> Any:
    """A client for these settings. Raises :class:`StorageError` when no credentials are found."""
    # Always explicit: the client would otherwise read environment variables that pyarrow ignores.
    endpoint = f"{settings.scheme}://{settings.endpoint}" if settings.endpoint else _GOOGLES
    try:
        client = google_storage.Client(
            project=settings.project or (_NO_PROJECT if settings.anonymous else None),
            credentials=AnonymousCredentials() if settings.anonymous else None,
            client_options={"api_endpoint": endpoint},
        )
        adapter = requests.adapters.HTTPAdapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS)
        client._http.mount(f"{settings.scheme}://", adapter)
    except (auth_errors.GoogleAuthError, OSError) as error:
        raise credentials_error(str(error), endpoint, "open the object store") from error
    return client


def status_of(error: BaseException) -> int:
    """The HTTP status of an error, or 0."""
    if isinstance(error, google_errors.GoogleAPICallError):
        return int(error.code or 0)
    if isinstance(error, InvalidResponse):
        return int(error.response.status_code)
    return 0


def is_transient_error(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, auth_errors.GoogleAuthError):
        return isinstance(error, auth_errors.TransportError) or bool(getattr(error, "retryable", False))
    passing = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        urllib3.exceptions.ProtocolError,
        urllib3.exceptions.TimeoutError,
        ConnectionError,
        TimeoutError,
        DataCorruption,
    )
    return isinstance(error, passing) or status_of(error) in _PASSING_STATUS


class RetriesExhausted(Exception):
    """Every attempt failed with a transient error; ``__cause__`` is the last one."""

    def __init__(self, attempts: int, last: Exception) -> None:
        super().__init__(f"{attempts} attempts, the last one: {last}")


@dataclass(frozen=True, slots=True)
class RetryDecorator:
    """``retry`` as a decorator for the client; its calls raise :class:`RetriesExhausted` after the last attempt."""

    retry: Retry

    def __call__(self, call: Callable[[], _T]) -> Callable[[], _T]:
        """``call`` with its retries."""

        @functools.wraps(call)
        def repeat() -> _T:
            attempts = 0

            def attempt() -> _T:
                nonlocal attempts
                attempts += 1
                return call()

            try:
                return self.retry.call(attempt)
            except Exception as error:
                if self.retry.is_transient(error):
                    raise RetriesExhausted(attempts, error) from error
                raise

        return repeat


@contextlib.contextmanager
def translated_gcs_errors(path: str, verb: str) -> Iterator[None]:
    """Translate the client's errors to Headrace errors with the path.

    Raises :class:`~warehouse.errors.MissingFile` for 404, else :class:`StorageError`; 401 and 403 name the credentials.
    """
    try:
        yield
    except HeadraceError:
        raise
    except RetriesExhausted as error:
        raise unreachable(str(error), path, verb) from error
    except auth_errors.GoogleAuthError as error:
        raise credentials_error(str(error), path, verb) from error
    except (google_errors.GoogleAPICallError, InvalidResponse) as error:
        status = status_of(error)
        if status == 404:
            raise missing_file(path, verb) from error
        if status in (401, 403):
            raise credentials_error(str(error), path, verb) from error
        raise unreachable(str(error), path, verb) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, DataCorruption) as error:
        raise unreachable(str(error), path, verb) from error
    except OSError as error:  # of the temporary folder that buffers a large file
        raise storage_error(error, path, verb) from error


def no_bucket(bucket: str, path: str) -> StorageError:
    """The error for a bucket that does not exist."""
    return StorageError(
        "there is no such bucket", where=path, value=bucket, next_step="create it, or check the name in the location"
    )
