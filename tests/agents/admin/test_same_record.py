"""A row action leaves exactly the audit events of the function that it calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib import admin

from agents.accounts import invitation_link, limits_set, profile_set
from agents.admin.base import DetailAdmin
from agents.conf import clock
from agents.enums import BudgetScope, Outcome, ProposalStatus, Status, TriggerKind, WaitingOn
from agents.knowledge.documents import collection_delete, document_attach, document_delete, document_detach
from agents.knowledge.findings import (
    finding_acknowledge,
    finding_assign,
    finding_comment,
    finding_dismiss,
    finding_reopen,
    finding_resolve,
)
from agents.knowledge.playbooks import playbook_delete, skill_switch
from agents.knowledge.projects import (
    memory_delete,
    memory_dismiss,
    memory_keep,
    precedent_dismiss,
    precedent_merge,
    precedent_promote,
    project_delete,
    proposal_accept,
    proposal_edit,
    proposal_reject,
    proposal_retire,
)
from agents.ledger.budgets import budget_set_cap, caps_set
from agents.ledger.declared_models import model_restore
from agents.ledger.prices import model_accept
from agents.models import (
    ApiKey,
    Budget,
    Collection,
    ContextProposal,
    DeclaredModel,
    Delegation,
    Finding,
    Memory,
    Notification,
    OutboxMessage,
    Playbook,
    Precedent,
    Project,
    PromptSkill,
    SecretBinding,
    SkillSetting,
    SuspendedModel,
)
from agents.people.access import actor_of
from agents.people.browser_sessions import browser_sessions_end
from agents.people.channels import channel_delete, channel_rotate_secret
from agents.people.delegations import delegation_end
from agents.people.identities import link_allow, links_remove
from agents.people.keys import api_key_revoke
from agents.people.notifications import notification_mark_read
from agents.people.outbox import channel_test, copy_discard, copy_replay
from agents.people.second_factor import factors_remove
from agents.roster.agents import agent_archive, agent_delete, agent_restart, agent_start, agent_stop, agent_unarchive
from agents.sensors.trial import agent_try
from agents.sessions.approval_rules import rule_create, rule_delete
from agents.sessions.approvals import Decision, approval_approve, approval_reject, tool_call_resolve
from agents.sessions.halts import sessions_halt
from agents.sessions.leases import session_try_now
from agents.sessions.pauses import agent_pause, agent_resume, session_pause, session_resume
from agents.skills.handles import secret_bind
from agents.skills.registry import installed_skills, skill_set
from agents.triggers.firing import session_restart
from agents.triggers.inputs import input_dismiss, input_retry
from agents.triggers.triggers import (
    trigger_delete,
    trigger_pause,
    trigger_resume,
    trigger_rotate_secret,
    triggers_set_cap,
)
from audit.models import AuditEvent
from tests.agents.admin.rows import (
    act_page,
    last_event,
    make_approval,
    make_call,
    make_document,
    make_playbook,
    make_skill,
    sign_in,
)
from tests.agents.autonomy import make_autonomous, make_going
from tests.factories import (
    NOW,
    make_agent,
    make_channel,
    make_project,
    make_session,
    make_trigger,
    make_unread_input,
    make_user,
    make_waiting_for_model,
    start_run,
)

pytestmark = pytest.mark.django_db

OVER = {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW}


@dataclass(frozen=True)
class Case:
    """A row for the action, the data of its form, and the call that does the same."""

    make: Callable[[Any], Any]
    service: Callable[[Any, Any, Any], Any]
    given: Callable[[Any], dict[str, Any]] = field(default=lambda row: {})


def proposal(by, status=ProposalStatus.PROPOSED, **more):
    project = Project.objects.create(owner=by, name="p", context_md="line", context_version=1)
    return ContextProposal.objects.create(owner=by, project=project, text="line", status=status, **more)


def finding(by, **fields):
    return Finding.objects.create(session=make_session(owner=by), title="t", **fields)


def precedent(by):
    return Precedent.objects.create(
        owner=by, pattern_kind="k", summary="s", summary_hash=str(Precedent.objects.count())
    )


def other_precedent(by):
    return Precedent.objects.filter(owner=by, pattern_kind="other").first() or Precedent.objects.create(
        owner=by, pattern_kind="other", summary="s", summary_hash="s"
    )


def attached(by):
    collection = Collection.objects.create(owner=by, name=f"c{Collection.objects.count()}")
    return make_document(by, collection=collection)


def own_project(by):
    return Project.objects.filter(owner=by).first() or Project.objects.create(owner=by, name="mine")


def collection_of(document):
    name = f"for {document.pk}"
    return Collection.objects.filter(name=name).first() or Collection.objects.create(owner=document.owner, name=name)


def inside(document):
    return document.attachments.get(detached_at__isnull=True).collection


def unknown(by):
    session = make_session(owner=by, status=Status.WAITING, waiting_on=WaitingOn.OPERATOR)
    return make_call(session, outcome=Outcome.UNKNOWN)


def suspended(by):
    return SuspendedModel.objects.create(model=f"m{SuspendedModel.objects.count()}", bound_usd=1, actual_usd=2)


def budget(by):
    agent = make_agent(owner=by)
    return Budget.objects.create(scope=BudgetScope.AGENT, subject_id=agent.pk, day=clock().date())


def run_again(by):
    params = {"playbook": str(make_playbook(by, f"p{Playbook.objects.count()}").public_id), "query": "late fees"}
    return make_session(owner=by, params=params, **OVER)


def key(by):
    return ApiKey.objects.create(user=by, name="k", prefix=str(ApiKey.objects.count()), hash="h", scopes=["read"])


def delegation(by):
    until = clock() + timedelta(days=1)
    return Delegation.objects.create(owner=make_user(), delegate=by, until=until, created_at=NOW)


def make_linked(by):
    user = make_user()
    user.socialaccount_set.create(provider="sso", uid=str(user.pk))
    return user


def make_invited():
    user = make_user()
    user.set_unusable_password()
    user.save()
    return user


def dead_letter(by):
    notice = Notification.objects.create(owner=by, title="t")
    return OutboxMessage.objects.create(channel=make_channel(by), notification=notice, status="failed")


def paused(by):
    return make_trigger(
        owner=by, playbook=make_playbook(by, f"p{Playbook.objects.count()}"), paused_at=NOW, pause_reason="by_hand"
    )


def callable_skill(by, **fields):
    """The setting of an installed skill, not saved yet."""
    name = next(name for name in installed_skills() if not SkillSetting.objects.filter(name=name).exists())
    return SkillSetting.objects.create(name=name, **fields)


def set_skill(row, by, now, **changes):
    return skill_set(name=row.name, declared=installed_skills()[row.name].level, by=by, now=now, **changes)


def make_factor():
    return Authenticator.objects.create(user=make_user(), type="totp", data={})


WATCHING = "sensors: [{name: box, type: watch, source: {path: box}}]"
CASES = {
    ("delegation", "end"): Case(delegation, lambda row, by, now: delegation_end(delegation=row, by=by, now=now)),
    ("channel", "test"): Case(make_channel, lambda row, by, now: channel_test(channel=row, by=by, now=now)),
    ("channel", "rotate_secret"): Case(
        make_channel, lambda row, by, now: channel_rotate_secret(channel=row, by=by, now=now)
    ),
    ("channel", "delete"): Case(make_channel, lambda row, by, now: channel_delete(channel=row, by=by, now=now)),
    ("outboxmessage", "replay"): Case(dead_letter, lambda row, by, now: copy_replay(copy=row, by=by, now=now)),
    ("outboxmessage", "discard"): Case(dead_letter, lambda row, by, now: copy_discard(copy=row, by=by, now=now)),
    ("agent", "halt"): Case(
        lambda by: make_session(owner=by, agent=make_agent(owner=by)).agent,
        lambda row, by, now: sessions_halt([row.sessions.get().pk], by=by, reason="r", now=now),
        lambda row: {"reason": "r"},
    ),
    ("agent", "delete"): Case(
        lambda by: make_agent(owner=by), lambda row, by, now: agent_delete(agent=row, by=by, now=now)
    ),
    ("agent", "start"): Case(
        lambda by: make_autonomous(owner=by), lambda row, by, now: agent_start(agent=row, by=by, now=now)
    ),
    ("agent", "try"): Case(
        lambda by: make_autonomous(WATCHING, owner=by), lambda row, by, now: agent_try(agent=row, by=by, now=now)
    ),
    ("agent", "stop"): Case(
        lambda by: make_going(make_autonomous(owner=by)).agent,
        lambda row, by, now: agent_stop(agent=row, by=by, now=now),
    ),
    ("agent", "restart"): Case(
        lambda by: make_going(make_autonomous(owner=by)).agent,
        lambda row, by, now: agent_restart(agent=row, by=by, now=now),
    ),
    ("agent", "archive"): Case(
        lambda by: make_going(make_autonomous(owner=by)).agent,
        lambda row, by, now: agent_archive(agent=row, by=by, now=now),
    ),
    ("agent", "unarchive"): Case(
        lambda by: make_agent(owner=by, enabled=False, archived_at=clock()),
        lambda row, by, now: agent_unarchive(agent=row, by=by, now=now),
    ),
    ("agentsession", "halt"): Case(
        lambda by: make_session(owner=by),
        lambda row, by, now: sessions_halt([row.pk], by=by, reason="r", now=now),
        lambda row: {"reason": "r"},
    ),
    ("agentsession", "pause"): Case(
        lambda by: make_session(owner=by),
        lambda row, by, now: session_pause(row.pk, by=by, reason="r", now=now),
        lambda row: {"reason": "r"},
    ),
    ("agentsession", "resume"): Case(
        lambda by: session_pause(make_session(owner=by).pk, by=None, now=clock()),
        lambda row, by, now: session_resume(row.pk, by=by, now=now),
    ),
    ("agent", "pause"): Case(
        lambda by: make_session(owner=by, agent=make_agent(owner=by)).agent,
        lambda row, by, now: agent_pause(agent=row, by=by, reason="r", now=now),
        lambda row: {"reason": "r"},
    ),
    ("agent", "resume"): Case(
        lambda by: agent_pause(agent=make_agent(owner=by), by=None, now=clock()).pause.agent,
        lambda row, by, now: agent_resume(agent=row, by=by, now=now),
    ),
    ("agentsession", "try_now"): Case(
        lambda by: make_waiting_for_model(owner=by),
        lambda row, by, now: session_try_now(row.pk, by=by, now=now),
    ),
    ("agentsession", "restart"): Case(run_again, lambda row, by, now: session_restart(session=row, by=by, now=now)),
    ("apikey", "revoke"): Case(key, lambda row, by, now: api_key_revoke(key=row, by=by, now=now)),
    ("approval", "approve"): Case(
        lambda by: make_approval(),
        lambda row, by, now: approval_approve(row.pk, by=by, digest=row.digest, now=now),
        lambda row: {f"digest_{row.pk}": row.digest},
    ),
    ("approval", "deny"): Case(
        lambda by: make_approval(),
        lambda row, by, now: approval_reject(row.pk, by=by, digest=row.digest, now=now),
        lambda row: {f"digest_{row.pk}": row.digest},
    ),
    ("budget", "set_cap"): Case(
        budget,
        lambda row, by, now: budget_set_cap(
            scope=BudgetScope.AGENT, subject_id=row.subject_id, cap_usd=Decimal(3), by=by, now=now
        ),
        lambda row: {"cap": "3"},
    ),
    **{
        (name, "caps"): Case(
            make,
            lambda row, by, now: caps_set(
                subject=row, by=by, now=now, max_cost_per_day_usd=Decimal(2), max_cost_per_month_usd=Decimal(30)
            ),
            lambda row: {"max_cost_per_day_usd": "2", "max_cost_per_month_usd": "30"},
        )
        for name, make in {
            "agent": lambda by: make_agent(owner=by),
            "trigger": lambda by: make_trigger(owner=by),
            "project": make_project,
            "user": lambda by: make_user(),
        }.items()
    },
    ("collection", "delete"): Case(
        lambda by: inside(attached(by)), lambda row, by, now: collection_delete(collection=row, by=by, now=now)
    ),
    ("approvalrule", "delete"): Case(
        lambda by: rule_create(by=None, now=NOW, name="Rule", effect="ask", enabled=True),
        lambda row, by, now: rule_delete(row, by=by, now=now),
    ),
    ("contextproposal", "accept"): Case(proposal, lambda row, by, now: proposal_accept(proposal=row, by=by, now=now)),
    ("contextproposal", "reject"): Case(proposal, lambda row, by, now: proposal_reject(proposal=row, by=by, now=now)),
    ("contextproposal", "edit"): Case(
        proposal,
        lambda row, by, now: proposal_edit(proposal=row, text="Other words.", by=by, now=now),
        lambda row: {"text": "Other words."},
    ),
    ("contextproposal", "retire"): Case(
        lambda by: proposal(by, ProposalStatus.ACCEPTED, applied_version=1),
        lambda row, by, now: proposal_retire(proposal=row, by=by, now=now),
    ),
    ("document", "attach"): Case(
        make_document,
        lambda row, by, now: document_attach(document=row, collection=collection_of(row), by=by, now=now),
        lambda row: {"collection": collection_of(row).pk},
    ),
    ("document", "detach"): Case(
        attached,
        lambda row, by, now: document_detach(document=row, collection=inside(row), by=by, now=now),
        lambda row: {"collection": inside(row).pk},
    ),
    ("document", "delete"): Case(attached, lambda row, by, now: document_delete(document=row, by=by, now=now)),
    ("finding", "acknowledge"): Case(finding, lambda row, by, now: finding_acknowledge(finding=row, by=by, now=now)),
    ("finding", "resolve"): Case(finding, lambda row, by, now: finding_resolve(finding=row, by=by, now=now)),
    ("finding", "dismiss"): Case(
        finding,
        lambda row, by, now: finding_dismiss(finding=row, reason="Usual here", by=by, now=now),
        lambda row: {"reason": "Usual here", "teach": "on"},
    ),
    ("finding", "reopen"): Case(
        lambda by: finding(by, state="resolved"), lambda row, by, now: finding_reopen(finding=row, by=by, now=now)
    ),
    ("finding", "assign"): Case(
        finding,
        lambda row, by, now: finding_assign(finding=row, assignee=by, by=by, now=now),
        lambda row: {"assignee": row.session.owner_id},
    ),
    ("finding", "comment"): Case(
        finding,
        lambda row, by, now: finding_comment(finding=row, text="Right", by=by, now=now),
        lambda row: {"text": "Right"},
    ),
    ("memory", "keep"): Case(
        lambda by: Memory.objects.create(owner=by, content="c"),
        lambda row, by, now: memory_keep(memory=row, by=by, now=now, content="d"),
        lambda row: {"content": "d"},
    ),
    ("memory", "dismiss"): Case(
        lambda by: Memory.objects.create(owner=by, content="c"),
        lambda row, by, now: memory_dismiss(memory=row, by=by, now=now),
    ),
    ("memory", "delete"): Case(
        lambda by: Memory.objects.create(owner=by, content="c"),
        lambda row, by, now: memory_delete(memory=row, by=by, now=now),
    ),
    ("notification", "read"): Case(
        lambda by: Notification.objects.create(owner=by, title="t"),
        lambda row, by, now: notification_mark_read(notification=row, by=by, now=now),
    ),
    ("playbook", "delete"): Case(
        lambda by: make_playbook(by, f"p{Playbook.objects.count()}"),
        lambda row, by, now: playbook_delete(row, by=by, now=now),
    ),
    ("precedent", "promote"): Case(
        precedent,
        lambda row, by, now: precedent_promote(precedent=row, project=own_project(by), by=by, now=now),
        lambda row: {"project": own_project(row.owner).pk},
    ),
    ("precedent", "merge"): Case(
        precedent,
        lambda row, by, now: precedent_merge(precedent=row, into=other_precedent(by), by=by, now=now),
        lambda row: {"into": other_precedent(row.owner).pk},
    ),
    ("precedent", "dismiss"): Case(precedent, lambda row, by, now: precedent_dismiss(precedent=row, by=by, now=now)),
    ("project", "delete"): Case(
        lambda by: Project.objects.create(owner=by, name="p"),
        lambda row, by, now: project_delete(project=row, by=by, now=now),
    ),
    ("promptskill", "enable"): Case(
        lambda by: make_skill(name=f"s{PromptSkill.objects.count()}", enabled=False),
        lambda row, by, now: skill_switch(row, enabled=True, by=by, now=now),
    ),
    ("promptskill", "disable"): Case(
        lambda by: make_skill(name=f"s{PromptSkill.objects.count()}"),
        lambda row, by, now: skill_switch(row, enabled=False, by=by, now=now),
    ),
    ("secretbinding", "set_hosts"): Case(
        lambda by: SecretBinding.objects.create(name=f"s{SecretBinding.objects.count()}", hosts=["shop.example.org"]),
        lambda row, by, now: secret_bind(name=row.name, hosts=["*.shop.example.org"], by=by, now=now),
        lambda row: {"hosts": "*.shop.example.org"},
    ),
    ("skillsetting", "enable"): Case(
        lambda by: callable_skill(by, enabled=False), lambda row, by, now: set_skill(row, by, now, enabled=True)
    ),
    ("skillsetting", "disable"): Case(callable_skill, lambda row, by, now: set_skill(row, by, now, enabled=False)),
    ("skillsetting", "set_level"): Case(
        callable_skill,
        lambda row, by, now: set_skill(row, by, now, level="PRIVILEGED"),
        lambda row: {"level": "PRIVILEGED"},
    ),
    ("skillsetting", "set_limit"): Case(
        callable_skill, lambda row, by, now: set_skill(row, by, now, hourly_limit=3), lambda row: {"hourly_limit": "3"}
    ),
    ("skillsetting", "clear_limit"): Case(
        lambda by: callable_skill(by, hourly_limit=3),
        lambda row, by, now: set_skill(row, by, now, hourly_limit=None),
    ),
    ("declaredmodel", "delete"): Case(
        lambda by: DeclaredModel.objects.create(model=f"m{DeclaredModel.objects.count()}", changed_at=clock()),
        lambda row, by, now: model_restore(model=row.model, actor=actor_of(by), now=now),
    ),
    ("suspendedmodel", "accept"): Case(
        suspended, lambda row, by, now: model_accept(model=row.model, actor=actor_of(by), now=now)
    ),
    ("toolcall", "happened"): Case(
        unknown, lambda row, by, now: tool_call_resolve(row.pk, Decision.HAPPENED, by=by, now=now)
    ),
    ("toolcall", "did_not_happen"): Case(
        unknown, lambda row, by, now: tool_call_resolve(row.pk, Decision.DID_NOT_HAPPEN, by=by, now=now)
    ),
    ("trigger", "run_now"): Case(
        lambda by: make_trigger(
            owner=by, query="late fees", playbook=make_playbook(by, f"p{Playbook.objects.count()}")
        ),
        lambda row, by, now: start_run(owner=row.owner, by=by, now=now, trigger=row),
    ),
    ("trigger", "set_cap"): Case(
        lambda by: make_trigger(owner=by),
        lambda row, by, now: triggers_set_cap(triggers=[row], cap=Decimal(2), by=by, now=now),
        lambda row: {"cap": "2"},
    ),
    ("trigger", "pause"): Case(
        lambda by: make_trigger(owner=by), lambda row, by, now: trigger_pause(trigger=row, by=by, now=now)
    ),
    ("trigger", "resume"): Case(paused, lambda row, by, now: trigger_resume(trigger=row, by=by, now=now)),
    ("trigger", "rotate"): Case(
        lambda by: make_trigger(owner=by, kind=TriggerKind.EVENT),
        lambda row, by, now: trigger_rotate_secret(trigger=row, by=by, now=now),
    ),
    ("trigger", "delete"): Case(
        lambda by: make_trigger(owner=by), lambda row, by, now: trigger_delete(trigger=row, by=by, now=now)
    ),
    ("unreadinput", "retry"): Case(
        make_unread_input, lambda row, by, now: input_retry(unread_input=row, by=by, now=now)
    ),
    ("unreadinput", "dismiss"): Case(
        make_unread_input, lambda row, by, now: input_dismiss(unread_input=row, by=by, now=now)
    ),
    ("user", "opt_in"): Case(
        lambda by: make_user(opted_in=False),
        lambda row, by, now: profile_set(user=row, opted_in=True, by=by, now=now),
    ),
    ("user", "invite_again"): Case(
        lambda by: make_invited(), lambda row, by, now: invitation_link(user=row, by=by, now=now)
    ),
    ("user", "opt_out"): Case(
        lambda by: make_user(), lambda row, by, now: profile_set(user=row, opted_in=False, by=by, now=now)
    ),
    ("user", "sign_out"): Case(
        lambda by: make_user(), lambda row, by, now: browser_sessions_end(user=row, by=by, now=now)
    ),
    ("user", "allow_sso"): Case(
        lambda by: make_user(email="ada@example.org"), lambda row, by, now: link_allow(user=row, by=by, now=now)
    ),
    ("user", "remove_sso"): Case(make_linked, lambda row, by, now: links_remove(user=row, by=by, now=now)),
    ("user", "ceilings"): Case(
        lambda by: make_user(),
        lambda row, by, now: limits_set(user=row, mode="manual", max_cost_usd=Decimal(2), by=by, now=now),
        lambda row: {"mode": "manual", "max_cost_usd": "2"},
    ),
    ("user", "remove_factors"): Case(
        lambda by: make_factor().user, lambda row, by, now: factors_remove(user=row, by=by, now=now)
    ),
}
# Reads the files of a skill: tests/agents/admin/test_playbooks.py shows that one with real folders.
# Who started an agent is recorded by the worker that takes its loop: tests/agents/admin/test_autonomy.py.
ELSEWHERE = {("promptskill", "accept")}


def test_every_row_action_has_a_case():
    pages = [page for page in admin.site._registry.values() if isinstance(page, DetailAdmin)]
    acts = {(page.opts.model_name, act.name) for page in pages for act in page.row_actions}

    assert acts == CASES.keys() | ELSEWHERE


def record_since(pk):
    """The events since then, without views, which test_view_audit.py covers."""
    events = AuditEvent.objects.filter(pk__gt=pk).exclude(kind__in=("session.viewed", "row.viewed")).order_by("pk")
    return [(event.kind, event.actor, event.subject.partition(":")[0], sorted(event.details)) for event in events]


def test_page_leaves_the_same_events_as_the_function(client, some):
    by = sign_in(client)
    for name, case in some(CASES.items(), 6):
        client.cookies.pop("messages", None)  # what was told of the act before
        for_page, for_service = case.make(by), case.make(by)
        before = last_event()

        look = client.get(act_page(for_page, name[1]))
        assert look.status_code == 200, name
        assert look.context["action"].title in look.content.decode(), name
        assert record_since(before) == [], name

        answer = client.post(act_page(for_page, name[1]), {"confirmed": "1", "note": "", **case.given(for_page)})
        by_page = record_since(before)
        before = last_event()
        case.service(for_service, by, clock())

        assert answer.status_code in {200, 302}, name
        assert by_page, name
        assert by_page == record_since(before), name


def test_audit_event_names_the_request(client):
    by = sign_in(client)
    row = make_trigger(owner=by)

    answer = client.post(act_page(row, "pause"), {"confirmed": "1"}, headers={"X-Request-ID": "req-41"})

    assert answer.headers["X-Request-ID"] == "req-41"
    assert AuditEvent.objects.get(kind="autonomous_trigger.paused").request_id == "req-41"


def test_permission_lost_before_the_post_is_refused(client):
    by = sign_in(client, "operator")
    row = make_trigger()
    assert client.get(act_page(row, "pause")).status_code == 200
    by.groups.clear()

    assert client.post(act_page(row, "pause"), {"confirmed": "1"}).status_code == 403
    row.refresh_from_db()
    assert row.paused_at is None
