"""Models whose server does not answer: who waits for them, when they are tried again, and who is told.

An outage is noted by the call that found it and ends with the first call that is answered. Between the two the server
is asked by one call at a time, after pauses that grow; every other run waits without asking. Meanwhile the ticker asks
the server every few seconds for something free: when a server that was gone answers that, a call may try at once.
People are told once that a model is away, when it has failed a second try, and once that it is back; the owner of a
loop that waits for it, once for each outage and agent.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import F, Q, QuerySet

from agents.conf import model_wait_limit
from agents.definitions.catalogue import fallbacks_of
from agents.enums import Mode, NoticeKind, Outcome, Status, WaitingOn
from agents.models import AgentSession, InferenceLog, ModelOutage, SuspendedModel, ToolCall
from agents.people.notifications import notification_create, notify_operators
from agents.policy.model_catalogue import CALL_SECONDS
from agents.policy.schedule import backoff
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 3_600.0
LONGEST_PAUSE_GONE: Final = 300.0  # of a server that could not be reached: such a try costs nothing
PING_EVERY: Final = timedelta(seconds=20)
PINGED_AT_ONCE: Final = 20  # models
WOKEN_PER_SECOND: Final = 20  # runs, when a model is back
_WAITED_LONGEST: Final = ("metadata__model_wait__since", "pk")
BUSY_PAUSE: Final = timedelta(seconds=15)
BUSY_FOR: Final = timedelta(seconds=CALL_SECONDS)  # a call that was sent earlier was left behind by a worker
TOLD_AT: Final = 2  # failed tries: a restart or a rate limit of a moment is no news
PROBE: Final = timedelta(minutes=5)  # no second call tries the server meanwhile, unless the first has failed
WAKE_AGAIN: Final = timedelta(seconds=30)  # another run is woken if the first has not asked by then
TOLD: Final = "told"  # in that: the owner of the loop was told
LOOKED_AGAIN: Final = timedelta(hours=1)
BUSY: Final = "busy"  # in place of an outage: the server is at work for other runs
WAIT: Final = "model_wait"  # in a session's metadata: the model it waits for, and since when
ERROR_CHARS: Final = 500
MODELS_PATH: Final = "/admin/models/"


def is_away(model: str) -> bool:
    return ModelOutage.objects.filter(model=model).exists() or SuspendedModel.objects.filter(model=model).exists()


def is_busy(model: str, *, since: datetime) -> bool:
    """Whether a server that kept a call waiting since then was at work for other runs of ours, which is no outage.

    It answered one meanwhile, or one is out that was sent before: a server that hangs answers none, and the call that
    was sent first finds that.
    """
    if InferenceLog.objects.filter(model=model, outcome=Outcome.SUCCESS, created_at__gt=since).exists():
        return True
    sent = ToolCall.objects.open().filter(model=model, started_at__lt=since, started_at__gt=since - BUSY_FOR)
    return sent.exists()


@transaction.atomic
def outage_note(
    model: str, error: str, *, pause: float | None, is_try: bool, now: datetime, is_gone: bool = False
) -> datetime:
    """Note that the model's server failed a call, and return when it is tried again.

    `pause` is what the server asked for, in seconds. Pauses double from seconds to an hour, spread by a fifth; to five
    minutes if the server could not be reached (`is_gone`). Calls that were out when the outage was noted do not count
    as tries of it.
    """
    row, is_new = ModelOutage.objects.select_for_update(no_key=True).get_or_create(
        model=model, defaults={"since": now, "next_try_at": now}
    )
    if not is_new and not is_try:
        return row.next_try_at
    row.tries += 1
    longest = LONGEST_PAUSE_GONE if is_gone else LONGEST_PAUSE
    seconds = backoff(row.tries, first=FIRST_PAUSE, longest=longest) * random.SystemRandom().uniform(0.8, 1.2)
    row.next_try_at = now + timedelta(seconds=min(max(seconds, pause or 0.0), longest))
    row.woken_at = None
    row.is_gone = is_gone
    row.error = redact(error)[:ERROR_CHARS]
    row.save()
    if is_new:
        recorder.append(SYSTEM_CHAIN, "model.away", now=now, details={"model": model})
    if row.tries == TOLD_AT:
        body = f"{row.error}\nRuns that need it wait and go on by themselves when it is back."
        notify_operators(
            NoticeKind.MODEL_AWAY, title=f"Model {model} does not answer", body=body, now=now, page=MODELS_PATH
        )
    return row.next_try_at


def outage_probe(model: str, *, now: datetime) -> bool:
    """Return whether this call may try a model that is away. Of several calls one may."""
    due = ModelOutage.objects.filter(model=model, next_try_at__lte=now)
    return due.update(next_try_at=now + PROBE) == 1


@transaction.atomic
def outage_over(model: str, *, now: datetime) -> None:
    """The model answered: tell people, and let the runs that wait for it go on."""
    row = ModelOutage.objects.select_for_update(no_key=True).filter(model=model).first()
    if row is None:
        return
    row.delete()
    seconds = int((now - row.since).total_seconds())
    recorder.append(SYSTEM_CHAIN, "model.back", now=now, details={"model": model, "seconds": seconds})
    woken = waiting_go_on(model, now=now)
    if row.tries >= TOLD_AT:
        body = f"It was away since {row.since:%Y-%m-%d %H:%M} UTC. Runs that waited for it: {woken}."
        notify_operators(
            NoticeKind.MODEL_BACK, title=f"Model {model} answers again", body=body, now=now, page=MODELS_PATH
        )


def waiting_go_on(model: str, *, now: datetime) -> int:
    """Make the runs that wait for the model due, some each second, those that have waited longest first.

    The ticker wakes them. Return their number.
    """
    waiting = waiting_for(model)
    pks = list(waiting.order_by(*_WAITED_LONGEST).values_list("pk", flat=True))
    groups = (pks[start : start + WOKEN_PER_SECOND] for start in range(0, len(pks), WOKEN_PER_SECOND))
    return sum(
        waiting.filter(pk__in=group).update(next_wake_at=now + timedelta(seconds=second))
        for second, group in enumerate(groups)
    )


def waiting_for(model: str) -> QuerySet[AgentSession]:
    rows = AgentSession.objects.filter(status=Status.WAITING, waiting_on=WaitingOn.MODEL)
    return rows.filter(**{f"metadata__{WAIT}__model": model})


def model_wait_note(row: AgentSession, model: str, *, is_busy: bool = False, now: datetime) -> datetime:
    """Note on the row, which the caller saves, what the run waits for. Return when it is given up.

    Its patience is counted from when it first met this outage, or found the server busy after its last answer. A loop
    is not given up: it looks again from time to time.
    """
    outage = ModelOutage.objects.filter(model=model).first()
    which = BUSY if is_busy else outage.since.isoformat() if outage else "suspended"
    before = row.metadata.get(WAIT) or {}
    is_same = (before.get("model"), before.get("outage")) == (model, which)
    if is_same and is_busy:
        is_same = not _has_answered(row, model, since=datetime.fromisoformat(before["since"]))
    since = datetime.fromisoformat(before["since"]) if is_same else now
    noted = {"model": model, "outage": which, "since": since.isoformat(), TOLD: is_same and before.get(TOLD) is True}
    row.metadata = {**row.metadata, WAIT: noted}
    if is_busy:
        given_up_at = since + model_wait_limit()
        return now + BUSY_PAUSE if row.mode == Mode.LOOP else min(given_up_at, now + BUSY_PAUSE)
    if row.mode != Mode.LOOP:
        return since + model_wait_limit()
    if outage is None or outage.tries >= TOLD_AT:
        _tell_owner(row, now=now)
    return now + max(model_wait_limit(), LOOKED_AGAIN)


# --- The owners of loops that wait ---


def owners_tell(now: datetime, *, most: int) -> int:
    """Tell the owners of loops that wait for a model which has failed a second try. Return how many."""
    told = 0
    for model in ModelOutage.objects.filter(tries__gte=TOLD_AT).values_list("model", flat=True):
        loops = waiting_for(model).filter(mode=Mode.LOOP, **{f"metadata__{WAIT}__{TOLD}": False}).order_by("pk")
        for pk in list(loops.values_list("pk", flat=True)[:most]):
            with transaction.atomic():
                row = loops.select_for_update(no_key=True, of=("self",)).filter(pk=pk).first()
                if row is not None:
                    told += _tell_owner(row, now=now)
                    row.save(update_fields=["metadata"])
    return told


def _has_answered(row: AgentSession, model: str, *, since: datetime) -> bool:
    """Return whether the run had an answer of the model since then: another wait begins after that."""
    answered = InferenceLog.objects.filter(session=row, model=model, outcome=Outcome.SUCCESS, created_at__gt=since)
    return answered.exists()


def _tell_owner(row: AgentSession, *, now: datetime) -> bool:
    """Tell the owner of a loop, once for an outage, what it waits for. The caller has locked the row and saves it."""
    noted = row.metadata[WAIT]
    if noted[TOLD]:
        return False
    row.metadata = {**row.metadata, WAIT: {**noted, TOLD: True}}
    name = row.agent.name if row.agent else "The loop"
    body = f"Model {noted['model']} does not answer. No turn is lost: the loop goes on when the model answers again."
    _notify_waiting(row, f"{name} waits for its model", body, now=now)
    return True


def tell_model_fails(session: AgentSession, error: str, *, now: datetime) -> None:
    """Tell the owner of a loop that its model refuses or garbles every request. The loop goes on trying."""
    name = session.agent.name if session.agent else "The loop"
    body = f"{error}\nThe loop tries again after growing pauses, at most an hour, until the model answers."
    _notify_waiting(session, f"The model of {name} fails", body, now=now)


def _notify_waiting(row: AgentSession, title: str, body: str, *, now: datetime) -> None:
    kind = NoticeKind.LOOP_WAITING
    notification_create(owner_id=row.owner_id, kind=kind, title=title, body=body, session_id=row.pk, now=now)


@dataclass(frozen=True)
class ModelWait:
    """The model that a run waits for, as people see it."""

    model: str
    since: datetime
    next_try_at: datetime | None  # None: until somebody accepts the model again
    error: str


def model_wait_of(session: AgentSession) -> ModelWait | None:
    if session.waiting_on != WaitingOn.MODEL:
        return None
    noted = session.metadata[WAIT]
    row = ModelOutage.objects.filter(model=noted["model"]).first()
    if noted["outage"] == BUSY:
        error = "Its server is at work for other runs. Set the model's concurrency to what the server takes at once."
        return ModelWait(noted["model"], datetime.fromisoformat(noted["since"]), session.next_wake_at, error)
    next_try_at = row.next_try_at if row else None
    error = row.error if row else "It is suspended: it billed more than its bound."
    return ModelWait(noted["model"], datetime.fromisoformat(noted["since"]), next_try_at, error)


def outage_try_now(model: str, *, now: datetime) -> None:
    """Have the model tried at once: the next call may, and a waiting run is woken to make it."""
    ModelOutage.objects.filter(model=model).update(next_try_at=now, woken_at=None)


def probers_due(now: datetime) -> list[int]:
    """Return for each model that is to be tried the run that has waited longest; it is the caller's to wake."""
    found = []
    for row in ModelOutage.objects.filter(next_try_at__lte=now):
        if row.woken_at is not None and row.woken_at > now - WAKE_AGAIN:
            continue
        waiting = waiting_for(row.model).filter(paused_at__isnull=True)
        first = waiting.order_by(*_WAITED_LONGEST).values_list("pk", flat=True).first()
        if first is not None and ModelOutage.objects.filter(pk=row.pk, woken_at=row.woken_at).update(woken_at=now):
            found.append(first)
    return found


