"""Proposed actions: what somebody wants changed becomes a button, and only the button does it.

A proposal says what would happen and shows what a person has to see before they decide. Its token holds a digest of
all that, for one person and one hour. `confirm` builds the proposal again from the rows as they are now: if anything
that was shown is different, nothing is done. Permissions are checked when it is shown, when it is confirmed, and by the
function that acts.
"""

import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction

from agents.ask.naming import KINDS, Wanted, own_rows, short_id
from agents.definitions.loader import write_definition
from agents.enums import ApprovalStatus
from agents.exceptions import Invalid, InvalidTransition, LqopsError, NotAllowed, NotFound
from agents.ledger.boundary import current_halt, halt_message
from agents.models import AgentSession, Approval, Playbook, Trigger
from agents.people.access import record_act, record_row_view, require_halt_permission, require_start_permission
from agents.people.delegations import is_approver
from agents.policy.run_spec import RunSpec
from agents.policy.transitions import TERMINAL
from agents.roster.agents import agent_create, agent_edit, agent_is_running, agent_start, agent_stop, require_startable
from agents.roster.files import definition_write
from agents.sessions.approvals import approval_approve, approval_reject, call_shown, require_decidable
from agents.sessions.halts import agents_halt, halt_all_work, session_halt, sessions_halt
from agents.sessions.pauses import (
    agent_pause,
    agent_resume,
    pause_message,
    pauses_of,
    session_pause,
    session_resume,
)
from agents.sessions.second_eyes import waits_text, with_decisions
from agents.text.clean import one_line
from agents.text.shown import shown
from agents.triggers.firing import require_run_allowed, run_now, session_restart
from agents.triggers.triggers import trigger_create, trigger_pause, trigger_resume
from audit.models import AuditEvent
from audit.redaction import redact
from audit.rows import canonical

Scope = Literal["write", "decide"]
LIFETIME: Final = timedelta(hours=1)
CALL_CHARS: Final = 4_000  # of a call that is shown here, and so can be approved here
CONFIRMED: Final = "ask.confirmed"
_SALT: Final = "agents.ask.proposals"
_REASON_CHARS: Final = 200
_NAME_CHARS: Final = 120
CHANGED: Final = "Nothing was done: what was shown has changed since. Ask again and look at it anew."
USED: Final = "Nothing was done: this was confirmed before."


