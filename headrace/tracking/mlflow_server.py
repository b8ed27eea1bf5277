"""The few calls of MLflow's REST API that a run needs, by the standard library. Answers are checked as untrusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from headrace.tracking.points import Point
from transforms.errors import InputError, StorageError

_API: Final = "/api/2.0/mlflow/"
_TIMEOUT_SECS: Final = 20.0
_MOST_ANSWER_BYTES: Final = 1 << 24
#: Limits of the API.
_MOST_METRICS, _MOST_PARAMETERS, _LONGEST_PARAMETER = 1000, 100, 500
#: What the API calls an experiment that is there already, and one or a run that is absent.
_EXISTS, _ABSENT = "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"


class MlflowRefused(StorageError):
    """A server refused a call.

    Attributes:
        code: MLflow's code of the error.
    """

    def __init__(self, what: str, *, where: str, value: str, code: str) -> None:
        super().__init__(what, where=where, value=value, next_step="look at the log of the server")
        self.code = code


@dataclass(frozen=True, slots=True)
class MlflowServer:
    """A tracking server.

    Attributes:
        uri: ``http://host:port`` or ``https://…``. Raises :class:`InputError` for another one.
    """

    uri: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.uri)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username
            or parts.query
            or parts.fragment
        ):
            raise InputError("a tracking server must be named by its address", where="--mlflow", value=self.uri,
                             allowed="http://host:port or https://host, without a user, a password and parameters")  # fmt: skip

    def experiment(self, name: str) -> str:
        """The id of an experiment, which is made if it is absent."""
        try:
            return _text(self._post("experiments/create", {"name": name}), "experiment_id")
        except MlflowRefused as error:
            if error.code != _EXISTS:
                raise
        found = self._get("experiments/get-by-name", {"experiment_name": name})
        return _text(_object(found, "experiment"), "experiment_id")

    def create_run(self, experiment: str, name: str, at_secs: float, tags: Mapping[str, str]) -> str:
        """Create a run and return its id."""
        given = {"experiment_id": experiment, "run_name": name, "start_time": _millis(at_secs), "tags": _pairs(tags)}
        return _text(_object(_object(self._post("runs/create", given), "run"), "info"), "run_id")

    def newest_steps(self, run: str) -> dict[str, int] | None:
        """The newest step of each metric of a run; None for a run that is not there, or was deleted."""
        try:
            found = _object(self._get("runs/get", {"run_id": run}), "run")
        except MlflowRefused as error:
            if error.code == _ABSENT:
                return None
            raise
        if _object(found, "info").get("lifecycle_stage") == "deleted":
            return None
        metrics = _object(found, "data").get("metrics", [])
        return {_text(one, "key"): int(one.get("step", 0)) for one in metrics if isinstance(one, dict)}

    def log_parameters(self, run: str, parameters: Mapping[str, str]) -> None:
        """Set parameters, which never change; long values are cut."""
        named = {_name(name): value[:_LONGEST_PARAMETER] for name, value in parameters.items()}
        pairs = _pairs(named)
        for first in range(0, len(pairs), _MOST_PARAMETERS):
            self._post("runs/log-batch", {"run_id": run, "params": pairs[first : first + _MOST_PARAMETERS]})

    def log_points(self, run: str, points: Sequence[Point]) -> None:
        """Add points in order, as many whole ones a call as it may have."""
        batch: list[dict[str, Any]] = []
        for point in points:
            metrics = [
                {"key": _name(name), "value": value, "timestamp": _millis(point.at_secs), "step": point.step}
                for name, value in point.values.items()
            ]
            if batch and len(batch) + len(metrics) > _MOST_METRICS:
                self._post("runs/log-batch", {"run_id": run, "metrics": batch})
                batch = []
            batch += metrics
        if batch:
            self._post("runs/log-batch", {"run_id": run, "metrics": batch})

    def set_status(self, run: str, status: str, at_secs: float) -> None:
        """Set the status of a run, such as "RUNNING"."""
        ended = {} if status == "RUNNING" else {"end_time": _millis(at_secs)}
        self._post("runs/update", {"run_id": run, "status": status, **ended})

    def _post(self, call: str, body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        return self._answer(Request(self._url(call), data, {"Content-Type": "application/json"}, method="POST"))

    def _get(self, call: str, query: Mapping[str, str]) -> dict[str, Any]:
        return self._answer(Request(f"{self._url(call)}?{urlencode(query)}", method="GET"))

    def _url(self, call: str) -> str:
        return f"{self.uri.rstrip('/')}{_API}{call}"

    def _answer(self, request: Request) -> dict[str, Any]:
        try:
            with urlopen(request, timeout=_TIMEOUT_SECS) as answer:  # of a checked scheme
                return _document(answer.read(_MOST_ANSWER_BYTES + 1), self.uri)
        except HTTPError as error:
            with error:
                text = error.read(_MOST_ANSWER_BYTES)
            raise _refused(request.full_url, error.code, text) from error
        except (OSError, HTTPException) as error:
            raise StorageError("a tracking server must answer", where=self.uri, value=str(error),
                               next_step="start it: mlflow server, or leave --mlflow out") from error  # fmt: skip


def _refused(where: str, status: int, text: bytes) -> MlflowRefused:
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    code, message = (str(found.get(name, "")) if isinstance(found, dict) else "" for name in ("error_code", "message"))
    return MlflowRefused("a tracking server refused a call", where=where.partition("?")[0], value=f"{status} {code}: {message}"[:400], code=code)  # fmt: skip


def _document(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(data) if len(data) <= _MOST_ANSWER_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _unknown(where, data[:100].decode("utf-8", "replace"))
    return found


def _object(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    if not isinstance(value, dict):
        raise _unknown(name, value)
    return value


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise _unknown(name, value)
    return value


def _unknown(where: str, value: object) -> StorageError:
    return StorageError("the answer of a tracking server must be one of MLflow's", where=where, value=str(value)[:100],
                        next_step="give the address of an MLflow server")  # fmt: skip


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _name(text: str) -> str:
    """A name with the characters that MLflow allows."""
    return "".join(one if one.isascii() and (one.isalnum() or one in "_-. /") else "_" for one in text)[:250]


def _millis(secs: float) -> int:
    return int(secs * 1000)
