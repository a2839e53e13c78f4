"""Signed messages: one run each, however often they are sent; and nothing at all for what nobody signed."""

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from unittest.mock import patch

import pytest

from agents.enums import EventOutcome
from agents.models import AgentSession, InboundEvent, Profile, Trigger
from agents.triggers import events as event_services
from agents.triggers.triggers import trigger_rotate_secret, trigger_secret
from tests.factories import NOW

from .messages import BODY, make_hook, nothing_was_stored, receive, send, signed
from .rows import events, halt_all, make_collection, reasons_of, release_all, rows_of

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def test_a_signed_message_spawns_a_run_that_is_told_where_its_event_is():
    collection = make_collection()
    trigger = make_hook(owner=collection.owner, collection=collection, query="late fees")
    answer = send(trigger)

    session, [event] = AgentSession.objects.get(), events()
    assert (answer.status, answer.code) == (200, "spawned")
    assert (answer.event_id, answer.session_id) == (event.public_id, session.public_id)
    assert session.params == {
        "query": "late fees",
        "collection": str(collection.public_id),
        "event": {"id": str(event.public_id)},
    }
    assert (event.owner, event.trigger, event.session, event.webhook_id) == (trigger.owner, trigger, session, "msg_1")
    assert (event.outcome, event.event_type, event.received_at) == (EventOutcome.SPAWNED, "invoice.paid", NOW)
    assert event.data == json.loads(BODY)
    assert rows_of("autonomous_event.received") == [
        {
            "event_id": str(event.public_id),
            "outcome": "spawned",
            "trigger_id": str(trigger.public_id),
            "session_id": str(session.public_id),
        }
    ]


def test_a_message_signed_with_nothing_but_the_standard_library_is_taken():
    trigger = make_hook()
    key = base64.b64decode(trigger_secret(trigger).removeprefix("whsec_"))
    stamp = str(int(NOW.timestamp()))
    digest = hmac.new(key, f"msg_7.{stamp}.".encode() + BODY, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    headers = {"Webhook-Id": "msg_7", "WEBHOOK-TIMESTAMP": stamp, "webhook-Signature": signature}
    assert receive(trigger, headers).code == "spawned"


def test_a_replay_gets_the_first_answer_and_spawns_nothing():
    trigger = make_hook()
    first = send(trigger)
    again = [receive(trigger, signed(trigger), now=NOW + n * MINUTE) for n in range(5)]
    assert set(again) == {first}
    Trigger.objects.update(enabled=False, paused_at=NOW, pause_reason="storm")
    assert receive(trigger, signed(trigger)) == first
    assert AgentSession.objects.count() == InboundEvent.objects.count() == 1
    assert len(rows_of("autonomous_event.received")) == 1


def test_a_replay_is_seen_under_the_lock_too():
    trigger = make_hook()
    first = send(trigger)
    look = event_services._seen
    with patch.object(event_services, "_seen", side_effect=[None, look(trigger, "msg_1")]):
        assert send(trigger) == first
    InboundEvent.objects.all().delete()  # forgotten, but the slot is still taken
    answer = send(trigger)
    assert (answer.session_id, answer.event_id) == (first.session_id, None)
    assert AgentSession.objects.count() == 1


def test_the_same_id_counts_for_each_trigger_and_another_id_is_another_event():
    one, two = make_hook(), make_hook()
    answers = [send(one), send(two), send(one, webhook_id="msg_2")]
    assert len({answer.session_id for answer in answers}) == 3


# --- Rotation ---


def test_after_a_rotation_both_secrets_count_for_a_day_and_then_only_the_new_one():
    trigger = make_hook()
    old = trigger_secret(trigger)
    new = trigger_rotate_secret(trigger=trigger, by=None, now=NOW)
    soon, later = NOW + timedelta(hours=23), NOW + timedelta(hours=24)
    assert send(trigger, now=soon, webhook_id="a", secret=old).code == "spawned"
    assert send(trigger, now=soon, webhook_id="b", secret=new).code == "spawned"
    assert send(trigger, now=later, webhook_id="c", secret=old).status == 401
    assert send(trigger, now=later, webhook_id="d", secret=new).code == "spawned"


def test_a_second_rotation_ends_the_first_secret_at_once():
    trigger = make_hook()
    first = trigger_secret(trigger)
    second = trigger_rotate_secret(trigger=trigger, by=None, now=NOW)
    trigger_rotate_secret(trigger=trigger, by=None, now=NOW)
    assert send(trigger, secret=first).status == 401
    assert send(trigger, secret=second).code == "spawned"


# --- Refused for now ---


def test_while_all_work_is_halted_the_id_is_not_used_up():
    trigger = make_hook()
    halt_all()
    answer = send(trigger)
    assert (answer.status, answer.code, answer.retry_after) == (503, "halted", 60)
    assert not InboundEvent.objects.exists()
    release_all()
    assert send(trigger).code == "spawned"


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"enabled": False}, "disabled"), ({"paused_at": NOW, "pause_reason": "by_hand"}, "paused")],
)
def test_a_trigger_out_of_use_answers_so_and_the_id_is_not_used_up(fields, code):
    trigger = make_hook(**fields)
    answer = send(trigger)
    assert (answer.status, answer.code) == (409, code)
    Trigger.objects.update(enabled=True, paused_at=None, pause_reason="")
    assert send(trigger).code == "spawned"