@dataclass(frozen=True)
class Proposal:
    """One button. `refused` says why there is none for this person now; then there is no token."""

    action: str
    target: str
    label: str
    text: str
    command: str
    scope: Scope
    details: tuple[str, ...] = ()
    danger: bool = False
    refused: str = ""
    token: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Done:
    """What a confirmed action did; `session` is the run that it started."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    session: AgentSession | None = None


@dataclass(frozen=True)
class Acting:
    """An action on its way: for whom, when, on what."""

    by: User
    now: datetime
    row: Any
    arguments: Mapping[str, str]

    @property
    def reason(self) -> str:
        return one_line(f"Asked for: {redact(self.arguments.get('text', '')) or 'in the console'}", _REASON_CHARS)


@dataclass(frozen=True)
class Action:
    """How an action on one kind of row looks and what it does. `once`: confirmed twice, it would act twice.

    `check` raises what refuses it now; `details` are what a person has to see first.
    """

    label: str
    text: str
    command: str
    does: Callable[[Acting], Done]
    check: Callable[[Acting], None] = lambda acting: None
    details: Callable[[Acting], tuple[str, ...]] = lambda acting: ()
    scope: Scope = "write"
    once: bool = False
    danger: bool = False


# --- Making a proposal ---


def propose(wanted: Wanted, *, by: User, now: datetime, place: str = "") -> Proposal:
    """Return the proposal with its token. `place` is where it stands, so that it is used once wherever it is shown."""
    action, acting = _acting(wanted, by, now)
    proposal = _built(wanted, action, acting)
    if proposal.refused:
        return proposal
    used = {"place": place or uuid4().hex, "digest": proposal.digest, "user": by.pk}
    stated = {"action": wanted.action, "target": wanted.target, "arguments": dict(wanted.arguments)}
    if place and action.once and _is_used(place):
        return replace(proposal, refused=USED)
    return replace(proposal, token=signing.dumps({**stated, **used}, salt=_SALT, compress=True))


def _built(wanted: Wanted, action: Action, acting: Acting) -> Proposal:
    names = {
        "name": _name(acting.row),
        "id": getattr(acting.row, "public_id", ""),
        "digest": getattr(acting.row, "digest", ""),
        "user": shlex.quote(acting.by.get_username()),
    }
    details = action.details(acting)
    proposal = Proposal(
        action=wanted.action,
        target=wanted.target,
        label=action.label.format(**names),
        text=action.text.format(**names),
        command=action.command.format(**names),
        scope=action.scope,
        details=details,
        danger=action.danger,
        refused=_refusal(action, acting),
    )
    seen = [proposal.action, proposal.target, proposal.label, proposal.text, list(details), dict(wanted.arguments)]
    digest = hashlib.sha256(canonical([*seen, getattr(acting.row, "digest", "")]).encode("ascii")).hexdigest()
    return replace(proposal, digest=digest)


def _refusal(action: Action, acting: Acting) -> str:
    try:
        action.check(acting)
    except LqopsError as refusal:
        return str(refusal)
    return ""


def _name(row: Any) -> str:
    if isinstance(row, AgentSession):
        return short_id(row)
    return one_line(str(getattr(row, "name", "") or getattr(row, "action", "")), _NAME_CHARS)


def _acting(wanted: Wanted, by: User, now: datetime) -> tuple[Action, Acting]:
    kind, _, key = wanted.target.partition(":")
    action = ACTIONS.get((wanted.action, kind))
    if action is None:
        raise Invalid(f"There is no action {wanted.action[:40]} for {kind or 'nothing'}.")
    return action, Acting(by, now, _row(kind, key, by, now) if kind else None, wanted.arguments)


def _row(kind: str, key: str, by: User, now: datetime) -> Any:
    """Return the row, if the person may see it."""
    if kind == "run":
        rows: Any = AgentSession.objects.filter(owner=by)
    elif kind == "approval":
        rows = Approval.objects.select_related("session", "session__owner")
        rows = rows if is_approver(by, now) else rows.filter(session__owner=by)
    else:
        rows = own_rows(kind, by) if kind in KINDS else None
    found = rows.filter(public_id=UUID(key)).first() if rows is not None else None
    if found is None:
        raise NotFound(f"There is no {kind} of yours with this id.")
    return found


def wanted_on(action: str, kind: str, row: Any, **arguments: str) -> Wanted:
    return Wanted(action, f"{kind}:{row.public_id}", arguments)


# --- Confirming it ---


def confirm(token: str, *, by: User, now: datetime) -> Done:
    """Do what a proposal says, if it still says the same. Raises what refuses it."""
    given = read_token(token, by=by)
    wanted = Wanted(given["action"], given["target"], given["arguments"])
    if ACTIONS[given["action"], given["target"].partition(":")[0]].once:
        return _confirm_once(wanted, given, by=by, now=now)
    return _confirm(wanted, given["digest"], by=by, now=now)


def read_token(token: str, *, by: User) -> dict[str, Any]:
    """Return what a token says. Raises Invalid if it is not one of this person's, or too old."""
    try:
        given: dict[str, Any] = signing.loads(token, salt=_SALT, max_age=LIFETIME)
    except signing.SignatureExpired:
        raise InvalidTransition(f"Nothing was done: a proposal is valid for {LIFETIME}. Ask again.") from None
    except signing.BadSignature:
        raise Invalid("Nothing was done: this is not a token of a proposal.") from None
    if given["user"] != by.pk:
        raise Invalid("Nothing was done: this is not a token of a proposal.")
    return given


def scope_of_token(token: str, *, by: User) -> Scope:
    given = read_token(token, by=by)
    return ACTIONS[given["action"], given["target"].partition(":")[0]].scope


def _confirm(wanted: Wanted, digest: str, *, by: User, now: datetime) -> Done:
    action, acting = _acting(wanted, by, now)
    proposal = _built(wanted, action, acting)
    action.check(acting)
    if proposal.digest != digest:
        raise InvalidTransition(CHANGED)
    return action.does(acting)


