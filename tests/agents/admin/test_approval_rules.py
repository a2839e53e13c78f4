"""Approval rules in the admin: writing, trying on past calls, versions, and clear words for mistakes."""

import re

import pytest

from agents.conf import clock
from agents.enums import Outcome, Phase, ToolIntent
from agents.models import ApprovalRule
from agents.sessions.approval_rules import rule_create
from tests.agents.admin.rows import make_call, page, sign_in, text_of
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db
FORM = {
    "name": "Large payments", "effect": "ask", "role": "admin", "agent": "", "skill": "http_request",
    "min_cost_usd": "0.5", "destinations": "pay.example\n", "enabled": "on",
}  # fmt: skip


def conditions(*rows):
    """The fields of these conditions, as the page posts them."""
    given = {"conditions-TOTAL_FORMS": len(rows), "conditions-INITIAL_FORMS": 0}
    for number, row in enumerate(rows):
        given |= {
            f"conditions-{number}-{name}": value
            for name, value in zip(("argument", "operator", "value", "DELETE"), row, strict=False)
        }
    return given


AMOUNT = ("json.amount", "above", "100")
FORM |= conditions(AMOUNT, ("url", "contains", "pay now"))


@pytest.fixture(autouse=True)
def admin(client):
    return sign_in(client, "admin")


def test_saving_a_rule_that_is_off_says_so(client):
    hint = "The rule is off"
    off = client.post(page(ApprovalRule, "add"), {**FORM, "enabled": ""}, follow=True)
    on = client.post(page(ApprovalRule, "add"), {**FORM, "name": "Others"}, follow=True)
    assert (hint in text_of(off), hint in text_of(on)) == (True, False)


def test_form_of_a_new_rule_is_ticked_and_that_of_a_rule_that_is_off_is_not(client):
    row = rule_create(by=None, now=NOW, name="Rule", effect="deny", enabled=False)
    shown = [client.get(address) for address in (page(ApprovalRule, "add"), page(ApprovalRule, "change", row.pk))]
    boxes = [re.search(r'<input[^>]*name="enabled"[^>]*>', answer.content.decode())[0] for answer in shown]
    assert [bool(re.search(r"\schecked[\s>]", box)) for box in boxes] == [True, False]


def test_a_rule_is_written_as_it_was_filled_in(client, admin):
    response = client.post(page(ApprovalRule, "add"), FORM)
    row = ApprovalRule.objects.get()
    assert response.url == page(ApprovalRule, "change", row.pk)
    found = (row.effect, row.role, row.skill, row.enabled, row.created_by)
    assert found == ("ask", "admin", "http_request", True, admin)
    assert row.conditions == [
        {"argument": "json.amount", "operator": "above", "value": "100"},
        {"argument": "url", "operator": "contains", "value": "pay now"},
    ]
    shown = text_of(client.get(response.url))
    for value in ("json.amount", "100", "url", "pay now"):
        assert f'value="{value}"' in shown, value
    assert "if json.amount is above 100 and url contains pay now to pay.example" in text_of(
        client.get(page(ApprovalRule, "changelist"))
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (conditions(("amount", "above", "")), "'' is no number: amount above needs one."),
        (conditions(("", "is", "1")), "This field is required"),
        (conditions(("amount", "matches", ".*")), "matches is not one of the available choices"),
        (conditions(("amount", "above", "much")), "'much' is no number: amount above needs one."),
        (conditions(("a b", "is", "1")), "is no argument: write a name"),
        (conditions(*[AMOUNT] * 11), "at most 10 forms"),
        ({"conditions-TOTAL_FORMS": ""}, "Correct the conditions below."),
        ({"destinations": "https://x.example/"}, "is no host"),
        ({"effect": "allow"}, "Only a rule that asks names a role"),
        ({"name": ""}, "This field is required"),
    ],
)
def test_a_mistake_is_explained_and_nothing_is_saved(client, fields, says):
    response = client.post(page(ApprovalRule, "add"), {**FORM, **fields})
    assert says in text_of(response).replace("&#x27;", "'")
    assert not ApprovalRule.objects.exists()


def test_condition_with_an_empty_value_is_saved_and_shown(client):
    client.post(page(ApprovalRule, "add"), {**FORM, **conditions(("bcc", "is", ""))})
    row = ApprovalRule.objects.get()
    assert row.conditions == [{"argument": "bcc", "operator": "is", "value": ""}]
    assert "if bcc is &quot;&quot; to pay.example" in text_of(client.get(page(ApprovalRule, "changelist")))
    client.post(page(ApprovalRule, "change", row.pk), {**FORM, "name": "Renamed", **conditions(("bcc", "is", ""))})
    newest = ApprovalRule.objects.current().get()
    assert (newest.name, newest.conditions) == ("Renamed", row.conditions)


def test_removed_and_empty_conditions_are_not_kept(client):
    rows = conditions(("url", "contains", "x", "on"), AMOUNT, ("", "is", ""))
    client.post(page(ApprovalRule, "add"), {**FORM, **rows})
    assert [one["argument"] for one in ApprovalRule.objects.get().conditions] == ["json.amount"]


def test_a_change_is_a_new_version_and_the_old_one_can_be_read(client):
    first = rule_create(by=None, now=NOW, name="Rule", effect="deny", enabled=True)
    response = client.post(page(ApprovalRule, "change", first.pk), {"name": "Rule", "effect": "ask", **conditions()})
    newest = ApprovalRule.objects.current().get()
    assert (response.url, newest.version) == (page(ApprovalRule, "change", newest.pk), 2)
    old = text_of(client.get(page(ApprovalRule, "change", first.pk)))
    assert "Save" not in old.partition("<form")[2]
    assert "(this one)" in old
    assert client.post(page(ApprovalRule, "change", first.pk), {"name": "x", "effect": "ask"}).status_code == 403
    assert text_of(client.get(page(ApprovalRule, "changelist"))).count("/change/") == 1


def test_trying_shows_what_a_rule_would_have_done_and_saves_nothing(client):
    session = make_session(current_phase=Phase.ANALYSIS)
    for key, amount in (("a", 50), ("b", 500)):
        arguments = {"skill": "http_request", "arguments": {"url": "https://pay.example", "json": {"amount": amount}}}
        given = {"intent": ToolIntent.RUN_SKILL, "name": "http_request", "arguments": arguments, "started_at": clock()}
        make_call(session, key=key, outcome=Outcome.SUCCESS, **given)
    form = {**FORM, "min_cost_usd": "", **conditions(AMOUNT), "try": "1"}
    shown = text_of(client.post(page(ApprovalRule, "add"), form))
    assert "1 of 2 calls of skills would have been asked about by this rule alone" in shown
    assert "a person was asked about 0 of them anyway" in shown
    none = text_of(client.post(page(ApprovalRule, "add"), {**form, **conditions(("json.amount", "above", "1000"))}))
    assert "None of 2 calls of skills fits this rule." in none
    assert not ApprovalRule.objects.exists()
    row = rule_create(by=None, now=NOW, name="Rule", effect="deny")
    assert "would have been denied" in text_of(
        client.post(page(ApprovalRule, "change", row.pk), {**form, "effect": "deny", "role": ""})
    )


def test_an_operator_tightens_and_does_not_loosen(client):
    sign_in(client, "operator")
    assert client.post(page(ApprovalRule, "add"), FORM).status_code == 302
    loosening = {"name": "x", "effect": "allow", "skill": "http_request", "enabled": "on", **conditions()}
    assert "needs the permission agents.loosen" in text_of(client.post(page(ApprovalRule, "add"), loosening))
    assert ApprovalRule.objects.count() == 1