# --- Asking for free whether a server is back ---


def pings_due(now: datetime, *, can_ask: Callable[[str], bool]) -> list[str]:
    """Return the models whose servers are to be asked now, since runs wait for them; of several callers one gets each.

    One that is to be tried anyway is left out.
    """
    old = Q(pinged_at__isnull=True) | Q(pinged_at__lte=now - PING_EVERY) | Q(pinged_at__gt=now)
    rows = ModelOutage.objects.filter(old, next_try_at__gt=now).order_by(F("pinged_at").asc(nulls_first=True), "pk")
    asked = []
    for row in rows[:PINGED_AT_ONCE]:
        if not can_ask(row.model) or not waiting_for(row.model).filter(paused_at__isnull=True).exists():
            continue
        if ModelOutage.objects.filter(pk=row.pk, pinged_at=row.pinged_at).update(pinged_at=now):
            asked.append(row.model)
    return asked


def ping_note(model: str, *, is_there: bool, now: datetime) -> bool:
    """Note whether the server answered. Return True if it is back: then a call may try the model at once.

    One that has been there all the time, and fails calls all the same, is tried after its pauses alone.
    """
    rows = ModelOutage.objects.filter(model=model)
    if not is_there:
        rows.filter(is_gone=False).update(is_gone=True)
        return False
    return rows.filter(is_gone=True).update(is_gone=False, next_try_at=now, woken_at=None) == 1


def fallbacks_serve(now: datetime) -> int:
    """Make the runs due that wait for a model with a fallback that is not away. Return their number."""
    away = set(ModelOutage.objects.values_list("model", flat=True))
    away |= set(SuspendedModel.objects.values_list("model", flat=True))
    helped = [model for model in away if set(fallbacks_of(model)) - away]
    return sum(waiting_for(model).filter(next_wake_at__gt=now).update(next_wake_at=now) for model in helped)
