"""Texts of pages: status of a run, headings, empty lists."""

import re

import pytest
from django.contrib import admin
from django.urls import reverse

from agents.enums import ApprovalStatus, HaltState, Status, ToolIntent
from agents.models import ApiKey, Budget, Document, Halt, InboundEvent, InferenceLog, PromptSkill, Trigger
from audit import recorder
from tests.agents.admin.rows import make_approval, make_document, page, sign_in, text_of
from tests.factories import NOW, make_session, make_trigger

pytestmark = pytest.mark.django_db

STOPPED = {"status": Status.HALTED, "halt_state": HaltState.HALTED, "completed_at": NOW}
HALTED = {**STOPPED, "terminal_reason": "external_halt"}
DONE = {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW}


def shown(client, row):
    return text_of(client.get(page(type(row), "change", row.pk)))


# --- Status of a session ---


@pytest.mark.parametrize(
    ("fields", "chips"),
    [
        ({**STOPPED, "terminal_reason": "cost_cap_reached"}, ["halted", "cost cap reached"]),
        (HALTED, ["halted", "stopped by a person"]),
        (DONE, ["completed"]),
        ({"status": Status.RUNNING}, ["running"]),
        ({"status": Status.RUNNING, "halt_state": HaltState.HALT_REQUESTED}, ["running", "halt requested"]),
        ({"status": Status.WAITING, "waiting_on": "approval"}, ["waiting for approval"]),
    ],
)
def test_status_chips_say_each_fact_once(client, fields, chips):
    session = make_session(owner=sign_in(client), **fields)

    found = shown(client, session).split('id="run-status"')[1].split("<h2")[0]

    assert re.findall(r'class="lq-chip [a-z]*">([^<]*)<', found) == chips


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (HALTED, "No findings."),
        (DONE, "No findings."),
        ({}, "No findings so far."),
    ],
)
def test_run_without_findings_says_so(client, fields, words):
    assert words in shown(client, make_session(owner=sign_in(client), **fields))


def test_denied_notification_is_shown_in_the_ending(client):
    owner = sign_in(client, username="ada")
    session = make_session(owner=owner, **DONE)
    told = {"intent": ToolIntent.NOTIFY, "resolved_at": NOW}
    make_approval(session, key="a", status=ApprovalStatus.REJECTED, resolved_by=owner, **told)
    make_approval(session, key="b", status=ApprovalStatus.EXPIRED, **told)
    make_approval(session, key="c", status=ApprovalStatus.REJECTED, resolved_at=NOW)

    found = shown(client, session)

    assert "Completed. Its notification was denied by ada." in found
    assert "Its notification was not sent: the approval expired." in found
    assert "Its call send_letter was denied by a person." in found


def test_timeline_has_no_blanks_and_no_raw_values(client):
    session = make_session(owner=sign_in(client), error="CostCapReached: above 0.500000 USD.")
    started = {"mode": "phased", "owner_id": 1, "max_cost_usd": "0.500000"}
    for kind, details in (
        ("autonomous_session.started", started),
        ("session.inputs", {"memories": 1}),
        ("session.inputs", {"memories": 0, "context_version": 3}),
        ("autonomous_session.resumed", {"cause": "queue", "recoveries": 0}),
        ("autonomous_session.resumed", {"cause": "takeover", "recoveries": 2}),
    ):
        recorder.append(session.chain, kind, now=NOW, details=details)

    found = shown(client, session)

    for words in (
        "cost cap $0.50.",
        "project context version none, memories: 1.",
        "project context version 3, memories: 0.",
        "Run picked up by a worker: next in the queue.",
        "Run picked up by a worker: taken over from another. Workers lost so far: 2.",
        ">above $0.50.<",
    ):
        assert words in found, words


def test_cost_is_one_figure_with_the_cap_and_exact_in_the_details_of_the_run(client):
    costs = {"cost_total_usd": "0.1", "cost_actual_usd": "0.850001", "cost_reserved_usd": "0.02"}
    session = make_session(owner=sign_in(client), max_cost_usd="1", **costs)

    run, home = shown(client, session), text_of(client.get(reverse("admin:index")))

    for found in (run, home):
        assert '$0.85 <span class="lq-faint">of $1.00</span>' in found
        assert "$0.02 in flight" in found
        assert 'class="lq-bar warn"><span style="width: 85%"' in found
    assert "$0.850001" in run
    assert "$0.10" in run
    assert "$0.10" not in home


# --- Names of pages ---


def test_headings_keep_the_case_of_names(client):
    owner = sign_in(client)
    document = make_document(owner, name="memo.md")
    session = make_session(owner=owner, params={"document": str(document.public_id)})

    for row in (document, session):
        head = shown(client, row).split("<h1")[1].split("</h1>")[0]
        assert "memo.md" in head
        assert "Memo.md" not in head
        assert "(running)" not in head


# --- Words of lists ---


def test_empty_lists_say_what_to_do(client):
    sign_in(client)
    silent = [model for model in admin.site._registry if not getattr(admin.site._registry[model], "empty_text", "")]

    assert {model._meta.model_name for model in silent} == {"installation", "user", "group"}
    for model in (Trigger, Halt, Document, InboundEvent, PromptSkill, ApiKey, Budget):
        found = text_of(client.get(page(model, "changelist")))
        assert admin.site._registry[model].empty_text.partition("LQOPS")[0] in found
        assert "yielded" not in found
    assert "No matches." in text_of(client.get(page(Trigger, "changelist"), {"q": "no such thing"}))


def test_values_of_enums_are_words_in_lists_and_their_filters(client):
    sign_in(client)
    Halt.objects.create(scope="organisation", reason="r")
    InferenceLog.objects.create(session=make_session(), model="m", purpose="autonomous_executor", outcome="success")

    halts, asked = (text_of(client.get(page(model, "changelist"))) for model in (Halt, InferenceLog))

    assert "whole installation" in halts
    assert "Whole installation" in halts
    assert "Organisation" not in halts
    assert "run" in asked
    assert "Autonomous" not in asked


def test_cap_has_two_places_or_more_if_needed(client):
    sign_in(client)
    make_trigger(name="a", max_cost_usd="0.5")
    make_trigger(name="b", max_cost_usd="0.0025")

    found = text_of(client.get(page(Trigger, "changelist")))

    assert "Cap per run (USD)" in found
    for value in ("0.50", "0.0025"):
        assert f'value="{value}"' in found


def test_trigger_page_says_that_the_secret_is_shown_once(client):
    row = make_trigger(owner=sign_in(client), kind="event")

    assert "The secret is shown only once." in shown(client, row)