@transaction.atomic
def _confirm_once(wanted: Wanted, given: Mapping[str, Any], *, by: User, now: datetime) -> Done:
    """Two clicks at once wait for each other here: the second finds the event of the first."""
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    if _is_used(given["place"]):
        raise InvalidTransition(USED)
    done = _confirm(wanted, given["digest"], by=by, now=now)
    record_act(
        CONFIRMED, by=by, now=now, subject=_subject(given["place"]), action=wanted.action, digest=given["digest"]
    )
    return done


def _is_used(place: str) -> bool:
    return AuditEvent.objects.of_kind(CONFIRMED).filter(subject=_subject(place)).exists()


def _subject(place: str) -> str:
    return f"proposal:{hashlib.sha256(place.encode()).hexdigest()[:32]}"


# --- Halting ---


def _halt_all(acting: Acting) -> Done:
    found = halt_all_work(by=acting.by, reason=acting.reason, now=acting.now)
    if found.already:
        return Done(f"Nothing was done. {halt_message(found.halt, already=True)}")
    return Done("Everything is halted. Nothing starts until it is released.", {"active": found.active})


def _halt_own(acting: Acting) -> Done:
    active = AgentSession.objects.active().filter(owner=acting.by).order_by("pk").values_list("pk", flat=True)
    return _halted(sessions_halt(list(active), by=acting.by, reason=acting.reason, now=acting.now))


def _halt_run(acting: Acting) -> Done:
    answer = session_halt(acting.row.pk, by=acting.by, reason=acting.reason, now=acting.now)
    return Done(f"Halt of run {short_id(acting.row)}: {answer}.", {"session": str(acting.row.public_id)})


def _halt_agent(acting: Acting) -> Done:
    return _halted(agents_halt([acting.row.pk], by=acting.by, reason=acting.reason, now=acting.now))


def _halted(count: Any) -> Done:
    failed = f" {count.failed} could not be halted: confirm again." if count.failed else ""
    return Done(f"Halt requested for {count.requested} of your runs.{failed}", {"requested": count.requested})


def _is_active(acting: Acting) -> None:
    if acting.row.status in TERMINAL:
        raise InvalidTransition(f"Run {short_id(acting.row)} is over; nothing can be done about it.")


def _may_halt_all(acting: Acting) -> None:
    require_halt_permission(acting.by)
    if halt := current_halt():
        raise InvalidTransition(halt_message(halt, already=True))


# --- Deciding on an approval ---


def _call_seen(acting: Acting) -> tuple[str, ...]:
    """What an approver has to see. Viewing somebody else's call is audited, as everywhere."""
    approval = acting.row
    record_row_view(row=approval, by=acting.by, now=acting.now)
    with_decisions([approval], by=acting.by, now=acting.now)
    seen = call_shown(approval)
    is_whole = len(seen.text) <= CALL_CHARS
    return (
        f"call: {approval.action}, version {approval.version}, level {approval.level}",
        f"arguments: {seen.text if is_whole else _too_long(len(seen.text))}",
        *(f"look closely: {warning}" for warning in seen.warnings),
        f"for: {approval.session.owner.get_username()}, run {short_id(approval.session)}, phase {approval.phase}",
        *([f"digest: {approval.digest}"] if is_whole else []),
        *([f"yeses: {approval.said}"] if str(approval.said) else []),
    )


def _may_decide(acting: Acting, *, approves: bool) -> None:
    approval = acting.row
    if approves and (length := len(shown(approval.arguments).text)) > CALL_CHARS:
        raise NotAllowed(f"Nothing was decided: {_too_long(length)}")
    require_decidable(approval, by=acting.by, digest=approval.digest, now=acting.now, says_no=not approves)


def _decide(acting: Acting, service: Callable[..., Approval]) -> Done:
    decided = service(acting.row.pk, by=acting.by, digest=acting.row.digest, now=acting.now)
    waits = decided.status == ApprovalStatus.PENDING
    text = f"{decided.action}: {waits_text(decided)}" if waits else f"{decided.action} is {decided.status_text}."
    return Done(text, {"approval": str(decided.public_id), "status": decided.status})


