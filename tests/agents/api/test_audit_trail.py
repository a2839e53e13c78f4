"""Every act leaves the same audit events through the API as through its service; the API adds the request id.

Every route that changes something has a row in the table here; a new one without a row fails.
"""

import copy
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile

from agents import accounts
from agents.ask import entry
from agents.ask.proposals import propose, wanted_on
from agents.checks import model_test
from agents.conf import clock
from agents.definitions.playbooks import Position
from agents.enums import Level, Outcome, Status, ToolIntent
from agents.guard.calls import fitting
from agents.knowledge import documents, findings, playbooks, projects
from agents.ledger import budgets
from agents.models import ApprovalRule, ContextProposal, ToolCall
from agents.people import channels, delegations, notifications, outbox
from agents.roster import agents, files
from agents.sensors import trial
from agents.sessions import approval_rules, approvals, halts, leases, pauses, questions
from agents.skills import registry
from agents.triggers import events, firing, inputs, triggers
from audit.models import AuditEvent
from tests.factories import NOW, make_user, make_waiting_for_model, start_run

from .conftest import client_of
from .world import make_world, routes, undone

pytestmark = pytest.mark.django_db

YAML = "name: NDA\npositions:\n  - issue: Term\n    standard: Two years.\n"
# What is sent to those that change nothing, and a piece of what they answer.
NO_RECORD = {
    "event:dry_run": ({"source": "monitor"}, {"code": "would_spawn"}),
    "run-estimate:post": (
        lambda w: {name: str(w.rows[name].public_id) for name in ("playbook", "collection")},
        {"sections": 1, "section_chars": 60_000, "estimate_usd": "0.020000"},
    ),
    "search:post": ({"q": "lease"}, {"words_only": "search by meaning is not set up"}),
    "asks:post": ({"text": "Create an agent that watches prices"}, {"kind": "answer", "strategy": "SUB_AGENT"}),
}


@dataclass(frozen=True)
class Act:
    """A request, and the service call that does the same. Both get the world and the row, if any."""

    does: Any
    body: Any = None
    before: Any = None
    form: str = "json"


def public(row):
    return str(row.public_id)


def seen(world, row):
    return {"digest": row.digest, "note": "fine"}


def actor(world):
    return {"by": world.by, "now": clock()}


def unknown(world, row):
    ToolCall.objects.filter(pk=row.pk).update(outcome=Outcome.UNKNOWN, settled_at=NOW, unknown_since=NOW)


def accepted(world, row):
    projects.proposal_accept(proposal=row, **actor(world))


def dismissed(world, row):
    findings.finding_dismiss(finding=row, reason="Usual here", **actor(world))


def paused(world, row):
    triggers.trigger_pause(trigger=row, **actor(world))


def fresh_document(world, row):
    documents.document_detach(document=row, collection=world.rows["collection"], **actor(world))


def unused(world, row):
    row.triggers.all().delete()


def at_rest(world, row):
    row.definition = "autonomy: {enabled: true}"
    row.save()


def watching(world, row):
    row.definition = "sensors: [{name: box, type: watch, source: {path: box}}]"
    row.save()


def under_way(world, row):
    at_rest(world, row)
    agents.agent_start(agent=row, **actor(world))


def of_a_notice(world, row):
    row.intent = ToolIntent.NOTIFY
    row.save()


def all_halted(world, row):
    halts.halt_all_work(reason="Stop.", **actor(world))


def may_loosen(world, row):
    """Who acts sets their own ceilings, by the name that the address has."""
    world.by.user_permissions.add(*Permission.objects.filter(codename__in=("loosen", "change_profile")))
    world.by.username = "send_email"
    world.by.save()


def may_view_models(world, row):
    world.by.user_permissions.add(Permission.objects.get(codename="view_modelprice"))


def archived(world, row):
    row.enabled, row.archived_at = False, clock()
    row.save()


