"""The trace of a process: it begins with the command, and goes on in the processes that the command starts.

Children find the collector and the span that they belong to in their environment.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from transforms.log_fields import current_fields

if TYPE_CHECKING:
    from headrace.tracing.otlp import SpanExporter
    from transforms.tracing.spans import Tracer

#: The collector, and the W3C name of the span around a process.
OTLP_VARIABLE, PARENT_VARIABLE = "HEADRACE_OTLP", "TRACEPARENT"
_open: tuple[Tracer, SpanExporter] | None = None


def begin_tracing(url: str, environment: MutableMapping[str, str]) -> None:
    """Send the spans of this process to a collector, as a part of the trace that its environment names. Raises :class:`InputError`.

    ``environment``: of this process, which its children inherit.
    """
    from headrace.tracing.otlp import SpanExporter, traces_url
    from transforms.tracing.spans import Place, Tracer, use_tracer

    global _open  # a process has one trace, as it has one log
    place, text = traces_url(url), environment.get(PARENT_VARIABLE, "")
    within = Place.parse(text) if text else None
    exporter = SpanExporter(place, _resource)
    tracer = Tracer(exporter.record, within=within)
    environment.update({OTLP_VARIABLE: url, PARENT_VARIABLE: str(tracer.own)})
    use_tracer(tracer)
    _open = tracer, exporter


def end_tracing() -> None:
    """End the span of this process, and send what is left."""
    global _open
    if _open is None:
        return
    from transforms.tracing.spans import use_tracer

    (tracer, exporter), _open = _open, None
    use_tracer(None)
    tracer.end(f"headrace {current_fields().get('role', 'command')}", current_fields())
    exporter.close()


def _resource() -> Mapping[str, str]:
    return {"service.name": "headrace", **{f"headrace.{name}": value for name, value in current_fields().items()}}
