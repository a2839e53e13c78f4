"""A call that was refused: one word for it on every part of the pages, and its reason where it can be read."""

import re
from decimal import Decimal

import pytest
from django.urls import reverse

from agents.enums import Brake, Outcome, Status, ToolIntent, WaitingOn
from agents.guard.calls import plan_call
from agents.guard.refusals import refuse_unaffordable
from agents.models import AgentSession, Approval, SkillSetting
from agents.policy.brakes import SpentUp
from agents.policy.outcomes import outcome_code, outcome_text
from agents.providers.scripted import Step
from agents.sessions.approval_rules import rule_create
from agents.sessions.approvals import approval_reject, approvals_expire
from agents.sessions.transcripts import exchanges
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.ask.rows import CALL, make_chat, make_entry, open_chat
from tests.agents.ask.test_chat_claims import DELIVERS, SAYS_SO, clerk, go_on, owner, say
from tests.agents.conftest import ask, script
from tests.factories import NOW, make_session

__all__ = ["owner"]

pytestmark = pytest.mark.django_db

CHIP = re.compile(r'<span class="lq-chip[^"]*">([^<]*)</span>')


def by_a_person(approver):
    [ticket] = Approval.objects.all()
    approval_reject(ticket.pk, by=approver, digest=ticket.digest, note="The shop is closed.", now=NOW)


def by_time(_):
    approvals_expire(Approval.objects.get().expires_at)


def by_a_rule(_):
    rule_create(by=None, now=NOW, name="No parcels on Sunday", effect="deny", skill="deliver")


def by_an_hourly_limit(_):
    SkillSetting.objects.create(name="deliver", hourly_limit=0)


def by_its_switch(_):
    SkillSetting.objects.create(name="deliver", enabled=False)


def part(text, beginning):
    """A card of a page, from its id to its end."""
    [found] = re.findall(rf"<section[^>]*>\s*<header><h2>{beginning}</h2>.*?</section>", text, re.DOTALL)
    return found


@pytest.mark.parametrize(
    ("refuse", "asks", "word", "reason"),
    [
        (by_a_person, True, "denied", "The shop is closed."),
        (by_time, True, "expired", "nobody decided, or the call was not made, in time"),
        (by_a_rule, False, "denied by a rule", "No parcels on Sunday"),
        (by_an_hourly_limit, False, "over its limit", "has a limit of 0 calls per hour"),
        (by_its_switch, False, "not available", "not found or disabled"),
    ],
)
def test_refused_call_has_one_word_and_its_reason_on_both_pages(client, owner, approver, refuse, asks, word, reason):
    agent = clerk(owner)
    if not asks:
        refuse(approver)
    with script(*([DELIVERS, Step("risky"), SAYS_SO] if asks else [DELIVERS, SAYS_SO])):
        session = go_on(say(owner, "Send the figures to the shop.", agent=agent))
        if asks:
            refuse(approver)
            session = go_on(session)
    assert session.status == Status.COMPLETED
    type(owner).objects.filter(pk=owner.pk).update(is_staff=True, is_superuser=True)
    client.force_login(owner)

    run = text_of(client.get(page(AgentSession, "change", session.pk)))
    chat = text_of(client.get(reverse("admin:chat", args=[session.params["chat"]])))

    line = part(run, "Timeline")
    assert CHIP.findall(line)[-2:] == [word, "success"]
    assert line.count(reason) == 1
    assert line.count(f"{word}</span> <span") == 0, "nothing repeats the word"
    assert CHIP.findall(part(run, "Transcript")) == [word]
    assert word in CHIP.findall(part(run, "Waterfall"))
    [told] = re.findall(r'<span class="lq-code">deliver</span> <span class="lq-chip bad">([^<]*)</span>(.*)', chat)
    assert told[0] == word
    assert reason in told[1]
    assert "requested" not in chat


def test_calls_without_result_are_in_hand_or_were_not_made(client):
    by = sign_in(client, "operator")
    first = make_chat(by, status=Status.HALTED, terminal_reason="external_halt")
    waits = open_chat(by, chat=first.public_id, status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    for session, *names in ((first, "send_letter"), (waits, "drop_table", "look")):
        make_entry(session, "assistant", "I call.", stop="tool_use", calls=[{**CALL, "name": name} for name in names])
    make_approval(waits, action="drop_table")

    chat = text_of(client.get(reverse("admin:chat", args=[first.params["chat"]])))

    assert "<span>not made: send_letter</span>" in chat
    assert "drop_table</span> needs approval." in chat
    assert "<span>in hand: look</span>" in chat
    assert "requested" not in chat


def test_call_that_failed_before_outcomes_were_stored_failed(client):
    session = make_chat(sign_in(client))
    make_entry(session, "assistant", "I call.", stop="tool_use", calls=[CALL])
    make_entry(session, "tool", "error: it is late", call_id=CALL["id"], failed=True)

    [found], _ = exchanges(session.owner_id, session.public_id)

    assert [(call.name, call.outcome_text, call.error) for call in found.undone] == [("now", "failed", "it is late")]
    assert CHIP.findall(part(text_of(client.get(page(AgentSession, "change", session.pk))), "Transcript")) == ["failed"]


def test_call_that_the_cost_cap_refuses_says_so_once(client):
    session = make_session(owner=sign_in(client), max_cost_usd=Decimal("0.005"))
    call = plan_call(session, ToolIntent.RUN_SKILL, ask(), key="turn:1", now=NOW)
    refuse_unaffordable(call, SpentUp("cost", Decimal("0.02"), Decimal("0.005")))

    line = part(text_of(client.get(page(AgentSession, "change", session.pk))), "Timeline")

    assert CHIP.findall(line) == ["refused by the cost cap"]
    assert "the rest of the run&#x27;s cap is too small" in line
    assert "dimension" not in line


@pytest.mark.parametrize(
    ("outcome", "detail", "brake", "words"),
    [
        (Outcome.SUCCESS, "", "", "success"),
        (Outcome.GATEWAY_ERROR, "retry_later", "", "gateway error"),
        (Outcome.APPROVAL_PENDING, "", "", "approval requested"),
        (Outcome.RATE_LIMITED, "rate_limited", Brake.RATE, "over its limit"),
        (Outcome.TOOL_NOT_GRANTED, "", Brake.GRANT, "not allowed in this phase"),
        (Outcome.DENIED, "external_halt", Brake.HALT, "refused by a halt"),
        (Outcome.DENIED, "", Brake.ARGUMENTS, "wrong arguments"),
        (Outcome.DENIED, "", "", "denied"),
        (Outcome.DENIED, "of_a_later_version", Brake.RULE, "of a later version"),
    ],
)
def test_outcome_names_what_refused_the_call(outcome, detail, brake, words):
    assert outcome_text(outcome_code(outcome, detail=detail, brake=brake)) == words
