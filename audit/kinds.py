"""The closed set of audit event kinds: name, sentence, and the details an event may carry.

Details are counts, ids, labels and costs, never content. A kind or a detail that is not in this table is refused before
anything is written. Also finds the usernames for the user ids in events.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from string import Formatter
from types import MappingProxyType
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

SESSION_PREFIX = "autonomous_session."
TOOL_CALL: Final = f"{SESSION_PREFIX}tool_call"  # twice for every call, so most events are of this kind
# No spaces and no quotes: an id, a label or an amount fits, a sentence from a document does not.
LABEL = re.compile(r"[\w.:/@+-]{0,128}", re.ASCII)


class UnknownAuditKind(ValueError):
    """The kind is not in the table."""


class AuditDetailRefused(ValueError):
    """A detail is not declared for its kind, or is not a count, id, label or cost."""


@dataclass(frozen=True)
class Kind:
    """One kind of audit event; `details` are the keys it may carry."""

    name: str
    sentence: str
    details: frozenset[str]
    terminal: bool = False


def _kind(name: str, sentence: str, *, terminal: bool = False, also: str = "") -> Kind:
    named = {field for _, field, _, _ in Formatter().parse(sentence) if field}
    return Kind(name, sentence, frozenset(named | set(also.split())), terminal)


_TOTALS = "result charged_usd actual_usd tokens calls"
_REFUSED = "tool name model phase brake"  # the call at which a brake ended the run

_KINDS = (
    # Runs
    _kind(
        "autonomous_session.started",
        "Run started: {mode}, cost cap {max_cost_usd} USD.",
        also="owner_id agent_id asked_by trigger_kind trigger_ref restarted_from parent_id project_id "
        "definition_version definition_digest",
    ),
    _kind("ask.confirmed", "Proposed action confirmed: {action}.", also="digest"),
    _kind("run.handed_on", "The run started run {child_id}, with {cap_usd} USD of its own cap."),
    _kind("run.handed_back", "Run {child_id} is over; {rest_usd} USD of its cap came back."),
    _kind("loop.instructed", "Chat {chat_id} passed an instruction to loop {loop_id}.", also="alert_id"),
    _kind("loop.state_set", "Chat {chat_id} set the field {name} of loop {loop_id}."),
    _kind("session.try_now", "Model {model} is to be tried again at once."),
    _kind(
        "autonomous_session.resumed",
        "Run picked up by a worker: {cause}. Workers lost so far: {recoveries}.",
        also="fencing",
    ),
    _kind("autonomous_session.phase_transition", "The run entered phase {to_phase}.", also="from_phase"),
    _kind(
        TOOL_CALL,
        "{tool}: {outcome}.",
        also="call_id name phase cost_usd actual_usd model detail brake budget projected_usd cap_usd approval_id "
        "anonymize instead_of skill_audit",
    ),
    _kind("autonomous_session.pause_requested", "A pause was requested.", also="pause_id scope reason_digest"),
    _kind("autonomous_session.resume_requested", "The pause ended.", also="pause_id scope"),
    _kind("autonomous_session.halt_requested", "A halt was requested.", also="halt_id scope reason_digest"),
    _kind(
        "autonomous_session.halted",
        "The run was halted: {reason}.",
        terminal=True,
        also=f"{_TOTALS} {_REFUSED} halt_id reason_digest detail",
    ),
    _kind(
        "autonomous_session.cost_cap_reached",
        "The run was halted: the next call would bring it to {projected_usd} USD, above its cap of {cap_usd} USD.",
        terminal=True,
        also=f"{_TOTALS} {_REFUSED} reason",
    ),
    _kind("autonomous_session.completed", "Run ended: {reason}.", terminal=True, also=_TOTALS),
    _kind("autonomous_session.failed", "The run failed: {reason}.", terminal=True, also=f"{_TOTALS} error_type"),
    _kind(
        "session.inputs",
        "Inputs: project context version {context_version}, memories: {memories}.",
        also="project_id memory_ids precedent_ids playbook_id playbook_version playbook_digest skill_id "
        "skill_version skill_digest goal_digest",
    ),
    _kind("session.paused", "The watchdog found the run idle for {idle_seconds} seconds."),
    _kind("session.viewed", "Session {session_id} was viewed by somebody other than its owner."),
    _kind("row.viewed", "{resource} {resource_id} was viewed by somebody other than its owner."),
    _kind("row.listed", "Other users' rows were listed: {resource}.", also="owner_id"),
    # Calls that a crash left open
    _kind("tool_call.resolved", "A person decided that call {call_id} {decision}.", also="tool"),
    # Approvals and questions
    _kind("approval.requested", "Approval {approval_id} was requested.", also="action digest level risk call_key"),
    _kind(
        "approval.yes",
        "A yes for approval {approval_id}: {yes} of {needed}.",
        also="digest old_digest four_eyes for_user key_id",
    ),
    _kind(
        "approval.approved",
        "Approval {approval_id} was granted.",
        also="digest standing_id four_eyes yes needed for_user key_id",
    ),
    _kind(
        "approval.edited",
        "Approval {approval_id} was granted with changed arguments.",
        also="digest old_digest four_eyes for_user key_id",
    ),
    _kind("approval.rejected", "Approval {approval_id} was denied.", also="digest for_user key_id"),
    _kind("approval.expired", "Approval {approval_id} expired.", also="digest"),
    _kind("approval.cancelled", "Approval {approval_id} was cancelled.", also="digest cause"),
    _kind("approval.consumed", "Approval {approval_id} was used by call {call_id}.", also="digest"),
    _kind(
        "approval.standing_created",
        "Standing approval {standing_id} was granted for {action}, {uses} uses.",
        also="digest approval_id key_id",
    ),
    _kind("question.asked", "The run asked question {question_id}."),
    _kind("question.closed", "Question {question_id} was {status}.", also="key_id"),
    _kind("question.reminded", "The owner was reminded of question {question_id}.", also="reminder"),
    _kind(
        "skill.set",
        "Skill {skill} was configured: level {level}, enabled {enabled}, at most {hourly_limit} calls an hour.",
    ),
    _kind(
        "approval.escalated",
        "Nobody had decided on approval {approval_id}: the role {role} was told.",
        also="people digest",
    ),
    _kind("approval.reminded", "The approvers were reminded of approval {approval_id}.", also="reminder digest"),
    # Triggers
    _kind("autonomous_trigger.created", "Trigger {trigger_id} ({kind}) was created.", also="cap_usd agent_id"),
    _kind("autonomous_trigger.edited", "Trigger {trigger_id} was changed.", also="fields"),
    _kind("autonomous_trigger.deleted", "Trigger {trigger_id} was deleted."),
    _kind("autonomous_trigger.cap_set", "The cap of trigger {trigger_id} was set.", also="cap_usd old_cap_usd"),
    _kind("autonomous_trigger.fired", "Trigger {trigger_id} started session {session_id}.", also="slot kind depth"),
    _kind("autonomous_trigger.refused", "Trigger {trigger_id} did not start a run: {reason}.", also="slot depth"),
    _kind("autonomous_trigger.paused", "Trigger {trigger_id} was paused: {reason}.", also="runs with_runs"),
    _kind("autonomous_trigger.resumed", "Trigger {trigger_id} was resumed."),
    _kind("autonomous_trigger.secret_rotated", "Trigger {trigger_id} has a new signing secret.", also="generation"),
    _kind(
        "autonomous_trigger.run_now",
        "A manual run was started: session {session_id}.",
        also="trigger_id playbook_id skill_id collection_id project_id cap_usd",
    ),
    _kind("autonomous_schedule.skipped", "A run of schedule {trigger_id} was skipped: {reason}.", also="slot missed"),
    _kind("autonomous_event.received", "Event {event_id} was received: {outcome}.", also="trigger_id session_id"),
    # Findings, precedents, proposals, memories, notifications, projects
    _kind("finding.acknowledged", "Finding {finding_id} was acknowledged.", also="session_id"),
    _kind("finding.dismissed", "Finding {finding_id} was dismissed.", also="session_id precedent_id"),
    _kind("finding.resolved", "Finding {finding_id} was resolved.", also="session_id"),
    _kind("finding.expired", "Finding {finding_id} expired: nobody had come for it.", also="session_id"),
    _kind("finding.reopened", "Finding {finding_id} was reopened.", also="session_id precedent_id"),
    _kind("finding.assigned", "Finding {finding_id} was assigned to user {assignee_id}.", also="session_id"),
    _kind("finding.commented", "A comment on finding {finding_id} was written.", also="session_id comment_id"),
    _kind("finding.exported", "{rows} findings were exported."),
    _kind("autonomous_precedent.promote", "Precedent {precedent_id} was proposed for a project.", also="proposal_id"),
    _kind("autonomous_precedent.dismiss", "Precedent {precedent_id} was dismissed."),
    _kind("autonomous_precedent.merge", "Precedent {precedent_id} was merged into {into}."),
    _kind("autonomous_precedent.expire", "Precedent {precedent_id} expired: it was not seen again."),
    _kind("project_context_proposal.edit", "The line of proposal {proposal_id} was changed.", also="project_id"),
    _kind("project_context_proposal.accept", "Proposal {proposal_id} was accepted.", also="project_id context_version"),
    _kind("project_context_proposal.reject", "Proposal {proposal_id} was rejected.", also="project_id"),
    _kind("project_context_proposal.retire", "Proposal {proposal_id} was retired.", also="project_id context_version"),
    _kind("autonomous_memory.keep", "Memory {memory_id} was kept.", also="edited"),
    _kind("autonomous_memory.dismiss", "Memory {memory_id} was dismissed."),
    _kind("autonomous_memory.delete", "Memory {memory_id} was deleted."),
    _kind("notification.read", "Notification {notification_id} was read."),
    _kind("project.created", "Project {project_id} was created."),
    _kind("project.edited", "Project {project_id} was changed.", also="fields context_version"),
    _kind("project.deleted", "Project {project_id} was deleted."),
    # Documents, playbooks, skills, agents
    _kind("collection.created", "Collection {collection_id} was created."),
    _kind("collection.edited", "Collection {collection_id} was changed.", also="fields"),
    _kind("collection.deleted", "Collection {collection_id} was deleted."),
    _kind("document.added", "Document {document_id} was added.", also="digest size origin session_id"),
    _kind("document.attached", "Document {document_id} was added to collection {collection_id}.", also="attachment_id"),
    _kind("document.detached", "Document {document_id} was removed from collection {collection_id}."),
    _kind("document.deleted", "Document {document_id} was deleted."),
    _kind("documents.index_deleted", "The index of {vectors} passages of user {owner_id} was deleted."),
    _kind("playbook.created", "Playbook {playbook_id} was created.", also="version digest positions"),
    _kind("playbook.edited", "Playbook {playbook_id} is now at version {version}.", also="digest positions"),
    _kind("playbook.deleted", "Playbook {playbook_id} was deleted."),
    _kind("approval_rule.created", "Approval rule {rule_id} was written.", also="version effect enabled digest"),
    _kind("approval_rule.changed", "Approval rule {rule_id} was changed.", also="version effect enabled digest"),
    _kind("approval_rule.deleted", "Approval rule {rule_id} was deleted.", also="version effect enabled digest"),
    _kind("approval_rule.tried", "An approval rule was tried on {calls} calls; it fits {fitting}.", also="days"),
    _kind(
        "approval_rule.allowed", "Approval rule {rule_id} allowed a call of {action}.", also="version call_key digest"
    ),
    _kind("skill.loaded", "Skill {skill} was loaded.", also="digest version"),
    _kind("skill.changed", "The files of skill {skill} changed; it does not run until accepted.", also="digest"),
    _kind("skill.accepted", "Skill {skill} was accepted.", also="digest version"),
    _kind("skill.enabled", "Skill {skill} was switched, enabled: {enabled}."),
    _kind("agent.created", "Agent {agent_id} was created.", also="mode cap_usd allow_high_risk waived_skills"),
    _kind("agent.started", "Agent {agent_id} was started."),
    _kind("agent.stopped", "Agent {agent_id} was stopped."),
    _kind("agent.edited", "Agent {agent_id} was changed.", also="fields mode cap_usd allow_high_risk waived_skills"),
    _kind(
        "agent.defined",
        "Agent {agent_id} uses version {version} of its definition.",
        also="digest sensors broken_sensors triggers",
    ),
    _kind("agent.paused", "Agent {agent_id} was paused.", also="pause_id reason_digest"),
    _kind("agent.resumed", "Agent {agent_id} was resumed.", also="pause_id"),
    _kind("agent.deleted", "Agent {agent_id} was deleted."),
    _kind("agent.archived", "Agent {agent_id} was archived."),
    _kind("agent.unarchived", "Agent {agent_id} was brought back from the archive."),
    # API keys and sign-in
    _kind("api_key.created", "API key {key_id} was created for user {user_id}.", also="scopes"),
    _kind("api_key.revoked", "API key {key_id} was revoked."),
    _kind("sign_in.refused", "Sign-in was blocked for a while, by {scope}, after {tries} tries.", also="address"),
    _kind("sign_in.done", "User {user_id} signed in: {how}.", also="address"),
    _kind("sign_in.failed", "A sign-in failed: {what}.", also="user_id address"),
    _kind(
        "sign_in.proof_wanted",
        "Single sign-on was kept from user {user_id} until they prove it is theirs.",
        also="address",
    ),
    _kind("factor.added", "User {user_id} added a second factor: {type} {factor_id}."),
    _kind("factor.removed", "User {user_id} removed a second factor: {type} {factor_id}."),
    _kind("factor.recovery_code_used", "User {user_id} used a recovery code; {left} are left."),
    _kind("sign_in.cleared", "{counts} counts of failed sign-ins were reset."),
    # Money
    _kind("budget.warned", "Budget {budget} reached {percent} % of {cap_usd} USD.", also="spent_usd"),
    _kind("budget.cap_set", "The cap of {budget} was set to {cap_usd} USD.", also="old_cap_usd"),
    _kind("model_price.set", "The price of {model} was declared.", also="input_usd output_usd overhead_tokens"),
    _kind(
        "model.suspended",
        "Model {model} was suspended: a call cost {actual_usd} USD, its bound was {bound_usd} USD.",
        also="call_id",
    ),
    _kind("model.accepted", "Model {model} was accepted again."),
    _kind("model.try_now", "Model {model} is to be tried again at once."),
    _kind(
        "model.declared",
        "Model {model} was changed in the admin: {keys}.",
        also="digest host name key_env context_window roles fallback",
    ),
    _kind("model.restored", "What was set of model {model} in the admin was removed."),
    _kind("model.tested", "Model {model} was tested by run {session_id}."),
    _kind("model.away", "Model {model} did not answer; runs wait for it."),
    _kind("model.back", "Model {model} answered again after {seconds} seconds."),
    _kind("input.given_up", "What run {session_id} was to read was given up: {reason}.", also="trigger_id tries"),
    _kind("input.retried", "What run {session_id} did not read is to be read again.", also="trigger_id tries"),
    _kind("input.dismissed", "What run {session_id} did not read was dismissed.", also="trigger_id tries"),
    _kind(
        "citation_ensemble.fallback",
        "Verification fell back to one judge: {judges} judges on {citations} citations would cost {projected_usd} USD.",
        also="cap_usd judge",
    ),
    # The installation and its people
    _kind("organisation.halted", "All work was halted.", also="halt_id sessions reason_digest"),
    _kind("organisation.paused", "All work was paused.", also="pause_id reason_digest"),
    _kind("organisation.resumed", "All work was resumed.", also="pause_id"),
    _kind("organisation.released", "The halt of all work was released.", also="halt_id"),
    _kind("people.opted_in", "User {user_id} opted in to unattended runs."),
    _kind("people.opted_out", "User {user_id} opted out of unattended runs."),
    _kind("people.email_notices_set", "E-mail notifications of user {user_id} were switched, enabled: {enabled}."),
    _kind("budget.told", "People were told that {percent} % of budget {budget} is spent."),
    _kind("channel.created", "Channel {channel_id} of user {owner_id} was added: {channel_kind}."),
    _kind("channel.changed", "Channel {channel_id} of user {owner_id} was changed: {fields}.", also="enabled"),
    _kind("channel.deleted", "Channel {channel_id} of user {owner_id} was deleted."),
    _kind(
        "channel.secret_rotated", "The signing secret of channel {channel_id} was replaced.", also="owner_id generation"
    ),
    _kind("channel.tested", "Channel {channel_id} was tested, delivered: {ok}."),
    _kind("channel.failing", "Channel {channel_id} failed {failures} times in a row; it gets nothing more."),
    _kind("delivery.replayed", "Delivery {delivery_id} is to be sent again."),
    _kind("delivery.discarded", "Delivery {delivery_id} was discarded."),
    _kind("delegation.created", "User {delegate_id} decides for user {owner_id} until {until}.", also="delegation_id"),
    _kind("delegation.ended", "User {delegate_id} no longer decides for user {owner_id}.", also="delegation_id"),
    _kind("view.saved", "View {view_id} of the list {list} was saved, shared: {shared}."),
    _kind("view.deleted", "View {view_id} of the list {list} was deleted."),
    _kind("people.invited", "User {user_id} was invited in the role {role}."),
    _kind("people.invitation_made", "A link to set the first password of user {user_id} was made."),
    _kind("people.user_added", "User {user_id} was added.", also="groups"),
    _kind("people.user_edited", "User {user_id} was changed.", also="fields groups"),
    _kind("people.password_set", "The password of user {user_id} was set."),
    _kind("people.factors_removed", "The second factors of user {user_id} were removed: {factors}.", also="sessions"),
    _kind("people.signed_out", "User {user_id} was signed out of {sessions} browser sessions."),
    _kind("people.sso_allowed", "Single sign-on may be linked to user {user_id} until {until}."),
    _kind(
        "people.sso_linked", "Single sign-on opens the account of user {user_id} from now on: {how}.", also="identity"
    ),
    _kind("people.sso_removed", "{identities} links of single sign-on to user {user_id} were removed."),
    _kind(
        "people.ceilings_set",
        "The ceilings of user {user_id} were set: {fields}.",
        also="mode highest_level max_cost_usd max_cost_per_day_usd follows",
    ),
    _kind("people.group_saved", "Group {group_id} was saved with {permissions} permissions."),
    _kind("people.group_deleted", "Group {group_id} was deleted."),
    _kind("people.first_admin_created", "The first admin, user {user_id}, was created and opted in."),
    # The audit log itself
    _kind("audit.chain_opened", "Chain {opened} was opened.", also="first_hash"),
    _kind("audit.chain_closed", "Chain {closed} was closed at row {last_seq}.", also="last_hash"),
    _kind(
        "audit.restore_accepted",
        "A restore from a backup was accepted: {rows} events are missing, of {chains} signed chains and others.",
        also="first_line last_line",
    ),
    _kind("audit.checkpoint_written", "Checkpoint {number} of the audit log was signed.", also="digest file"),
    _kind("audit.key_replaced", "The key that signs checkpoints was replaced by {new_key}.", also="old_key"),
    _kind(
        "retention.pruned",
        "What ended before {before} was pruned: {runs} runs, {events} events, {rows} other rows.",
        also="segments texts",
    ),
    _kind(
        "audit.sealed",
        "Segment {seal} of the audit log was archived and sealed: {events} events of {chains} chains.",
        also="seal_digest sha256",
    ),
    _kind(
        "installation.migrated_beside",
        "The database was migrated to version {version} beside running hosts that it does not allow: {hosts}.",
    ),
    # Secrets: the name and the host, never the value
    _kind("secret.used", "Secret {secret} was used for {host}.", also="session_id call_id skill agent_id sensor"),
    _kind("secret.bound", "The hosts of secret {secret} were changed; {hosts} are named.", also="added removed"),
    _kind("audit.exported", "The audit log was exported as {format}.", also="chain since kind"),
    _kind("audit.skill_audits_sealed", "{rows} skill audits from before they were chained were sealed.", also="digest"),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _KINDS})
TERMINAL_KINDS = frozenset(kind.name for kind in _KINDS if kind.terminal)


def checked_details(kind: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details as they will be stored; refuse with the kind and the key."""
    declared = KINDS.get(kind)
    if declared is None:
        raise UnknownAuditKind(f"{kind!r} is not an audit kind; audit/kinds.py lists them all.")
    known, is_label = declared.details, LABEL.fullmatch
    for key, value in details.items():
        if key not in known:
            raise AuditDetailRefused(f"{kind}: {key!r} is not declared for this kind.")
        if type(value) is str and is_label(value):
            continue  # as most are
        for item in value if isinstance(value, list) else (value,):
            if not (is_label(item) if isinstance(item, str) else item is None or isinstance(item, int)):
                raise AuditDetailRefused(
                    f"{kind}: {key!r} must be a count, id, label or cost, not {type(item).__name__}."
                )
    return dict(details)


