"""What a worker is at: the ids of its run and call for log lines, and spans for OpenTelemetry (extra `otel`).

Spans carry ids, labels, counts and amounts, never texts. While LQOPS_OTEL is off, nothing of OpenTelemetry is imported.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from agents.tls import trust_in_requests

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Attributes = dict[str, str | int | float]

current_run_id: ContextVar[str] = ContextVar("current_run_id", default="")
current_call_id: ContextVar[str] = ContextVar("current_call_id", default="")

OUTCOME: Final = "lqops.outcome"
FAILED: Final = "error.type"


def makes_spans() -> bool:
    """Return whether spans are on; without them nobody reads attributes."""
    return _tracer() is not None


@contextmanager
def working_on(name: str, *, run: str, call: str = "", attributes: Mapping[str, Any]) -> Iterator[Attributes]:
    """Mark the block as work on a run, or on one call of it: its log lines have the ids, and it is one span.

    The block adds what it knows at its end to the dictionary; `error.type` marks the span as failed.
    """
    tokens = current_run_id.set(run), current_call_id.set(call)
    found: Attributes = {}
    try:
        tracer = _tracer()
        if tracer is None:
            yield found
        else:
            with _span(tracer, name, {"gen_ai.conversation.id": run, **attributes}, found):
                yield found
    finally:
        current_run_id.reset(tokens[0])
        current_call_id.reset(tokens[1])


@contextmanager
def _span(tracer: "Tracer", name: str, attributes: Mapping[str, Any], found: Attributes) -> Iterator[None]:
    from opentelemetry.trace import StatusCode

    known = {key: value for key, value in attributes.items() if value not in {None, ""}}
    # An exception's text may quote content: its type alone is kept.
    with tracer.start_as_current_span(
        name, attributes=known, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except BaseException as error:
            found.setdefault(FAILED, type(error).__name__)
            raise
        finally:
            span.set_attributes(found)
            if FAILED in found:
                span.set_status(StatusCode.ERROR)


@cache
def _tracer() -> "Tracer | None":
    """Return the tracer of this process, made at its first use; None when spans are off.

    Where to send spans is read from the variables that OpenTelemetry defines, such as OTEL_EXPORTER_OTLP_ENDPOINT. A
    provider that somebody else has set is used as it is.
    """
    if not settings.LQOPS_OTEL:
        return None
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    trust_in_requests()
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        resource = Resource({SERVICE_NAME: "lqops"}).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("lqops")
