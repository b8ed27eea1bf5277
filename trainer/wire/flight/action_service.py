"""A Flight service of actions with a limit of size: a longer message, and one without the token, is refused before memory is taken for it.

Requests, results and errors are frames with checksums (:mod:`trainer.wire.flight.sealed_actions`).

Arrow's own server has no such limit, and receives the message of a unary call before any code can check its token. This one answers
Flight's method ``DoAction`` with grpcio; clients are those of Arrow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeAlias

import grpc
from pyarrow import ArrowException, flight

from trainer.errors import ConfigError
from trainer.wire.flight.addresses import Address, check_token, is_token
from trainer.wire.flight.error_documents import to_bytes
from trainer.wire.flight.sealed_actions import open_request, seal_error, seal_results
from trainer.wire.frames import damaged
from transforms.errors import DataError, HeadraceError

_LOG = logging.getLogger(__name__)
_SERVICE, _METHOD = "arrow.flight.protocol.FlightService", "DoAction"
#: Beside the content of a message: the name of the action, and the frame.
FRAME_BYTES = 4096
#: A result is a message whose first member has a length.
_RESULT_TAG = b"\x0a"
#: Each call takes a thread while it waits for its answer.
_MOST_CALLS = 4096
#: Where Arrow's clients find the bytes of an error: the trailers that Arrow's server sends for a FlightServerError.
_DETAILS = "grpc-status-details-bin"
_TRAILERS = (("x-arrow-status", "5"), ("x-arrow-status-detail-bin", b"Failed"))

Bytes: TypeAlias = bytes | memoryview
#: Gives the results of an action by its name and content; they are sent one by one.
Answer = Callable[[str, bytes], Iterator[Bytes]]


class ActionService:
    """A Flight server of actions that answers from its construction until :meth:`close`.

    Args:
        address: where to listen; port 0 lets the system choose one.
        answer: gives the results of an action by its name and content; its errors go to the caller as documents.
        token: that a call must have; empty for none.
        most_bytes: the longest content of an action.

    Raises :class:`ConfigError` if the port is in use, or for an address off loopback without a token.
    """

    def __init__(self, address: Address, answer: Answer, *, token: str = "", most_bytes: int) -> None:
        check_token(address, token)
        self._answer, self._most_bytes = answer, most_bytes
        limits = [("grpc.max_receive_message_length", most_bytes + FRAME_BYTES), ("grpc.max_metadata_size", 16 << 10),
                  ("grpc.so_reuseport", 0)]  # fmt: skip
        threads = ThreadPoolExecutor(max_workers=_MOST_CALLS, thread_name_prefix="actions")
        checks = (_RequireToken(token),) if token else ()
        self._server = grpc.server(threads, options=limits, interceptors=checks, maximum_concurrent_rpcs=_MOST_CALLS)
        handler = grpc.unary_stream_rpc_method_handler(self._do_action)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),))
        try:
            port = self._server.add_insecure_port(str(address))
        except RuntimeError:
            port = 0
        if not port:
            raise ConfigError("the address of a service must be free and of this machine", where=str(address),
                              value="it cannot be bound", next_step="choose another port, or 0 for any")  # fmt: skip
        self.address = Address(address.host, port)
        self._server.start()

    def _do_action(self, request: bytes, context: Any) -> Iterator[bytes]:
        try:
            name, content, session = open_request(_parse(request))
            if len(content) > self._most_bytes:
                raise DataError("a message must be short", where=name[:80], value=len(content),
                                allowed=f"at most {self._most_bytes:,} bytes")  # fmt: skip
            for parts in seal_results(self._answer(name, content), session):
                yield b"".join((_RESULT_TAG, _varint(sum(map(len, parts))), *parts))  # one copy
            return
        except HeadraceError as error:
            failed: Exception = error
            text = error.what
        except Exception as error:
            _LOG.exception("%s failed", type(self).__name__)
            failed, text = error, type(error).__name__
        self._fail(context, failed, text)

    def _fail(self, context: Any, error: Exception, text: str) -> None:
        text = text[:1000].encode(errors="backslashreplace").decode()  # an error may name what a client has sent
        message = ("x-arrow-status-message-bin", text.encode())
        context.set_trailing_metadata((*_TRAILERS, message, (_DETAILS, seal_error(to_bytes(error)))))
        context.abort(grpc.StatusCode.UNKNOWN, text)

    def close(self, grace_secs: float = 1.0) -> None:
        """Stop answering; calls that are being answered get ``grace_secs``."""
        self._server.stop(grace_secs).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parse(request: bytes) -> bytes:
    """The frame of an action. Raises :class:`DamagedFrame`."""
    try:
        return flight.Action.deserialize(request).body.to_pybytes()  # type: ignore[no-any-return]
    except (ArrowException, ValueError, OSError) as error:
        raise damaged("message is no action of Arrow Flight", str(error).splitlines()[0][:80]) from None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _is_of_a_call(record: logging.LogRecord) -> bool:
    """Whether a line of gRPC's log is more than a header of a client that is not UTF-8, for which it writes a trace."""
    return not str(record.msg).startswith("Invalid encoding")


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_a_call)


class _RequireToken(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses a call without the token before its message is read."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}"

        def refuse(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token must be that of the job")
            yield b""

        # Of a method that receives a stream: no message is awaited.
        self._refusal = grpc.stream_stream_rpc_method_handler(refuse)

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """The handler of a call, or the refusal."""
        given = dict(details.invocation_metadata).get("authorization", "")
        if is_token(given, self._expected):
            return continuation(details)
        _LOG.warning("a call was refused: the token must be that of the job")
        return self._refusal