def _too_long(length: int) -> str:
    return f"{length:,} characters are too many to show here. Decide under Approvals in the admin, or deny it there."


# --- Agents and triggers ---


def _may_start(acting: Acting) -> None:
    require_start_permission(acting.by)


def _may_start_loop(acting: Acting) -> None:
    require_start_permission(acting.by)
    require_startable(acting.row)


def _has_loop(acting: Acting) -> None:
    if not agent_is_running(acting.row):
        raise InvalidTransition(
            f"The loop of agent {acting.row.name} is not running. Pause it to put its runs aside; halt it to end them."
        )


def _pause_agent(acting: Acting) -> Done:
    paused = agent_pause(agent=acting.row, by=acting.by, reason=acting.reason, now=acting.now)
    text = f"Agent {acting.row.name} is paused. Paused runs: {paused.sessions}."
    return Done(text, {"agent": str(acting.row.public_id), "sessions": paused.sessions})


def _resume_agent(acting: Acting) -> Done:
    """Resume an agent, and enable it if it is disabled: either way it is to work again."""
    agent = acting.row
    if agent.pauses.open().exists():
        agent_resume(agent=agent, by=acting.by, now=acting.now)
    if not agent.enabled:
        agent = agent_edit(agent=agent, by=acting.by, now=acting.now, enabled=True)
    return Done(f"Agent {agent.name} works again.", {"agent": str(agent.public_id), "enabled": agent.enabled})


def _pause_run(acting: Acting) -> Done:
    row = session_pause(acting.row.pk, by=acting.by, reason=acting.reason, now=acting.now)
    return Done(f"Run {short_id(row)} is paused.", {"session": str(row.public_id)})


def _resume_run(acting: Acting) -> Done:
    row = session_resume(acting.row.pk, by=acting.by, now=acting.now)
    others = " ".join(pause_message(pause) for pause in pauses_of(row))
    text = f"Its own pause ended. {others}" if others else f"Run {short_id(row)} goes on."
    return Done(text, {"session": str(row.public_id)})


def _start_loop(acting: Acting) -> Done:
    agent_start(agent=acting.row, by=acting.by, now=acting.now)
    return Done(f"The loop of agent {acting.row.name} has started.", {"agent": str(acting.row.public_id)})


def _stop_loop(acting: Acting) -> Done:
    agent_stop(agent=acting.row, by=acting.by, now=acting.now)
    return Done(f"Stop requested for the loop of agent {acting.row.name}.", {"agent": str(acting.row.public_id)})


def _pause_trigger(acting: Acting) -> Done:
    trigger = trigger_pause(trigger=acting.row, by=acting.by, now=acting.now)
    return Done(f"Trigger {trigger.name} is paused.", {"trigger": str(trigger.public_id)})


def _resume_trigger(acting: Acting) -> Done:
    trigger = trigger_resume(trigger=acting.row, by=acting.by, now=acting.now)
    if not trigger.enabled:
        return Done(f"Trigger {trigger.name} is not paused, but disabled: enable it on its page.")
    return Done(f"Trigger {trigger.name} fires again.", {"trigger": str(trigger.public_id)})


# --- Runs and drafts ---


def _may_run(acting: Acting) -> None:
    require_start_permission(acting.by)
    trigger = acting.row if isinstance(acting.row, Trigger) else None
    require_run_allowed(owner=acting.by, agent=None, trigger=trigger)


def _run_trigger(acting: Acting) -> Done:
    return _started(run_now(RunSpec(), owner=acting.by, by=acting.by, now=acting.now, trigger=acting.row))


def _run_on(acting: Acting) -> Done:
    """Run a playbook or skill on what `on` names, towards a goal if there is one."""
    rows = [acting.row] if acting.row else []
    kinds = {"playbook" if isinstance(row, Playbook) else "skill": row for row in rows}
    on_kind, _, key = acting.arguments.get("on", "").partition(":")
    source = {on_kind: _row(on_kind, key, acting.by, acting.now)} if on_kind else {}
    spec = RunSpec.of(**kinds, **source, goal=acting.arguments.get("goal", ""))
    return _started(run_now(spec, owner=acting.by, by=acting.by, now=acting.now))


