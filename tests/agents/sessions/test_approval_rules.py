"""Approval rules in force: what the guard does with calls, who may write them, their versions, and trying them."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Group

from agents.checks.doctor import warnings
from agents.conf import clock
from agents.enums import Outcome, Phase, Risk, Status, ToolIntent
from agents.exceptions import Invalid, NotAllowed
from agents.guard import guarded_tool_call
from agents.guard.calls import fitting
from agents.models import Approval, ApprovalRule, Notification, SkillSetting, ToolCall
from agents.people.access import acting_by
from agents.people.keys import api_key_create
from agents.sessions.approval_rules import rule_change, rule_create, rule_delete, rule_try, skill_facts
from agents.sessions.approvals import (
    approval_approve,
    approval_approve_edited,
    approval_reject,
    approvals_expire,
    standing_create,
)
from audit.models import AuditEvent
from audit.receipts import build_receipt
from tests.agents.admin.rows import page
from tests.agents.api.contract import CheckedClient
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sample_skills")]
WAITS = Outcome.APPROVAL_PENDING


@pytest.fixture
def session():
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="semi"))


@pytest.fixture
def ask(session):
    def call(skill, key="", *, now=NOW, risk=None, **arguments):
        params = {"skill": skill, "arguments": arguments}
        return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key, risk=risk, now=now)

    return call


def rule(effect, **fields):
    return rule_create(by=None, now=NOW, **{"name": f"Rule {effect}", "effect": effect, "enabled": True, **fields})


# --- The guard ---


@pytest.mark.usefixtures("approver")
def test_a_rule_allows_what_the_mode_asks_for_and_is_recorded(ask, session):
    assert ask("act", what="it").outcome == WAITS
    allowing = rule("allow", skill="act")
    assert ask("act", what="it").outcome == Outcome.SUCCESS
    event = AuditEvent.objects.get(kind="approval_rule.allowed", chain=session.chain)
    assert (event.details["rule_id"], event.details["version"]) == (str(allowing.public_id), 1)
    assert event.details["action"] == "act"


@pytest.mark.parametrize(("effect", "is_on"), [("deny", True), ("ask", True), ("allow", False)])
def test_new_rule_that_binds_is_on_and_one_that_frees_is_off_unless_it_is_said(effect, is_on):
    given = {"by": None, "now": NOW, "name": "Rule", "effect": effect, "skill": "act"}
    assert rule_create(**given).enabled == is_on
    assert rule_create(**given, enabled=not is_on).enabled != is_on


@pytest.mark.parametrize(("effect", "is_on"), [("deny", True), ("ask", True), ("allow", False)])
def test_rule_that_is_posted_without_a_switch_answers_whether_it_is_on(effect, is_on):
    by = make_user(is_superuser=True)
    _, secret = api_key_create(
        user=by, name="k", scopes=("read", "decide", "admin"), expires_at=clock() + timedelta(days=1), by=by, now=NOW
    )
    client = CheckedClient(HTTP_AUTHORIZATION=f"Bearer {secret}")
    body = {"name": "Rule", "effect": effect, "skill": "act"}
    answer = client.post("/api/v1/approval-rules", body, format="json")
    assert (answer.status_code, answer.json()["enabled"]) == (201, is_on)
    assert ApprovalRule.objects.get().enabled == is_on


def test_a_rule_denies_and_says_so_on_the_receipt(ask, session):
    rule("deny", skill="look", name="Nobody looks")
    result = ask("look", place="here")
    assert (result.outcome, result.detail) == (Outcome.DENIED, "rule")
    assert result.error == "An approval rule denies this call: Nobody looks"
    assert not ToolCall.objects.exists()
    [refused] = build_receipt(session.chain)["refused_calls"]
    assert (refused["name"], refused["brake"]) == ("look", "rule")


@pytest.mark.usefixtures("approver")
def test_a_rule_asks_about_what_no_mode_asks_for(ask, session):
    type(session.agent).objects.update(mode="auto")
    asking = rule("ask", skill="look")
    assert ask("look", "k", place="here").outcome == WAITS
    [named] = Approval.objects.get().rules
    assert named == {"id": str(asking.public_id), "version": 1, "name": "Rule ask", "role": ""}
    rule_change(asking, by=None, now=NOW, enabled=False)
    assert ask("look", "other", place="here").outcome == Outcome.SUCCESS


@pytest.mark.usefixtures("approver")
def test_no_rule_allows_what_always_asks(ask):
    rule("allow", skill="reign")
    rule("allow", skill="act")
    assert ask("reign").outcome == WAITS
    assert ask("act", what="it", risk=Risk.HIGH).outcome == WAITS
    SkillSetting.objects.create(name="act", level="PRIVILEGED")
    assert ask("act", what="more").outcome == WAITS


@pytest.mark.usefixtures("approver")
def test_the_strictest_rule_counts(ask):
    rule("allow", skill="act")
    asking = rule("ask")
    assert ask("act", what="it").outcome == WAITS
    rule("deny", conditions=[{"argument": "what", "operator": "is", "value": "it"}])
    assert ask("act", what="it").detail == "rule"
    rule_delete(asking, by=None, now=NOW)
    assert ask("act", what="other").outcome == Outcome.SUCCESS


def test_a_rule_of_another_agent_skill_cost_or_destination_does_not_fit(ask):
    rule("deny", agent=make_agent())
    rule("deny", skill="act")
    rule("deny", min_cost_usd=Decimal("0.000001"))
    rule("deny", destinations=["evil.example"])
    rule("deny", enabled=False)
    assert ask("look", place="https://good.example").outcome == Outcome.SUCCESS
    assert ask("look", place="https://api.evil.example/x").detail == "rule"


@pytest.mark.usefixtures("approver")
def test_a_rule_that_denies_since_stops_a_call_that_was_approved(ask, approver):
    assert ask("act", "k", what="it").outcome == WAITS
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    denying = rule("deny", skill="act")
    assert ask("act", "k", what="it").detail == "rule"
    rule_delete(denying, by=None, now=NOW)
    assert ask("act", "k", what="it").outcome == Outcome.SUCCESS


def test_calls_that_a_rule_asks_about_are_approved_one_by_one(ask, approver):
    rule("ask", skill="act")
    assert ask("act", "a", what="it").outcome == WAITS
    ticket = Approval.objects.get()
    with pytest.raises(NotAllowed, match="A rule asks about this call"):
        standing_create(ticket.pk, by=approver, digest=ticket.digest, now=NOW)


def test_a_standing_approval_does_not_cover_what_a_rule_asks_about_since(ask, approver):
    assert ask("act", "a", what="it").outcome == WAITS
    ticket = Approval.objects.get()
    standing_create(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    assert ask("act", "b", what="it").outcome == Outcome.SUCCESS
    rule("ask", skill="act")
    assert ask("act", "c", what="it").outcome == WAITS


def test_a_role_that_a_rule_names_decides_and_nobody_else(ask, approver, client):
    chief = writer("admin")
    rule("ask", skill="act", role="admin", name="Large payments")
    assert ask("act", "a", what="it").outcome == WAITS
    ticket = Approval.objects.get()
    assert not Notification.objects.filter(owner=approver).exists()
    with pytest.raises(NotAllowed, match="The rule Large payments needs people of the role admin"):
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    client.force_login(chief)
    shown = client.get(page(Approval, "change", ticket.pk)).content.decode()
    assert "The rule “Large payments” (version 1) asks people of the role admin." in shown
    approval_approve(ticket.pk, by=chief, digest=ticket.digest, now=NOW)
    assert ask("act", "a", what="it").outcome == Outcome.SUCCESS


def test_a_rule_that_names_a_role_since_has_an_approved_call_asked_about_again(ask, approver):
    assert ask("act", "a", what="it").outcome == WAITS
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    writer("admin")
    rule("ask", skill="act", role="admin")
    assert ask("act", "a", what="it").outcome == WAITS
    ticket.refresh_from_db()
    assert ticket.status == "cancelled"
    assert Approval.objects.get(status="pending").rules[0]["role"] == "admin"


def edit(by, **arguments):
    ticket = Approval.objects.get(status="pending")
    given = {**ticket.arguments, "arguments": {**ticket.arguments["arguments"], **arguments}}
    return approval_approve_edited(ticket.pk, by=by, digest=ticket.digest, now=NOW, fits=fitting, arguments=given)


def test_an_edit_passes_no_rule(ask, approver):
    writer("admin")
    rule("deny", skill="act", conditions=[{"argument": "what", "operator": "is", "value": "harm"}], name="No harm")
    rule("ask", skill="act", role="admin", conditions=[{"argument": "what", "operator": "is", "value": "much"}])
    assert ask("act", "a", what="it").outcome == WAITS
    with pytest.raises(Invalid, match="An approval rule denies the call with these arguments: No harm"):
        edit(approver, what="harm")
    with pytest.raises(Invalid, match="needs people of the role admin"):
        edit(approver, what="much")
    assert Approval.objects.get().status == "pending"
    edit(approver, what="else")
    assert ask("act", "a", what="it").outcome == Outcome.SUCCESS


@pytest.mark.parametrize(("fields", "detail"), [({"effect": "deny"}, "rule"), ({"role": "admin"}, "ticket_refused")])
def test_a_rule_holds_for_a_call_that_was_edited_before_it(ask, approver, fields, detail):
    assert ask("act", "a", what="it").outcome == WAITS
    edit(approver, what="much")
    writer("admin")
    about = [{"argument": "what", "operator": "is", "value": "much"}]
    rule_create(by=None, now=NOW, **{"name": "x", "effect": "ask", "enabled": True, "conditions": about, **fields})
    result = ask("act", "a", what="it")
    assert (result.outcome, result.detail) == (Outcome.DENIED, detail)
    assert not ToolCall.objects.exists()


# What people decided while a rule asked holds when it no longer does.


@pytest.fixture
def decided(ask, approver):
    """Decide about a call that only a rule asks about, and switch the rule off."""

    def do(decide):
        asking = rule("ask", skill="look")
        assert ask("look", "a", place="here").outcome == WAITS
        decide(approver, Approval.objects.get())
        rule_change(asking, by=None, now=NOW, enabled=False)

    return do


def test_a_call_that_was_denied_stays_denied_wherever_its_run_makes_it(ask, decided):
    decided(lambda approver, ticket: approval_reject(ticket.pk, by=approver, digest=ticket.digest, now=NOW))
    assert ask("look", "a", place="here").detail == "rejected"
    assert ask("look", "b", place="here").detail == "refused_before"
    assert not ToolCall.objects.exists()
    assert ask("look", "c", place="there").outcome == Outcome.SUCCESS


def test_a_call_that_was_edited_is_made_as_it_was_edited(ask, decided):
    decided(lambda approver, ticket: edit(approver, place="there"))
    assert ask("look", "a", place="here").data == {"seen": "there"}
    assert Approval.objects.get().consumed_at == NOW


def test_a_call_that_nobody_has_decided_about_waits(ask, decided):
    decided(lambda approver, ticket: None)
    assert ask("look", "a", place="here").outcome == WAITS


def test_a_call_whose_approval_expired_is_made_where_nobody_asks_any_more(ask, decided):
    decided(lambda approver, ticket: approvals_expire(ticket.expires_at))
    assert ask("look", "a", place="here").outcome == Outcome.SUCCESS


def test_an_edit_that_raises_the_level_of_a_call_is_not_made(ask, approver, settings):
    settings.LQOPS_SKILL_HOSTS = ["shop.example"]
    rule("ask", skill="visit")
    assert ask("visit", "a", url="https://shop.example/").outcome == WAITS
    assert Approval.objects.get().level == "SAFE"
    edit(approver, url="https://evil.example/")
    result = ask("visit", "a", url="https://shop.example/")
    assert (result.outcome, result.detail) == (Outcome.DENIED, "ticket_refused")
    assert not ToolCall.objects.exists()


# --- Writing ---


def writer(*permissions):
    user = make_user(is_staff=True)
    user.groups.add(Group.objects.get(name="operator"))
    for one in permissions:
        user.groups.add(Group.objects.get(name=one))
    return user


ACTS = {
    "asking": lambda by: rule_create(by=by, now=NOW, name="x", effect="ask", enabled=True),
    "denying": lambda by: rule_create(by=by, now=NOW, name="x", effect="deny", enabled=True),
    "allowing, off": lambda by: rule_create(by=by, now=NOW, name="x", effect="allow", skill="act"),
    "taking back what allows": lambda by: rule_delete(rule("allow", skill="act"), by=by, now=NOW),
    "allowing": lambda by: rule_create(by=by, now=NOW, name="x", effect="allow", skill="act", enabled=True),
    "switching on what allows": lambda by: rule_change(
        rule("allow", skill="act", enabled=False), by=by, now=NOW, enabled=True
    ),
    "taking back what asks": lambda by: rule_delete(rule("ask"), by=by, now=NOW),
    "switching off what denies": lambda by: rule_change(rule("deny"), by=by, now=NOW, enabled=False),
    "changing what asks": lambda by: rule_change(rule("ask"), by=by, now=NOW, skill="act"),
}
FREE = ("asking", "denying", "allowing, off", "taking back what allows")


@pytest.mark.parametrize("act", ACTS)
def test_tightening_is_free_and_loosening_needs_its_permission(act):
    if act in FREE:
        ACTS[act](writer())
    else:
        with pytest.raises(NotAllowed, match=r"loosens the approval rules.*agents\.loosen"):
            ACTS[act](writer())
    ACTS[act](writer("admin"))


def test_whoever_may_not_write_rules_writes_none():
    for by in (make_user(), make_user(is_active=False, is_superuser=True)):
        for act in ACTS.values():
            with pytest.raises(NotAllowed):
                act(by)


def test_nobody_loosens_what_binds_themselves_and_a_key_needs_its_scope(settings):
    settings.LQOPS_FOUR_EYES = True
    admin, other = writer("admin"), writer("admin")
    agent = make_agent(owner=admin)
    with pytest.raises(NotAllowed, match="binds yourself"):
        ACTS["allowing"](admin)
    ACTS["allowing"](other)
    fields = {"name": "x", "effect": "allow", "skill": "act", "enabled": True, "agent": agent}
    with pytest.raises(NotAllowed, match="binds yourself"):
        rule_create(by=admin, now=NOW, **fields)
    key, _ = api_key_create(user=other, name="k", scopes=["write"], expires_at=None, by=other, now=NOW)
    with pytest.raises(NotAllowed, match="scope admin"):
        rule_create(by=acting_by(key), now=NOW, **fields)
    rule_create(by=other, now=NOW, **fields)


def test_every_change_is_a_version_and_on_the_audit_log():
    by = writer("admin")
    first = rule_create(by=by, now=NOW, name="Pay", effect="ask", enabled=True)
    second = rule_change(first, by=by, now=NOW, effect="deny")
    with pytest.raises(Invalid, match="meanwhile"):
        rule_change(first, by=by, now=NOW, effect="allow")
    rule_delete(second, by=by, now=NOW)
    with pytest.raises(Invalid, match="meanwhile"):
        rule_delete(second, by=by, now=NOW)
    rows = ApprovalRule.objects.order_by("version")
    assert list(rows.values_list("public_id", "version", "name", "effect", "enabled", "created_by")) == [
        (first.public_id, 1, "Pay", "ask", True, by.pk),
        (first.public_id, 2, "Pay", "deny", True, by.pk),
    ]
    assert not ApprovalRule.objects.current().exists()
    events = AuditEvent.objects.filter(subject=f"approval_rule:{first.public_id}").order_by("seq")
    assert [(event.kind, event.details["version"], event.details["effect"]) for event in events] == [
        ("approval_rule.created", 1, "ask"),
        ("approval_rule.changed", 2, "deny"),
        ("approval_rule.deleted", 2, "deny"),
    ]
    assert {event.actor for event in events} == {f"user:{by.pk}"}
    assert events[0].details["digest"] != events[1].details["digest"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": " "}, "needs a name"),
        ({"effect": "warn"}, "'warn' is no effect"),
        ({"effect": "allow"}, "has to name a skill"),
        ({"role": "kings"}, "no role 'kings'"),
        ({"skill": "fly"}, "no skill 'fly'"),
        ({"conditions": [{"argument": "x"}]}, "argument, operator and value"),
        ({"conditions": ["x"]}, "argument, operator and value"),
        ({"destinations": ["a b"]}, "is no host"),
    ],
)
def test_a_rule_that_cannot_be_used_is_not_written(fields, says):
    with pytest.raises(Invalid, match=says):
        rule_create(by=None, now=NOW, **{"name": "x", "effect": "ask", **fields})
    assert not ApprovalRule.objects.exists()


def test_a_rule_in_force_names_a_role_of_which_somebody_may_decide(approver):
    with pytest.raises(Invalid, match="Nobody of the role viewer may decide on approvals"):
        rule("ask", role="viewer")
    draft = rule("ask", role="viewer", enabled=False)
    approver.groups.add(Group.objects.get(name="viewer"))
    rule_change(draft, by=None, now=NOW, enabled=True)
    assert not [told for told in warnings() if "viewer" in told]

    approver.groups.clear()
    assert [told for told in warnings() if "asks people of the role viewer, of whom nobody may decide" in told]


def test_rules_know_only_calls_of_skills():
    assert skill_facts({"query": "payment terms"}, agent_id=1, cost_usd=0) is None
    assert skill_facts({"skill": "look", "arguments": "here"}, agent_id=1, cost_usd=0) is None
    assert skill_facts({"skill": "look", "arguments": {}}, agent_id=1, cost_usd=0).skill == "look"


# --- Trying ---


def test_trying_says_what_a_rule_would_have_done_and_changes_nothing(ask, approver):
    now = clock()
    ask("look", "a", now=now, place="here")
    ask("look", "b", now=now, place="there")
    ask("act", "c", now=now, what="it")
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=now)
    ask("act", "c", now=now, what="it")
    before = AuditEvent.objects.count()

    def tried(**fields):
        row = ApprovalRule(**{"name": "x", "effect": "ask", **fields})
        found = rule_try(row, by=None, now=now + timedelta(hours=1))
        return found.calls, found.fitting, found.asked, [call.key for call in found.listed]

    assert tried() == (3, 3, 1, ["c", "b", "a"])
    assert tried(skill="look") == (2, 2, 0, ["b", "a"])
    assert tried(conditions=[{"argument": "place", "operator": "is", "value": "there"}]) == (3, 2, 1, ["c", "b"])
    assert tried(agent=make_agent()) == (0, 0, 0, [])
    assert tried(min_cost_usd=Decimal(1)) == (3, 0, 0, [])
    tried_events = AuditEvent.objects.filter(kind="approval_rule.tried")
    assert AuditEvent.objects.count() == before + tried_events.count() == before + 5
    assert not ApprovalRule.objects.exists()


def test_trying_is_bounded(ask, monkeypatch):
    monkeypatch.setattr("agents.sessions.approval_rules.MOST_CALLS", 2)
    now = clock()
    for key in "abc":
        ask("look", key, now=now, place="here")
    row = ApprovalRule(name="x", effect="deny", skill="look")
    found = rule_try(row, by=None, now=now + timedelta(days=1), days=2)
    assert (found.calls, found.fitting, found.is_all) == (2, 2, False)
    assert rule_try(row, by=None, now=now + timedelta(days=5), days=2).calls == 0
    for days in (0, 91):
        with pytest.raises(Invalid, match="1 to 90 days"):
            rule_try(row, by=None, now=now, days=days)