HOOK = "https://93.184.216.34/hook"  # needs no lookup
EDITED = {"to": "Jo", "text": "Hello"}
ACTS = {
    "agent:create": Act(lambda w, _: agents.agent_create(owner=w.by, name="A", **actor(w)), {"name": "A"}),
    "agent:partial_update": Act(
        lambda w, row: agents.agent_edit(agent=row, mode="manual", **actor(w)), {"mode": "manual"}
    ),
    **{
        f"{name}:caps": Act(
            lambda w, row: budgets.caps_set(subject=row, max_cost_per_month_usd=3, **actor(w)),
            {"max_cost_per_month_usd": "3"},
        )
        for name in ("agent", "project", "trigger")
    },
    "agent:define": Act(
        lambda w, row: files.definition_write(agent=row, text="mode: manual\n", **actor(w)),
        {"definition": "mode: manual\n"},
    ),
    "agent:import_yaml": Act(
        lambda w, _: files.agent_import(owner=w.by, text="name: A\n", **actor(w)), {"definition": "name: A\n"}
    ),
    "agent:start": Act(lambda w, row: agents.agent_start(agent=row, **actor(w)), before=at_rest),
    "agent:stop": Act(lambda w, row: agents.agent_stop(agent=row, **actor(w)), before=under_way),
    "agent:restart": Act(lambda w, row: agents.agent_restart(agent=row, **actor(w)), before=under_way),
    "agent:try_sensors": Act(lambda w, row: trial.agent_try(agent=row, **actor(w)), before=watching),
    "agent:archive": Act(lambda w, row: agents.agent_archive(agent=row, **actor(w)), before=under_way),
    "agent:unarchive": Act(lambda w, row: agents.agent_unarchive(agent=row, **actor(w)), before=archived),
    "agent:halt": Act(
        lambda w, row: halts.agents_halt([row.pk], reason="It loops.", **actor(w)),
        {"reason": "It loops."},
        before=under_way,
    ),
    "agent:pause": Act(
        lambda w, row: pauses.agent_pause(agent=row, reason="Look.", **actor(w)), {"reason": "Look."}, before=under_way
    ),
    "agent:resume": Act(
        lambda w, row: pauses.agent_resume(agent=row, **actor(w)),
        before=lambda w, row: pauses.agent_pause(agent=row, by=None, now=clock()),
    ),
    "agent:destroy": Act(lambda w, row: agents.agent_delete(agent=row, **actor(w)), before=unused),
    "ask_confirm:post": Act(
        lambda w, _: halts.session_halt(w.rows["session"].pk, reason="x", **actor(w)),
        lambda w, _: {"token": propose(wanted_on("halt", "run", w.rows["session"]), by=w.owner, now=clock()).token},
    ),
    "approval:approve": Act(
        lambda w, row: approvals.approval_approve(row.pk, digest=row.digest, note="fine", **actor(w)), seen
    ),
    "approval:deny": Act(
        lambda w, row: approvals.approval_reject(row.pk, digest=row.digest, note="fine", **actor(w)), seen
    ),
    "approval:approve_edited": Act(
        lambda w, row: approvals.approval_approve_edited(
            row.pk, digest=row.digest, arguments=EDITED, fits=fitting, **actor(w)
        ),
        lambda w, row: {"digest": row.digest, "arguments": EDITED},
        before=of_a_notice,
    ),
    "approval:approve_for_session": Act(
        lambda w, row: approvals.standing_create(row.pk, digest=row.digest, uses=3, **actor(w)),
        lambda w, row: {"digest": row.digest, "uses": 3},
    ),
    "delegation:create": Act(
        lambda w, row: delegations.delegation_create(owner=w.owner, delegate=row.delegate, until=row.until, **actor(w)),
        lambda w, row: {"delegate": row.delegate.username, "until": row.until.isoformat()},
    ),
    "delegation:end": Act(lambda w, row: delegations.delegation_end(delegation=row, **actor(w))),
    "channel:create": Act(
        lambda w, _: channels.channel_create(owner=w.owner, kind="webhook", name="Hook", address=HOOK, **actor(w)),
        {"kind": "webhook", "name": "Hook", "address": HOOK},
    ),
    "channel:partial_update": Act(
        lambda w, row: channels.channel_update(channel=row, name="Team", **actor(w)), {"name": "Team"}
    ),
    "channel:destroy": Act(lambda w, row: channels.channel_delete(channel=row, **actor(w))),
    "channel:rotate_secret": Act(lambda w, row: channels.channel_rotate_secret(channel=row, **actor(w))),
    "channel:test": Act(lambda w, row: outbox.channel_test(channel=row, **actor(w))),
    "delivery:replay": Act(lambda w, row: outbox.copy_replay(copy=row, **actor(w))),
    "delivery:destroy": Act(lambda w, row: outbox.copy_discard(copy=row, **actor(w))),
    "chat:create": Act(
        lambda w, _: entry.send_message(text="Which leases end this year?", by=w.by, now=clock()),
        {"message": "Which leases end this year?"},
    ),
    "approval-rule:create": Act(
        lambda w, _: approval_rules.rule_create(name="R", effect="ask", **actor(w)), {"name": "R", "effect": "ask"}
    ),
    "approval-rule:partial_update": Act(
        lambda w, row: approval_rules.rule_change(row, name="R", **actor(w)), {"name": "R"}
    ),
    "approval-rule:try_past": Act(
        lambda w, _: approval_rules.rule_try(ApprovalRule(name="R", effect="ask"), **actor(w)),
        {"name": "R", "effect": "ask"},
    ),
    "approval-rule:destroy": Act(lambda w, row: approval_rules.rule_delete(row, **actor(w))),
    "callable-skill:partial_update": Act(
        lambda w, _: registry.skill_set(name="send_email", declared=Level.RESTRICTED, hourly_limit=2, **actor(w)),
        {"hourly_limit": 3},
    ),
    "collection:create": Act(lambda w, _: documents.collection_create(owner=w.by, name="C", **actor(w)), {"name": "C"}),
    "collection:partial_update": Act(
        lambda w, row: documents.collection_rename(collection=row, name="C", **actor(w)), {"name": "C"}
    ),
    "collection:destroy": Act(lambda w, row: documents.collection_delete(collection=row, **actor(w))),
    "document:create": Act(
        lambda w, _: documents.document_add(
            owner=w.by, name="a.txt", data=b"A new lease.", collection=w.rows["collection"], **actor(w)
        ),
        lambda w, _: {
            "file": SimpleUploadedFile("a.txt", b"A new lease.", "text/plain"),
            "collection": public(w.rows["collection"]),
        },
        form="multipart",
    ),
    "document:attach": Act(
        lambda w, row: documents.document_attach(document=row, collection=w.rows["collection"], **actor(w)),
        lambda w, row: {"collection": public(w.rows["collection"])},
        before=fresh_document,
    ),
    "document:detach": Act(
        lambda w, row: documents.document_detach(document=row, collection=w.rows["collection"], **actor(w)),
        lambda w, row: {"collection": public(w.rows["collection"])},
    ),
    "document:destroy": Act(lambda w, row: documents.document_delete(document=row, **actor(w))),
    "event:create": Act(
        lambda w, _: events.event_receive(owner=w.by, event=events.EventIn(source="monitor"), now=clock()),
        {"source": "monitor"},
    ),
    "halt:post": Act(lambda w, _: halts.halt_all_work(reason="Stop.", **actor(w)), {"reason": "Stop."}),
    "me:patch": Act(lambda w, _: accounts.profile_set(user=w.by, opted_in=False, **actor(w)), {"opted_in": False}),
    "finding:acknowledge": Act(lambda w, row: findings.finding_acknowledge(finding=row, **actor(w))),
    "finding:dismiss": Act(
        lambda w, row: findings.finding_dismiss(finding=row, reason="Usual here", **actor(w)), {"reason": "Usual here"}
    ),
    "ceilings:patch": Act(
        lambda w, _: accounts.limits_set(user=w.by, mode="manual", **actor(w)), {"mode": "manual"}, before=may_loosen
    ),
    "finding:resolve": Act(lambda w, row: findings.finding_resolve(finding=row, **actor(w))),
    "finding:reopen": Act(lambda w, row: findings.finding_reopen(finding=row, **actor(w)), before=dismissed),
    "finding:assign": Act(
        lambda w, row: findings.finding_assign(finding=row, assignee=w.owner, **actor(w)),
        lambda w, row: {"assignee": w.owner.username},
    ),
    "finding:comment": Act(
        lambda w, row: findings.finding_comment(finding=row, text="Looks right", **actor(w)), {"text": "Looks right"}
    ),
    "memory:keep": Act(
        lambda w, row: projects.memory_keep(memory=row, content="Short.", **actor(w)), {"content": "Short."}
    ),
    "memory:dismiss": Act(lambda w, row: projects.memory_dismiss(memory=row, **actor(w))),
    "memory:destroy": Act(lambda w, row: projects.memory_delete(memory=row, **actor(w))),
    "model-test:post": Act(lambda w, _: model_test.model_test(model="offline", **actor(w)), before=may_view_models),
    "notification:read": Act(lambda w, row: notifications.notification_mark_read(notification=row, **actor(w))),
    "playbook:create": Act(
        lambda w, _: playbooks.playbook_create(
            owner=w.by, name="P", positions=[Position("Term", must_contain=("two years",))], **actor(w)
        ),
        {"name": "P", "positions": [{"issue": "Term", "must_contain": ["two years"]}]},
    ),
    "playbook:partial_update": Act(
        lambda w, row: playbooks.playbook_edit(playbook=row, name="P", **actor(w)), {"name": "P"}
    ),
    "playbook:destroy": Act(lambda w, row: playbooks.playbook_delete(playbook=row, **actor(w))),
    "playbook:import_yaml": Act(
        lambda w, _: playbooks.playbook_import(owner=w.by, text=YAML, **actor(w)), {"yaml": YAML}
    ),
    "precedent:dismiss": Act(lambda w, row: projects.precedent_dismiss(precedent=row, **actor(w))),
    "precedent:merge": Act(
        lambda w, row: projects.precedent_merge(precedent=row, into=w.similar, **actor(w)),
        lambda w, row: {"into": public(w.similar)},
    ),
    "precedent:promote": Act(
        lambda w, row: projects.precedent_promote(precedent=row, project=w.rows["project"], **actor(w)),
        lambda w, row: {"project": public(w.rows["project"])},
    ),
    "project:create": Act(lambda w, _: projects.project_create(owner=w.by, name="P", **actor(w)), {"name": "P"}),
    "project:partial_update": Act(
        lambda w, row: projects.project_edit(project=row, context_md="New.", **actor(w)), {"context_md": "New."}
    ),
    "project:destroy": Act(lambda w, row: projects.project_delete(project=row, **actor(w))),
    "proposal:accept": Act(lambda w, row: projects.proposal_accept(proposal=row, **actor(w))),
    "proposal:partial_update": Act(
        lambda w, row: projects.proposal_edit(proposal=row, text="Other words.", **actor(w)), {"text": "Other words."}
    ),
    "proposal:reject": Act(lambda w, row: projects.proposal_reject(proposal=row, **actor(w))),
    "proposal:retire": Act(
        lambda w, row: projects.proposal_retire(proposal=ContextProposal.objects.get(pk=row.pk), **actor(w)),
        before=accepted,
    ),
    "question:answer": Act(
        lambda w, row: questions.question_answer(row, answer="The second.", **actor(w)), {"answer": "The second."}
    ),
    "pause:post": Act(lambda w, _: pauses.work_pause(reason="Look.", **actor(w)), {"reason": "Look."}),
    "resume:post": Act(
        lambda w, _: pauses.work_resume(**actor(w)), before=lambda w, row: pauses.work_pause(by=None, now=clock())
    ),
    "release:post": Act(lambda w, _: halts.release_all_work(**actor(w)), before=all_halted),
    "run-now:post": Act(
        lambda w, _: start_run(
            owner=w.by, playbook=w.rows["playbook"], document=w.rows["document"], review_flagged=True, **actor(w)
        ),
        lambda w, _: {
            "playbook": public(w.rows["playbook"]),
            "document": public(w.rows["document"]),
            "review_flagged": True,
        },
    ),
    "session:halt": Act(
        lambda w, row: halts.session_halt(row.pk, reason="It loops.", **actor(w)), {"reason": "It loops."}
    ),
    "session:halt_all": Act(
        lambda w, _: halts.sessions_halt([w.rows["session"].pk, w.waiting.pk], reason="Stop.", **actor(w)),
        {"reason": "Stop."},
    ),
    "session:pause": Act(lambda w, row: pauses.session_pause(row.pk, reason="Look.", **actor(w)), {"reason": "Look."}),
    "session:resume": Act(
        lambda w, row: pauses.session_resume(row.pk, **actor(w)),
        before=lambda w, row: pauses.session_pause(row.pk, by=None, now=clock()),
    ),
    "session:restart": Act(
        lambda w, row: firing.session_restart(session=w.over, **actor(w)),
        before=lambda w, row: w.rows.update(session=w.over),
    ),
    "session:try_now": Act(
        lambda w, row: leases.session_try_now(w.rows["session"].pk, **actor(w)),
        before=lambda w, row: w.rows.update(session=make_waiting_for_model(owner=w.by)),
    ),
    "tool-call:resolve": Act(
        lambda w, row: approvals.tool_call_resolve(row.pk, approvals.Decision.HAPPENED, **actor(w)),
        {"decision": "happened"},
        before=unknown,
    ),
    "trigger:create": Act(
        lambda w, _: triggers.trigger_create(
            owner=w.by, kind="schedule", name="T", cron="0 6 * * 1", query="q", playbook=w.rows["playbook"], **actor(w)
        ),
        lambda w, _: {
            "kind": "schedule",
            "name": "T",
            "cron": "0 6 * * 1",
            "query": "q",
            "playbook": public(w.rows["playbook"]),
        },
    ),
    "trigger:partial_update": Act(
        lambda w, row: triggers.trigger_edit(trigger=row, project=w.rows["project"], **actor(w)),
        lambda w, row: {"project": public(w.rows["project"])},
    ),
    "trigger:destroy": Act(lambda w, row: triggers.trigger_delete(trigger=row, **actor(w))),
    "trigger:pause": Act(lambda w, row: triggers.trigger_pause(trigger=row, **actor(w))),
    "trigger:resume": Act(lambda w, row: triggers.trigger_resume(trigger=row, **actor(w)), before=paused),
    "trigger:rotate_secret": Act(lambda w, row: triggers.trigger_rotate_secret(trigger=row, **actor(w))),
    "trigger:run": Act(lambda w, row: start_run(owner=w.by, trigger=row, **actor(w))),
    "trigger:set_cap": Act(
        lambda w, _: triggers.triggers_set_cap(triggers=[w.rows["trigger"]], cap=2, **actor(w)),
        lambda w, _: {"triggers": [public(w.rows["trigger"])], "max_cost_usd": "2"},
    ),
    "unread-input:retry": Act(lambda w, row: inputs.input_retry(unread_input=row, **actor(w))),
    "unread-input:dismiss": Act(lambda w, row: inputs.input_dismiss(unread_input=row, **actor(w))),
}
CHANGING = {route.name: route for route in routes() if route.method != "get"}