def _rerun(acting: Acting) -> Done:
    return _started(session_restart(session=acting.row, by=acting.by, now=acting.now))


def _is_over(acting: Acting) -> None:
    _may_run(acting)
    if acting.row.status not in TERMINAL:
        raise InvalidTransition(f"Run {short_id(acting.row)} is still active.")


def _started(session: AgentSession) -> Done:
    return Done(f"Run {session.public_id} has started.", {"session": str(session.public_id)}, session)


def _inputs_seen(acting: Acting) -> tuple[str, ...]:
    on_kind, _, key = acting.arguments.get("on", "").partition(":")
    source = (f"reads: {on_kind} {_row(on_kind, key, acting.by, acting.now).name}",) if on_kind else ()
    goal = acting.arguments.get("goal", "")
    return (*source, *([f"goal: {one_line(goal, _REASON_CHARS)}"] if goal else []))


def _draft_schedule(acting: Acting) -> Done:
    given = acting.arguments
    rows = {kind: _row(kind, key, acting.by, acting.now) for kind, key in _refs(given)}
    existing = _same_draft(given["cron"], rows, acting.by)
    trigger = existing or trigger_create(
        owner=acting.by,
        kind="schedule",
        name=one_line(given["title"], _NAME_CHARS),
        by=acting.by,
        now=acting.now,
        cron=given["cron"],
        zone="UTC",
        enabled=False,
        **rows,
    )
    text = f"{'Already drafted' if existing else 'Drafted'}, and switched off: {trigger.name}. Enable it on its page."
    return Done(text, {"trigger": str(trigger.public_id), "cron": trigger.cron})


def _refs(given: Mapping[str, str]) -> list[tuple[str, str]]:
    found = [given[name].partition(":") for name in ("by", "on") if given.get(name)]
    return [(kind, key) for kind, _, key in found]


def _same_draft(cron: str, rows: Mapping[str, Any], owner: User) -> Trigger | None:
    """A schedule of the person's that was drafted alike, never switched on and never run."""
    like = {"playbook": None, "skill": None, "project": None, "agent": None, "max_cost_usd": None, **rows}
    drafts = Trigger.objects.filter(owner=owner, kind="schedule", cron=cron, zone="UTC", query="", **like)
    unused = drafts.filter(enabled=False, paused_at__isnull=True, deleted_at__isnull=True, sessions__isnull=True)
    return unused.order_by("pk").first()


def _draft_agent(acting: Acting) -> Done:
    """Draft an agent with the request as its instructions. A sentence does not say what starts it."""
    given, by, now = acting.arguments, acting.by, acting.now
    agent = agent_create(owner=by, name=given["name"], by=by, now=now, enabled=False)
    definition = write_definition({"instructions": redact(given["text"]).strip()})
    agent = definition_write(agent=agent, text=definition, by=by, now=now).agent
    text = (
        f"Drafted, and switched off: agent {agent.name}, which asks before RESTRICTED calls. Give it autonomy, a "
        "sensor or a trigger in its definition, then enable it on its page."
    )
    return Done(text, {"agent": str(agent.public_id)})


# --- The table: by action and kind of row ---


