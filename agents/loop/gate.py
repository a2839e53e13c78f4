"""The gate before a turn: has anything changed, and does a small model think that it matters?

It saves turns and forbids none: whenever it cannot tell, it opens, also when the changes are too long to be shown. It
opens without asking when no small model is configured, alerts are pending, there was no turn yet, or the last one
failed or ran out of rounds. Its daily totals per agent say what it did, what that cost, and what it saved.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import Final

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.engine.prompting import journaled_call
from agents.enums import Purpose, ToolIntent, TurnState
from agents.exceptions import (
    AutonomousBrake,
    LeaseLost,
    ModelSuspended,
    RetryLater,
    SessionPaused,
    UnpricedModel,
)
from agents.ledger.budgets import micro
from agents.loop.pacing import Pace
from agents.loop.state import FieldView, changes_from
from agents.loop.turns import turn_last_done
from agents.models import AgentSession, GateDay, Turn
from agents.policy.costs import usd
from agents.text.blocks import nonce_of, render_block
from agents.text.clean import one_line
from agents.types import ZERO

logger = logging.getLogger(__name__)

AVERAGED_TURNS: Final = 50
MAX_TOKENS: Final = 5
PROMPT_CHARS: Final = 4_000
PURPOSE_CHARS: Final = 300
UNCHANGED: Final = "unchanged"
IMMATERIAL: Final = "immaterial"
_NO: Final = re.compile(r"\W*no\b", re.IGNORECASE)
_PROMPT: Final = """\
{purpose}What an agent watches has changed since it last looked:
{changes}
Does any of it matter enough to wake the agent? Answer yes or no.\
"""


def gate(
    session: AgentSession, turn: Turn, views: Sequence[FieldView], *, model: str | None, opens: bool, pace: Pace
) -> str:
    """Return why the turn is skipped; empty when it is not. `opens` opens the gate without asking.

    Brakes and failures of the database are not caught; any other error opens the gate.
    """
    if model is None:
        return ""
    try:
        return _decide(session, turn, views, model=model, opens=opens, pace=pace)
    except (AutonomousBrake, LeaseLost, SessionPaused, OperationalError, InterfaceError):
        raise
    except Exception:
        logger.warning("the gate of session %s failed and opens", session.public_id, exc_info=True)
        return ""


def _decide(
    session: AgentSession, turn: Turn, views: Sequence[FieldView], *, model: str, opens: bool, pace: Pace
) -> str:
    last = turn_last_done(session)
    if opens or last is None or pace.errors or pace.cut:
        return _recorded(session)
    changes = changes_from(last.seen.get("fields", {}), views)
    lines = "\n".join(f"{change.name}: {change.old or '(none)'} -> {change.new or '(none)'}" for change in changes)
    if len(lines) > PROMPT_CHARS or not all(change.is_shown for change in changes):
        return _recorded(session)
    if not changes:
        return _recorded(session, skipped=UNCHANGED)
    asked = ask_gate(session, lines, model=model, key=f"turn:{turn.number}:gate")
    return _recorded(session, skipped="" if asked.matters else IMMATERIAL, asked=True, spent=asked.cost_usd)


@dataclass(frozen=True)
class GateAnswer:
    """Whether changes matter, and the cost of asking. `problem`: why the gate opens without an answer."""

    matters: bool
    cost_usd: Decimal
    problem: str = ""


def ask_gate(session: AgentSession, lines: str, *, model: str, key: str) -> GateAnswer:
    """Ask the small model whether the changes matter."""
    params = {
        "model": model,
        "prompt": _PROMPT.format(
            purpose=_purpose(session),
            changes=render_block("changes", lines, nonce=nonce_of(session.public_id, key)),
        ),
        "max_tokens": MAX_TOKENS,
        "purpose": str(Purpose.PRECHECK),
    }
    try:
        result = journaled_call(session, ToolIntent.RUN_SKILL, key, params)
    except (RetryLater, UnpricedModel, ModelSuspended) as error:
        logger.warning("the gate of session %s could not ask and opens: %s", session.public_id, error)
        return GateAnswer(matters=True, cost_usd=ZERO, problem=str(error))
    if not result.ok:
        logger.warning("the gate of session %s got no answer and opens: %s", session.public_id, result.error)
        return GateAnswer(matters=True, cost_usd=result.cost_usd, problem=result.error)
    return GateAnswer(not _NO.match(str(result.data.get("text") or "")), result.cost_usd)


def _purpose(session: AgentSession) -> str:
    """Return what the agent is for, in one line: the beginning of its description, else of its instructions."""
    definition = definition_of(session.agent) if session.agent else None
    said = definition.description.strip() or definition.instructions.strip() if definition else ""
    return f"The agent's purpose: {one_line(said, PURPOSE_CHARS)}\n" if said else ""


# --- Daily totals ---


@transaction.atomic
def _recorded(session: AgentSession, *, skipped: str = "", asked: bool = False, spent: Decimal = ZERO) -> str:
    """Add one decision to the agent's totals of the day, and return why the turn is skipped."""
    if session.agent_id is None:
        return skipped
    day = clock().astimezone(UTC).date()
    GateDay.objects.bulk_create([GateDay(agent_id=session.agent_id, day=day)], ignore_conflicts=True)
    saved = _average_turn_cost(session.agent_id) if skipped else ZERO
    GateDay.objects.filter(agent_id=session.agent_id, day=day).update(
        asked=F("asked") + int(asked),
        opened=F("opened") + int(not skipped),
        unchanged=F("unchanged") + int(skipped == UNCHANGED),
        immaterial=F("immaterial") + int(skipped == IMMATERIAL),
        spent_usd=F("spent_usd") + micro(spent),
        saved_usd=F("saved_usd") + micro(saved),
    )
    return skipped


def _average_turn_cost(agent_id: int) -> Decimal:
    """Return what the agent's last completed turns cost on average."""
    rows = Turn.objects.filter(session__agent_id=agent_id, state=TurnState.DONE).order_by("-pk")
    costs = list(rows.values_list("cost_usd", flat=True)[:AVERAGED_TURNS])
    return usd(sum(costs, ZERO) / len(costs)) if costs else ZERO