def test_every_changing_route_is_in_the_table():
    assert set(ACTS) | set(NO_RECORD) == set(CHANGING)


@contextmanager
def staged(name, made):
    """A world before the act. Its owner may decide on approvals and so do everything."""
    act, route = ACTS[name], CHANGING[name]
    world = copy.deepcopy(made)
    world.by = world.owner
    with undone():
        row = world.rows.get(route.basename)
        if act.before:
            act.before(world, row)
        yield SimpleNamespace(act=act, route=route, world=world, row=row, since=AuditEvent.objects.count())


def trail(stage):
    """The audit events of the act, without values that differ between worlds and without the key."""
    events_ = AuditEvent.objects.order_by("id")[stage.since :]
    owner = f"user:{stage.world.owner.pk}"
    return [
        (
            event.kind,
            "system" if event.chain == "system" else "session",
            "owner" if event.actor.partition(":key:")[0] == owner else event.actor,
            event.subject.partition(":")[0],
            sorted(event.details),
        )
        for event in events_
    ]


def sent(stage):
    body = stage.act.body
    data = body(stage.world, stage.row) if callable(body) else body
    client = client_of(stage.world.owner)
    stage.since += 1  # the key's own row
    address = stage.route.address(stage.world)
    return getattr(client, stage.route.method)(address, data, format=stage.act.form)