_RUN_COMMAND: Final = "manage.py run_now --trigger {id} --owner {user} --user {user}"
ACTIONS: Final[Mapping[tuple[str, str], Action]] = {
    ("halt_all", ""): Action(
        "Halt everything",
        "Halts every run of this installation: no further call starts, and nothing starts until it is released. Runs "
        "that only wait for a person are paused instead.",
        "manage.py halt --all --user {user}",
        _halt_all,
        check=_may_halt_all,
        danger=True,
    ),
    ("halt_own", ""): Action(
        "Halt all my runs",
        "Halts every active run of yours. Your triggers may still fire.",
        "",
        _halt_own,
        danger=True,
    ),
    ("halt", "run"): Action(
        "Halt run {name}",
        "No further call of run {name} starts. A halt is final.",
        "manage.py halt {id} --user {user}",
        _halt_run,
        check=_is_active,
        danger=True,
    ),
    ("halt", "agent"): Action(
        "Halt the runs of {name}",
        "Halts every active run of agent {name}. Its triggers may still fire.",
        "manage.py halt --agent {id} --user {user}",
        _halt_agent,
        danger=True,
    ),
    ("approve", "approval"): Action(
        "Approve {name}",
        "Approves this one call, exactly as it is shown.",
        "manage.py approve {id} --digest {digest} --user {user}",
        lambda acting: _decide(acting, approval_approve),
        check=lambda acting: _may_decide(acting, approves=True),
        details=_call_seen,
        scope="decide",
    ),
    ("deny", "approval"): Action(
        "Deny {name}",
        "Denies this one call.",
        "manage.py deny {id} --digest {digest} --user {user}",
        lambda acting: _decide(acting, approval_reject),
        check=lambda acting: _may_decide(acting, approves=False),
        details=_call_seen,
        scope="decide",
    ),
    ("pause", "run"): Action(
        "Pause run {name}",
        "The call in flight ends, no other begins. The run goes on where it was when it is resumed.",
        "manage.py pause {id} --user {user}",
        _pause_run,
        check=_is_active,
    ),
    ("resume", "run"): Action(
        "Resume run {name}",
        "Run {name} goes on where it was.",
        "manage.py resume {id} --user {user}",
        _resume_run,
        check=_may_start,
    ),
    ("pause", "agent"): Action(
        "Pause agent {name}",
        "Puts every active run of agent {name} aside; those that start meanwhile wait. Nothing is lost.",
        "manage.py pause --agent {id} --user {user}",
        _pause_agent,
    ),
    ("resume", "agent"): Action(
        "Resume agent {name}",
        "Agent {name} works again, and its paused runs go on.",
        "",  # `resume` does not enable an agent that is disabled
        _resume_agent,
        check=_may_start,
    ),
    ("start", "agent"): Action(
        "Start {name}",
        "Starts the loop of agent {name}.",
        "manage.py agent start {id} --user {user}",
        _start_loop,
        check=_may_start_loop,
    ),
    ("stop", "agent"): Action(
        "Stop {name}",
        "Ends the loop of agent {name} at its next call.",
        "manage.py agent stop {id} --user {user}",
        _stop_loop,
        check=_has_loop,
    ),
    ("pause", "trigger"): Action(
        "Pause trigger {name}",
        "Trigger {name} starts nothing until it is resumed.",
        "manage.py pause --trigger {id} --user {user}",
        _pause_trigger,
    ),
    ("resume", "trigger"): Action(
        "Resume trigger {name}",
        "Trigger {name} fires again. What the pause skipped is not made up for.",
        "manage.py resume --trigger {id} --user {user}",
        _resume_trigger,
        check=_may_start,
    ),
    ("run", "trigger"): Action(
        "Run {name} now", "Starts one run of trigger {name}.", _RUN_COMMAND, _run_trigger, check=_may_run, once=True
    ),
    ("rerun", "run"): Action(
        "Run {name} again",
        "Starts a new run with the inputs of run {name}.",
        "",
        _rerun,
        check=_is_over,
        once=True,
    ),
    **{
        ("run", kind): Action(
            f"Run {kind} {{name}}",
            f"Starts one run of {kind} {{name}}.",
            "",
            _run_on,
            check=_may_run,
            details=_inputs_seen,
            once=True,
        )
        for kind in ("playbook", "skill")
    },
    ("goal", ""): Action(
        "Start a run for this goal",
        "Starts a run that works towards this goal, step by step.",
        "",
        _run_on,
        check=_may_run,
        details=_inputs_seen,
        once=True,
    ),
    ("draft_schedule", ""): Action(
        "Draft the schedule",
        "Makes a schedule that stays switched off until you enable it.",
        "",
        _draft_schedule,
        check=_may_start,
        details=lambda acting: (f"{acting.arguments['title']} ({acting.arguments['cron']} in UTC)",),
        once=True,
    ),
    ("draft_agent", ""): Action(
        "Draft the agent",
        "Makes an agent that stays switched off until you enable it.",
        "",
        _draft_agent,
        check=_may_start,
        details=lambda acting: (f"name: {acting.arguments['name']}",),
        once=True,
    ),
}
