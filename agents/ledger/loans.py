"""What a run has lent of its cap to the runs that it started, and how long it waits for them.

A loan leaves the cap of the lender (`max_cost_usd`) when the started run is created, and its rest comes back when that
run is over. The lender keeps a floor to finish with. While something is lent, a call that does not fit waits.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal
from typing import Final

from django.db.models import Q, QuerySet

from agents.conf import default_session_cap, lender_floor, run_wait_limit
from agents.enums import Mode, Outcome, WaitingOn
from agents.exceptions import Invalid
from agents.models import AgentSession, ToolCall
from agents.policy.transitions import TERMINAL
from agents.types import ZERO
from audit.receipts import lent_text, usd

RUN_RESULT: Final = "run_result"  # the skill
MAX_DEPTH: Final = 3  # levels of runs below one that no other started
WAIT: Final = "runs_wait"  # key in metadata: which runs are awaited, since when
SHOWN_RUNS: Final = 5
_CENT_OF_CENT: Final = Decimal("0.0001")


# --- How much may be lent ---


def loan_of(lender: AgentSession, *, stated: Decimal | None, callee_cap: Decimal | None = None) -> Decimal:
    """Return the loan of a run to one that it starts; raise Invalid if the lender would not keep its floor.

    Without a stated amount: the smallest of half of what is left, the cap of the callee and the default cap.
    """
    most = default_session_cap() if callee_cap is None else min(default_session_cap(), callee_cap)
    left = lender.left_usd
    if left is None:
        return most if stated is None else stated
    floor = lender_floor()
    half = (left / 2).quantize(_CENT_OF_CENT, rounding=ROUND_FLOOR)
    if (half if stated is None else left - stated) < floor:
        raise Invalid(_refusal(left, floor, stated))
    return min(half, most) if stated is None else stated


def _refusal(left: Decimal, floor: Decimal, stated: Decimal | None) -> str:
    kept = f"{usd(left)} is left of this run's cap, and it keeps {usd(floor)} to finish"
    if stated is None:
        return f"Nothing is lent: {kept}; the other run would get no more than that. Do the work yourself."
    room = max(left - floor, ZERO)
    advice = f"Ask for {usd(room)} at most." if room else "Do the work yourself."
    return f"{usd(stated)} cannot be lent: {kept}. {advice}"


# --- What is lent ---


def runs_out(session_pk: int) -> QuerySet[AgentSession]:
    """Return the runs whose rest comes back to this one: those it started, and those started by such as are over.

    In the order of the index `session_lent`. Three levels: no tree of runs is deeper.
    """
    over = sorted(TERMINAL)
    own = Q(parent=session_pk)
    below = Q(parent__parent=session_pk, parent__status__in=over)
    last = Q(parent__parent__parent=session_pk, parent__status__in=over, parent__parent__status__in=over)
    lent = AgentSession.objects.filter(parent__isnull=False, handed_back_at__isnull=True)
    return lent.filter(own | below | last).order_by("parent_id", "pk")


def loan_text(session: AgentSession) -> str:
    """Say what of its cap a run has lent, and what the runs that it started have spent; empty if neither."""
    if session.starting_cap_usd is None or session.max_cost_usd is None:
        return ""
    if session.starting_cap_usd == session.max_cost_usd:
        return ""
    lent = {run.chain: run.starting_cap_usd or ZERO for run in runs_out(session.pk)}
    spent = max(session.starting_cap_usd - session.max_cost_usd - sum(lent.values()), ZERO)
    return lent_text(session.starting_cap_usd, lent, spent)


# --- Waiting for what is lent ---


def ends_after_its_runs(session: AgentSession) -> bool:
    """Return whether a run waits for those that it started before it ends.

    An alert notifies a loop of their end, and a person who chats gets the answer at once.
    """
    if session.mode == Mode.CHAT:
        return bool(session.params.get("way") == "goal")
    return session.mode != Mode.LOOP


def result_awaited(session: AgentSession, run_id: str, *, now: datetime) -> frozenset[int]:
    """Return the run whose result is asked for, if the session waits for it; else nothing. A loop does not."""
    if session.mode == Mode.LOOP:
        return frozenset()
    asked = [row.pk for row in runs_out(session.pk) if row.chain == run_id and row.status not in TERMINAL]
    return runs_to_await(session, now=now).intersection(asked)


def runs_over(session: AgentSession) -> list[tuple[str, str, str]]:
    """Return id, status and result of the runs that a session started, that are over and whose result it never read."""
    calls = ToolCall.objects.filter(session=session, name=RUN_RESULT, outcome=Outcome.SUCCESS)
    read = set(calls.values_list("result__run", flat=True))
    over = session.children.filter(handed_back_at__isnull=False).order_by("pk")
    return [(run.chain, run.status, run.run_result) for run in over if run.chain not in read]


def runs_to_await(session: AgentSession, *, now: datetime) -> frozenset[int]:
    """Return the runs that a run may wait for; none if it has waited for all of them as long as it may."""
    out = frozenset(runs_out(session.pk).values_list("pk", flat=True))
    noted = session.metadata.get(WAIT) or {}
    is_same = noted.get("runs") == sorted(out)
    if is_same and datetime.fromisoformat(noted["since"]) + run_wait_limit() <= now:
        return frozenset()
    return out


def runs_wait_note(row: AgentSession, *, now: datetime) -> datetime:
    """Note the runs that it waits for on the row, which the caller saves. Return when it resumes without them.

    It has its whole patience again when a run has come back or another was started.
    """
    out = sorted(runs_out(row.pk).values_list("pk", flat=True))
    noted = row.metadata.get(WAIT) or {}
    since = datetime.fromisoformat(noted["since"]) if noted.get("runs") == out else now
    row.metadata = {**row.metadata, WAIT: {"runs": out, "since": since.isoformat()}}
    return since + run_wait_limit()


@dataclass(frozen=True)
class RunsWait:
    """The runs that a run waits for, as people see it."""

    runs: tuple[AgentSession, ...]
    since: datetime
    until: datetime | None

    @property
    def ids(self) -> list[uuid.UUID]:
        return [run.public_id for run in self.runs]

    @property
    def text(self) -> str:
        """Name the first of them, with what each waits for itself."""
        named = [f"run {short(run)} ({_state(run)})" for run in self.runs[:SHOWN_RUNS]]
        more = len(self.runs) - len(named)
        return ", ".join(named) + (f" and {more} more" if more else "")


def runs_wait_of(session: AgentSession) -> RunsWait | None:
    if session.waiting_on != WaitingOn.RUNS:
        return None
    since = datetime.fromisoformat(session.metadata[WAIT]["since"])
    return RunsWait(tuple(runs_out(session.pk)), since, session.next_wake_at)


def short(run: AgentSession) -> str:
    return run.chain[:8]


def _state(run: AgentSession) -> str:
    if run.paused_at is not None:
        return "paused"
    return f"waiting for {run.waiting_on}" if run.waiting_on else run.status