def test_api_and_service_write_the_same_audit_events(some):
    world = make_world(make_user(is_superuser=True))
    for name in some(ACTS, 8):
        with staged(name, world) as by_api:
            answer = sent(by_api)
            assert answer.status_code in {200, 201, 202, 204}, (name, answer.content)
            through_api = trail(by_api)
            recorded = list(AuditEvent.objects.order_by("id")[by_api.since :])

        with staged(name, world) as by_service:
            by_service.act.does(by_service.world, by_service.row)
            assert through_api == trail(by_service), name
        assert through_api, name
        assert {event.request_id for event in recorded} == {answer["X-Request-ID"]}, name


@pytest.mark.parametrize("name", NO_RECORD)
def test_read_only_post_writes_no_audit_event(name):
    world = make_world()
    client = client_of(world.owner)
    before = AuditEvent.objects.count()
    sent, expected = NO_RECORD[name]
    body = sent(world) if callable(sent) else sent
    answer = client.post(CHANGING[name].address(world), body, format="json")
    assert answer.status_code == 200
    assert expected.items() <= answer.json().items()
    assert AuditEvent.objects.count() == before


def test_repeated_halt_is_recorded_once():
    world = make_world()
    client, address = client_of(world.owner), f"/api/v1/sessions/{world.rows['session'].public_id}/halt"
    assert client.post(address, {"reason": "x"}, format="json").json()["answer"] == "requested"
    assert client.post(address, {"reason": "x"}, format="json").json()["answer"] == "already_halted"
    assert AuditEvent.objects.filter(kind="autonomous_session.halt_requested").count() == 1


def test_halting_an_ended_session_changes_nothing():
    world = make_world()
    address = f"/api/v1/sessions/{world.over.public_id}/halt"
    answer = client_of(world.owner).post(address)
    assert (answer.status_code, answer.json()["answer"]) == (200, "terminal")
    world.over.refresh_from_db()
    assert world.over.status == Status.COMPLETED
    assert not AuditEvent.objects.filter(kind="autonomous_session.halt_requested").exists()
