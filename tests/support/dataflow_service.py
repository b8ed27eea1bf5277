"""The part of Google's Dataflow service that its client uses, over HTTP: jobs are accepted, read and cancelled.

Google has no emulator of it. Beam's real client speaks to this one (``--dataflow_endpoint=http://localhost:...``, which
Beam allows), with a login that is good only here. Who runs a job is the test's business.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Job = dict[str, Any]
#: JOB_STATE_CANCELLED, as the client's protocol buffers number it.
_CANCELLED = 5


@dataclass
class DataflowService:
    """``jobs``: what was submitted, by id, with ``currentState`` as it is now. ``on_job`` is called with each new one.

    ``watched`` is set once a client has asked how its job goes. ``refusal``: status and text to answer all else with.
    """

    endpoint: str
    jobs: dict[str, Job] = field(default_factory=dict)
    watched: threading.Event = field(default_factory=threading.Event)
    on_job: Callable[[Job], None] = lambda job: None
    refusal: tuple[int, str] | None = None

    def answer(self, method: str, path: str, body: Job) -> Job:
        """One request's answer; every path but the token's is below ``.../jobs``."""
        if path == "/token":
            return {"access_token": "known only here", "expires_in": 3600, "token_type": "Bearer"}
        _, _, rest = path.partition("/jobs")
        name, _, below = rest.strip("/").partition("/")
        if method == "POST":
            return self._take(body)
        if method == "PUT":
            assert body["requestedState"] == _CANCELLED, body
            self.jobs[name]["currentState"] = "JOB_STATE_CANCELLED"
        if below:
            return {"jobMessages": self.jobs[name].get("messages", [])} if below == "messages" else {}
        if method == "GET":
            self.watched.set()
        return {key: value for key, value in self.jobs[name].items() if key != "messages"}

    def fail(self, job: Job, text: str) -> None:
        """End a job as Dataflow does when its steps raise."""
        message = {"id": "1", "time": "2026-01-01T00:00:00Z", "messageText": text}
        job["messages"] = [{**message, "messageImportance": "JOB_MESSAGE_ERROR"}]
        job["currentState"] = "JOB_STATE_FAILED"

    def _take(self, job: Job) -> Job:
        job = {**job, "id": f"job-{len(self.jobs) + 1}", "currentState": "JOB_STATE_RUNNING"}
        self.jobs[job["id"]] = job
        taken = dict(job)
        threading.Thread(target=self.on_job, args=(job,), daemon=True).start()
        return taken

    def write_login(self, path: Path) -> Path:
        """Application default credentials of somebody who is logged in; no request about them leaves this machine."""
        path.write_text(json.dumps({
            "type": "external_account_authorized_user", "audience": "nobody else", "client_id": "1", "client_secret": "1",
            "refresh_token": "1", "token_url": f"{self.endpoint}/token", "token_info_url": f"{self.endpoint}/token",
        }))  # fmt: skip
        return path


@contextmanager
def running() -> Iterator[DataflowService]:
    """The service, answering until the end."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            is_json = "json" in self.headers.get("Content-Type", "")
            status, answer = 200, {}
            if service.refusal and not self.path.startswith("/token"):
                status, text = service.refusal
                answer = {"error": {"code": status, "message": text}}
            else:
                answer = service.answer(self.command, self.path.partition("?")[0],
                                        json.loads(content) if content and is_json else {})  # fmt: skip
            encoded = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = do_PUT = _serve

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    service = DataflowService(f"http://localhost:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