def sentence(kind: str, details: Mapping[str, Any]) -> str:
    """Return the sentence for an event; the name of a kind that is no longer in the table."""
    declared = KINDS.get(kind)
    if declared is None:
        return kind
    values = {name: "none" if details.get(name) is None else details[name] for name in declared.details}
    text = declared.sentence.format(**values)
    return text[:1].upper() + text[1:]


# --- Names for the ids in events; the audit log itself holds none ---

Named = Callable[[Mapping[str, Any], AbstractBaseUser | AnonymousUser], Mapping[str, Any]]
_known: list[Named] = []


def register_receipt_names(named: Named) -> None:
    """Register the function that names what a receipt refers to, as far as a user may see it."""
    _known[:] = [named]


def receipt_names(receipt: Mapping[str, Any], user: AbstractBaseUser | AnonymousUser) -> Mapping[str, Any]:
    """Return the names that this user may see beside the receipt; none without a registered function."""
    return {name: value for named in _known for name, value in named(receipt, user).items()}


HaltReasons = Callable[[Collection[int]], Mapping[int, str]]
_reasons: list[HaltReasons] = []


def register_halt_reasons(reasons: HaltReasons) -> None:
    """Register the function that returns the reasons of halts by their ids; the audit log holds their digests."""
    _reasons[:] = [reasons]


