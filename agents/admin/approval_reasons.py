"""Why a call asks a person, and about what, in words: the concern, the level and the risk, and who would be told."""

from typing import Any, Final

from agents.conf import mail_is_configured
from agents.engine.skills import PREFIX
from agents.enums import ApprovalMode, ApprovalStatus, Level, Purpose, Risk, ToolIntent
from agents.models import Approval, InferenceLog, ToolCall
from agents.sessions.reads import purposes, read_by
from agents.walk import drafting

# Said of the kind of call, whatever this one holds.
LEVEL_WORDS: Final = {
    Level.SAFE: "a call of this kind does no harm by itself",
    Level.MONITORED: "a call of this kind does little, and is watched",
    Level.CONTROLLED: "a call of this kind changes something",
    Level.RESTRICTED: "a call of this kind reaches beyond this installation, or is hard to undo",
    Level.PRIVILEGED: "a call of this kind is approved one by one, and never in advance",
}
# Said of this one call.
RISK_WORDS: Final = {
    Risk.LOW: "this one was judged to be of little risk",
    Risk.MEDIUM: "this one was judged to be of some risk",
    Risk.HIGH: "this one was marked as risky, and such a call always waits for a person",
}
FLAGGED: Final = (
    "The review of this run flagged concerns, and runs like it wait for a person before they tell anybody of what they "
    "found."
)


def reasons_of(approval: Approval) -> dict[str, Any]:
    """What the page of a call shows besides the call itself, by a fixed number of statements."""
    concerns = concerns_of(approval)
    return {
        "purpose": purposes([approval.session])[approval.session_id],
        "read": read_by(approval.session),
        "concerns": concerns,
        "why": why(approval, flagged=bool(concerns)),
        "level_words": LEVEL_WORDS.get(Level(approval.level), ""),
        "risk_words": RISK_WORDS.get(Risk(approval.risk_level), "") if approval.risk_level else "",
        "recipient": recipient(approval),
        "standing": decided_words(approval.status),
        "stands": stands(approval),
        "guess": approval.simulation.removeprefix(PREFIX),
        "guessed_by": guessed_by(approval) if approval.simulation else "",
    }


def decided_words(status: str) -> str:
    """The status as the page's own buttons call it."""
    return "denied" if status == ApprovalStatus.REJECTED else str(status)


def stands(approval: Approval) -> str:
    """What the arguments on the page are: of a call to be made, that was made, or that never was."""
    if approval.consumed_at:
        return "The call, exactly as it was made."
    if approval.status in {ApprovalStatus.PENDING, ApprovalStatus.APPROVED}:
        return "The call, exactly as it will be made."
    return "The call as it was asked for. It was not made."


def guessed_by(approval: Approval) -> str:
    """The model that said what would come of the call, by the calls of models of its session."""
    asked = InferenceLog.objects.filter(session_id=approval.session_id, purpose=Purpose.SIMULATION)
    return asked.order_by("-pk").values_list("model", flat=True).first() or "a model"


def concerns_of(approval: Approval) -> str:
    """What the ethics review of the run found, as it stands in the journal; nothing where it found nothing."""
    said = ToolCall.objects.filter(session_id=approval.session_id, key=drafting.REVIEW_KEY)
    arguments = said.order_by("-attempt").values_list("arguments", flat=True).first() or {}
    if arguments.get("severity") != "warn":
        return ""
    return str(arguments.get("content", "")).removesuffix(drafting.CAVEAT).strip()


def why(approval: Approval, *, flagged: bool) -> str:
    if approval.risk_level == Risk.HIGH:
        return FLAGGED if flagged else "It was marked as a call of high risk: such a call always waits for a person."
    agent = approval.session.agent
    if agent is not None and agent.mode != ApprovalMode.AUTO:
        return f"The agent {agent.name} works in mode {agent.mode}, in which calls of level {approval.level} ask first."
    return f"Calls of level {approval.level} ask a person first."


def recipient(approval: Approval) -> str:
    """Who gets what the call sends, where that is known beforehand."""
    if approval.intent != ToolIntent.NOTIFY:
        return ""
    owner = approval.session.owner
    profile = getattr(owner, "lqops_profile", None)
    mailed = bool(mail_is_configured() and owner.email and profile and profile.email_notices)
    copy = f", and a copy by e-mail to {owner.email}" if mailed else ""
    return f"{owner}, who owns the run: a notice in this application{copy}"
