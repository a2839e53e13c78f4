"""GET /metrics for Prometheus (extra `metrics`): figures of the whole installation, read from its rows when asked.

Any web process can be asked: nothing is counted in the memory of one process. Counters come from tables that only
grow. Each process keeps the totals of their older rows, so that an answer reads a bounded number of rows; it is kept
for a few seconds. Labels are models and words of closed lists, never names or texts.
"""

import hmac
import importlib.util
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agents.conf import clock
from agents.enums import ApprovalStatus, BudgetScope, Outcome, QuestionStatus, Status
from agents.models import AgentSession, Approval, Budget, InferenceLog, Question, Sensor, UnreadInput
from agents.queue import Queue, queue_length
from agents.retention.totals import FIGURES, archived_totals
from agents.sessions.control_room import Health, health
from audit.kinds import TERMINAL_KINDS

if TYPE_CHECKING:
    from prometheus_client import Metric

KEPT_SECONDS: Final = 5.0
RECOUNTED: Final = 10_000  # newest ids that are counted again: a row may be committed after rows with higher ids
LATENCY_BUCKETS: Final = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
# The events that end a run, and its status then
ENDS: Final = {
    kind: {"autonomous_session.completed": "completed", "autonomous_session.failed": "failed"}.get(kind, "halted")
    for kind in TERMINAL_KINDS
}