def halt_reasons(ids: Collection[int]) -> dict[int, str]:
    return {pk: text for reasons in _reasons for pk, text in reasons(ids).items()}


KeptReceipt = Callable[[str], Mapping[str, Any] | None]
_kept: list[KeptReceipt] = []


def register_kept_receipt(kept: KeptReceipt) -> None:
    """Register the function that returns the short receipt which an archived run has left."""
    _kept[:] = [kept]


def kept_receipt(chain: str) -> dict[str, Any] | None:
    return next((dict(found) for kept in _kept if (found := kept(chain)) is not None), None)


USER: Final = re.compile(r"\buser:(\d{1,18})\b(?::key:([0-9a-z]{1,32}))?", re.ASCII)


def usernames(actors: Iterable[str]) -> dict[str, str]:
    """Return the name for each actor that is an existing user, such as user:7, with the key that they acted by."""
    found = {actor: match for actor in set(actors) if (match := USER.fullmatch(actor))}
    users = get_user_model().objects.in_bulk([int(match[1]) for match in found.values()])
    known = {actor: (users[int(match[1])], match[2]) for actor, match in found.items() if int(match[1]) in users}
    return {
        actor: f"{user.get_username()}, by key {key}" if key else user.get_username()
        for actor, (user, key) in known.items()
    }


def actors_of(receipt: Mapping[str, Any]) -> set[str]:
    """Return every actor that a receipt names."""
    return {f"user:{receipt['owner_id']}", receipt["asked_by"] or "", *(event["actor"] for event in receipt["events"])}
