"""The gate before a full turn: has anything changed, and does a small model think that it matters?

It spares turns, it does not forbid them: when it cannot tell, it opens, and so it does when what has changed is too
long to be shown. It is open anyway when no small model is named, when alerts wait, when there was no turn yet, and when
the last one failed or ran out of rounds.
"""

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from django.db import transaction
from django.db.models import F

from agents.conf import clock
from agents.engine.prompting import call
from agents.enums import Purpose, ToolIntent, TurnState
from agents.exceptions import AutonomousBrake, LeaseLost, ModelSuspended, RetryLater, UnpricedModel
from agents.ledger.budgets import micro
from agents.loop.pacing import Pace
from agents.loop.state import Change, FieldView, changes_from
from agents.loop.turns import turn_last_done
from agents.models import AgentSession, GateDay, Turn
from agents.policy.costs import usd
from agents.text.blocks import nonce_of, render_block
from agents.types import ZERO

logger = logging.getLogger(__name__)


# --- The gate's ledger: what it did for an agent on each UTC day, what that cost, and what it spared ---


AVERAGED_TURNS: Final = 50


@transaction.atomic
def gate_note(session: AgentSession, *, asked: bool, skipped: str, spent: Decimal, now: datetime) -> None:
    """One look of the gate. `skipped` says why it stayed shut: unchanged or immaterial; empty when it opened."""
    if session.agent_id is None:
        return
    day = now.astimezone(UTC).date()
    GateDay.objects.bulk_create([GateDay(agent_id=session.agent_id, day=day)], ignore_conflicts=True)
    saved = turn_average(session.agent_id) if skipped else ZERO
    GateDay.objects.filter(agent_id=session.agent_id, day=day).update(
        asked=F("asked") + int(asked),
        opened=F("opened") + int(not skipped),
        unchanged=F("unchanged") + int(skipped == "unchanged"),
        immaterial=F("immaterial") + int(skipped == "immaterial"),
        spent_usd=F("spent_usd") + micro(spent),
        saved_usd=F("saved_usd") + micro(saved),
    )


def turn_average(agent_id: int) -> Decimal:
    """What the agent's last full turns cost on average."""
    rows = Turn.objects.filter(session__agent_id=agent_id, state=TurnState.DONE).order_by("-pk")
    costs = list(rows.values_list("cost_usd", flat=True)[:AVERAGED_TURNS])
    return usd(sum(costs, ZERO) / len(costs)) if costs else ZERO


MAX_TOKENS: Final = 5
PROMPT_CHARS: Final = 4_000
UNCHANGED: Final = "unchanged"
IMMATERIAL: Final = "immaterial"
_NO: Final = re.compile(r"\W*no\b", re.IGNORECASE)
_PROMPT: Final = """\
What an agent watches has changed since it last looked:
{changes}
Does any of it matter enough to wake the agent? Answer yes or no.\
"""


def gate(
    session: AgentSession, turn: Turn, views: Sequence[FieldView], *, model: str | None, opens: bool, pace: Pace
) -> str:
    """Why the turn is to be skipped; empty when it is not: whatever `opens` it, such as an alert, is not asked about.
    Brakes are not caught; any other fault opens it."""
    if model is None:
        return ""
    try:
        return _skipped(session, turn, views, model=model, opens=opens, pace=pace)
    except (AutonomousBrake, LeaseLost):
        raise
    except Exception:
        logger.warning("the gate of session %s opens, for it failed", session.public_id, exc_info=True)
        return ""


def _skipped(
    session: AgentSession, turn: Turn, views: Sequence[FieldView], *, model: str, opens: bool, pace: Pace
) -> str:
    last = turn_last_done(session)
    if opens or last is None or pace.errors or pace.cut:
        gate_note(session, asked=False, skipped="", spent=ZERO, now=clock())
        return ""
    changes = changes_from(last.seen.get("fields", {}), views)
    lines = lines_of(changes)
    if len(lines) > PROMPT_CHARS or not all(change.is_shown for change in changes):
        gate_note(session, asked=False, skipped="", spent=ZERO, now=clock())
        return ""
    if not changes:
        gate_note(session, asked=False, skipped=UNCHANGED, spent=ZERO, now=clock())
        return UNCHANGED
    matters, spent = _matters(session, lines, model=model, key=f"turn:{turn.number}:gate")
    skipped = "" if matters else IMMATERIAL
    gate_note(session, asked=True, skipped=skipped, spent=spent, now=clock())
    return skipped


def lines_of(changes: Sequence[Change]) -> str:
    return "\n".join(f"{change.name}: {change.old or '(none)'} -> {change.new or '(none)'}" for change in changes)


def _matters(session: AgentSession, lines: str, *, model: str, key: str) -> tuple[bool, Decimal]:
    asked = {
        "model": model,
        "prompt": _PROMPT.format(changes=render_block("changes", lines, nonce=nonce_of(session.public_id, key))),
        "max_tokens": MAX_TOKENS,
        "purpose": str(Purpose.PRECHECK),
    }
    try:
        told = call(session, ToolIntent.RUN_SKILL, key, asked)
    except (RetryLater, UnpricedModel, ModelSuspended) as error:
        logger.warning("the gate of session %s opens, for it could not ask: %s", session.public_id, error)
        return True, ZERO
    if not told.ok:
        logger.warning("the gate of session %s opens, for it got no answer: %s", session.public_id, told.error)
        return True, told.cost_usd
    return not _NO.match(str(told.data.get("text") or "")), told.cost_usd