# --- The page ---


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the figures, to whoever has the token. Without a token in the settings there is no such page."""
    token = str(settings.LQOPS_METRICS_TOKEN)
    if not token:
        raise Http404
    given = request.headers.get("Authorization", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        return HttpResponse(
            "Send the token of LQOPS_METRICS_TOKEN as a bearer token.\n",
            status=401,
            content_type="text/plain; charset=utf-8",
            headers={"WWW-Authenticate": "Bearer"},
        )
    if importlib.util.find_spec("prometheus_client") is None:
        text = "The extra `metrics` is not installed: run pip install -e '.[metrics]' in the folder of lqops.\n"
        return HttpResponse(text, status=501, content_type="text/plain; charset=utf-8")
    from prometheus_client import CONTENT_TYPE_LATEST

    return HttpResponse(_page.text(), content_type=CONTENT_TYPE_LATEST)


class _Page:
    """The text of the page, made by one thread at a time and kept for some seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = b""
        self._made_at = float("-inf")
        self._installation = InstallationCollector()

    def text(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        with self._lock:
            if time.monotonic() - self._made_at >= KEPT_SECONDS:
                registry = CollectorRegistry(auto_describe=False)
                registry.register(self._installation)
                self._text = generate_latest(registry)
                self._made_at = time.monotonic()
            return self._text


# --- Totals of tables that only grow ---


class Totals:
    """Sums over the rows of a table by some of its columns, of which only the newest are read again.

    What was archived before the first read is added; rows that are archived later have been counted by then.
    """

    def __init__(
        self, rows: Callable[[], QuerySet[Any]], columns: Iterable[str], archived: str = "", /, **sums: Any
    ) -> None:
        self._rows = rows
        self._archived = archived
        self._columns = tuple(columns)
        self._sums = sums
        self._upto = 0
        self._older: dict[tuple[str, ...], list[float]] = {}

    def read(self) -> dict[tuple[str, ...], dict[str, float]]:
        """Return the sums by the values of the columns."""
        newest = QuerySet(self._rows().model).aggregate(newest=Max("id"))["newest"] or 0
        if newest < self._upto:  # another database was restored
            self._upto, self._older = 0, {}
        if not self._upto and self._archived:
            self._older = {key: [number] for key, number in archived_totals(self._archived).items()}
        if newest - RECOUNTED > self._upto:
            upto = newest - RECOUNTED
            _add(self._older, self._summed(id__gt=self._upto, id__lte=upto))
            self._upto = upto
        found = {key: list(values) for key, values in self._older.items()}
        _add(found, self._summed(id__gt=self._upto))
        return {key: dict(zip(self._sums, values, strict=True)) for key, values in found.items()}

    def _summed(self, **ids: int) -> Iterator[tuple[tuple[str, ...], list[float]]]:
        rows = self._rows().filter(**ids).order_by().values(*self._columns).annotate(**self._sums)
        for row in rows:
            yield tuple(str(row[name]) for name in self._columns), [float(row[name] or 0) for name in self._sums]


def _add(into: dict[tuple[str, ...], list[float]], found: Iterable[tuple[tuple[str, ...], list[float]]]) -> None:
    for key, values in found:
        before = into.get(key, [0.0] * len(values))
        into[key] = [old + new for old, new in zip(before, values, strict=True)]


# --- The collector ---


@dataclass(frozen=True)
class _Gauge:
    """A figure of Health."""

    name: str
    text: str
    value: Callable[[Health, datetime], float | None]


def _age(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else max((now - at).total_seconds(), 0.0)


GAUGES: Final = (
    _Gauge("lqops_halted", "1 while all work is halted.", lambda found, _: found.halted),
    _Gauge("lqops_problems", "Red lines on the page Health.", lambda found, _: len(found.red)),
    _Gauge("lqops_queue_sessions", "Runs that wait for a worker.", lambda found, _: found.queued),
    _Gauge(
        "lqops_queue_oldest_seconds",
        "How long the oldest run has waited for a worker; 0 when none waits.",
        lambda found, now: _age(found.oldest_queued_at, now) or 0.0,
    ),
    _Gauge("lqops_leases_lost", "Running runs whose worker did not renew its lease.", lambda found, _: found.lost),
    _Gauge(
        "lqops_ticker_age_seconds",
        "Time since the ticker last did its duties; absent if it never did.",
        lambda found, now: _age(found.ticker_done_at, now),
    ),
    _Gauge(
        "lqops_checkpoint_age_seconds",
        "Time since the last checkpoint of the audit log; absent if there is none.",
        lambda found, now: _age(found.checkpoint_at, now),
    ),
    _Gauge(
        "lqops_outbox_oldest_seconds",
        "How long the oldest e-mail copy has been due; 0 when none is.",
        lambda found, now: _age(found.outbox_oldest_at, now) or 0.0,
    ),
)


class InstallationCollector:
    """Reads all figures with a fixed number of statements."""

    def __init__(self) -> None:
        self._runs = Totals(*FIGURES["runs"], "runs", number=Count("id"))
        self._calls = Totals(*FIGURES["calls"], "calls", number=Count("id"))
        self._requests = Totals(
            InferenceLog.objects.all,
            ["model", "outcome"],
            number=Count("id"),
            input_tokens=Sum("input_tokens"),
            output_tokens=Sum("output_tokens"),
            cost=Sum("cost_estimate"),
            milliseconds=Sum("latency_ms"),
            **{f"upto_{place}": _within(seconds) for place, seconds in enumerate(LATENCY_BUCKETS)},
        )

    def collect(self) -> Iterator["Metric"]:
        now = clock()
        found = health(now)
        yield from _gauges(found, now)
        yield from _people(now)
        yield from self._work()
        yield from self._models()
        yield from _spend()

    def _work(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily

        runs = CounterMetricFamily("lqops_runs", "Runs that have ended.", labels=["status", "reason", "result"])
        for (kind, reason, result), sums in sorted(self._runs.read().items()):
            runs.add_metric([ENDS[kind], reason, result], sums["number"])
        calls = CounterMetricFamily("lqops_calls", "Calls that were settled or refused.", labels=["intent", "outcome"])
        for (intent, outcome), sums in sorted(self._calls.read().items()):
            if outcome != Outcome.STARTED:
                calls.add_metric([intent, outcome], sums["number"])
        yield from (runs, calls)

    def _models(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily("lqops_model_requests", "Requests to models.", labels=["model", "outcome"])
        tokens = CounterMetricFamily("lqops_model_tokens", "Tokens as reported.", labels=["model", "direction"])
        cost = CounterMetricFamily("lqops_model_cost_usd", "Cost of the reported tokens.", labels=["model"])
        latency = HistogramMetricFamily(
            "lqops_model_latency_seconds", "Time from a request to the end of its reply.", labels=["model"]
        )
        by_model: dict[str, dict[str, float]] = {}
        for (model, outcome), sums in sorted(self._requests.read().items()):
            requests.add_metric([model, outcome], sums["number"])
            whole = by_model.setdefault(model, dict.fromkeys(sums, 0.0))
            for name, value in sums.items():
                whole[name] += value
        for model, sums in by_model.items():
            tokens.add_metric([model, "input"], sums["input_tokens"])
            tokens.add_metric([model, "output"], sums["output_tokens"])
            cost.add_metric([model], sums["cost"])
            buckets = [(str(float(le)), sums[f"upto_{place}"]) for place, le in enumerate(LATENCY_BUCKETS)]
            latency.add_metric([model], [*buckets, ("+Inf", sums["number"])], sums["milliseconds"] / 1_000)
        yield from (requests, tokens, cost, latency)


def _within(seconds: float) -> Count:
    return Count("id", filter=Q(latency_ms__lte=seconds * 1_000))


def _gauges(found: Health, now: datetime) -> Iterator["Metric"]:
    from prometheus_client.core import GaugeMetricFamily

    for gauge in GAUGES:
        if (value := gauge.value(found, now)) is not None:
            yield GaugeMetricFamily(gauge.name, gauge.text, value=float(value))
    yield _labelled(
        "lqops_model_away", "1 for a model that does not answer.", "model", _ones(m.model for m in found.away)
    )
    yield _labelled("lqops_model_suspended", "1 for a suspended model.", "model", _ones(found.suspended))
    copies = {"pending": found.outbox_pending, "failed": found.outbox_failed}
    yield _labelled("lqops_outbox_messages", "E-mail copies that were not sent.", "status", copies)
    # Absent while Redis does not answer: then `lqops_problems` counts it.
    tasks = {} if found.broker_away else {queue.value: queue_length(now, queue).count for queue in Queue}
    yield _labelled("lqops_queue_tasks", "Tasks that no worker has taken.", "queue", tasks)


def _people(now: datetime) -> Iterator["Metric"]:
    """What waits, and for whom."""
    waiting = AgentSession.objects.filter(status=Status.WAITING).order_by().values_list("waiting_on")
    active = {
        status: AgentSession.objects.filter(status=status).count() for status in (Status.RUNNING, Status.SLEEPING)
    }
    yield _labelled("lqops_sessions", "Runs that are running or asleep.", "status", active)
    counts = dict(waiting.annotate(number=Count("id")))
    yield _labelled("lqops_sessions_waiting", "Runs that wait for somebody or something.", "waiting_on", counts)
    pending = {
        "approval": Approval.objects.filter(status=ApprovalStatus.PENDING).aggregate(
            n=Count("id"), at=Min("created_at")
        ),
        "question": Question.objects.filter(status=QuestionStatus.PENDING).aggregate(n=Count("id"), at=Min("asked_at")),
    }
    number = {kind: found["n"] for kind, found in pending.items()}
    oldest = {kind: _age(found["at"], now) or 0.0 for kind, found in pending.items()}
    yield _labelled("lqops_decisions_waiting", "Approvals and questions without an answer.", "kind", number)
    yield _labelled("lqops_decisions_oldest_seconds", "How long the oldest of them has waited.", "kind", oldest)
    unread = UnreadInput.objects.order_by().values_list("state").annotate(number=Count("id"))
    yield _labelled("lqops_unread_inputs", "Inputs of triggers that no run has read yet.", "state", dict(unread))
    sensors = Sensor.objects.filter(wanted=True).order_by().values_list("state").annotate(number=Count("id"))
    yield _labelled("lqops_sensors", "Sensors of running loops.", "state", dict(sensors))


def _spend() -> Iterator["Metric"]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    days = Budget.objects.daily().filter(scope=BudgetScope.INSTALLATION)
    spent = days.aggregate(charged=Sum("charged_usd"), actual=Sum("actual_usd"))
    family = CounterMetricFamily("lqops_spend_usd", "Cost of all calls, in both ledgers.", labels=["ledger"])
    family.add_metric(["approved"], float(spent["charged"] or 0))
    family.add_metric(["reported"], float(spent["actual"] or 0))
    yield family
    today = days.filter(day=clock().date()).first()
    values = {"approved": today.charged_usd, "reported": today.actual_usd, "cap": today.cap_usd} if today else {}
    gauge = GaugeMetricFamily("lqops_spend_today_usd", "Cost and cap of the current UTC day.", labels=["figure"])
    for name, value in values.items():
        gauge.add_metric([name], float(value or 0))
    yield gauge


def _ones(names: Iterable[str]) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)


def _labelled(name: str, text: str, label: str, values: dict[Any, Any]) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([str(key)], float(value))
    return family


_page = _Page()