def test_without_opt_in_the_sender_is_told_and_the_id_is_not_used_up():
    trigger = make_hook()
    Profile.objects.update(opted_in=False)
    answer = send(trigger)
    assert (answer.status, answer.code) == (409, "opted_out")
    Profile.objects.update(opted_in=True)
    assert send(trigger).code == "spawned"


def test_beyond_the_hourly_limit_the_sender_is_told_when_to_come_back():
    trigger = make_hook(max_runs_per_hour=1)
    send(trigger)
    answer = send(trigger, webhook_id="msg_2", now=NOW + MINUTE)
    assert (answer.status, answer.code, answer.retry_after) == (429, "rate", 3540)
    refused = events()[1]
    assert (refused.outcome, refused.webhook_id, refused.data, refused.session) == ("refused", "", {}, None)
    assert send(trigger, webhook_id="msg_2", now=NOW + 61 * MINUTE).code == "spawned"


def test_a_storm_of_messages_leaves_a_bounded_queue_and_little_else():
    trigger = make_hook(max_runs_per_hour=5)
    answers = [send(trigger, webhook_id=f"msg_{n}", now=NOW + timedelta(seconds=n * 0.05)) for n in range(30)]
    assert [answer.status for answer in answers].count(200) == AgentSession.objects.count() == 5
    assert {(answer.status, answer.code) for answer in answers[5:20]} == {(429, "rate")}
    assert {(answer.status, answer.code, answer.retry_after) for answer in answers[20:]} == {(429, "storm", 3600)}
    trigger.refresh_from_db()
    assert trigger.pause_reason == "storm"
    assert InboundEvent.objects.filter(outcome="refused").count() == 15
    assert reasons_of(trigger) == ["rate"]


def test_a_storm_is_answered_without_a_word_to_the_database(django_assert_num_queries):
    trigger = make_hook(paused_at=NOW, pause_reason="storm")
    headers = signed(trigger)
    with django_assert_num_queries(2):  # the trigger, and whether the message was seen
        assert receive(trigger, headers).status == 429


# --- What it says ---


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"text"',
        b"{",
        b'{"a": NaN}',
        b'{"n": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 40_000 + b"1" + b"}" * 40_000,
        b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
    ],
    ids=["empty", "list", "text", "half", "nan", "digits", "deep list", "deep object", "65 levels"],
)
def test_a_body_that_is_no_plain_object_is_refused(body):
    trigger = make_hook()
    answer = send(trigger, body)
    assert (answer.status, answer.code) == (422, "invalid")
    assert nothing_was_stored()


def test_a_body_that_is_too_large_is_refused_whoever_signed_it():
    trigger = make_hook()
    body = b'{"a": "' + b"x" * 256 * 1024 + b'"}'
    assert receive(trigger, signed(trigger, body), body).status == 413
    assert nothing_was_stored()


def test_a_large_body_is_kept_as_an_excerpt():
    trigger = make_hook()
    body = json.dumps({"title": "Big", "text": "é" * 50_000}, ensure_ascii=False).encode()
    assert send(trigger, body).code == "spawned"
    [event] = events()
    assert (event.title, event.data["bytes"]) == ("Big", 100_025)
    assert len(event.data["excerpt"].encode()) <= 64 * 1024


def test_what_it_says_is_kept_without_secrets_and_fit_for_the_database():
    trigger = make_hook()
    body = json.dumps(
        {
            "source": "plant\u202e\nwest",
            "category": 7,
            "severity": "critical",
            "title": "T" * 400,
            "password": "hunter2-very-long",
            "text": "nul \x00 and half \ud83d",
            "many": 1e999,
        }
    ).replace("Infinity", "1e999")
    assert send(trigger, body.encode()).code == "spawned"
    [event] = events()
    assert (event.source, event.category, event.severity, len(event.title)) == ("plant west", "", "critical", 300)
    assert "hunter2" not in json.dumps(event.data)
    assert event.data["text"] == "nul \ufffd and half \ufffd"
    assert event.data["many"] == "inf"


def test_a_severity_that_does_not_exist_is_no_reason_to_refuse():
    trigger = make_hook(min_severity="critical")  # its rule is for events that choose a trigger; this one has chosen
    assert send(trigger, b'{"severity": "awful"}').code == "spawned"
    assert events()[0].severity == "info"
