from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import OperationalError, connection, transaction

from audit import recorder, skill_audits
from audit.models import SYSTEM_CHAIN, AuditEvent, PendingEvent, SkillAudit
from audit.recorder import EMPTY, AuditContention, Head, append, chain_head, close_chain
from audit.rows import GENESIS, event_hash
from tests.audit.samples import NOW, RUN, call, later, record_skill_call, row, start

pytestmark = pytest.mark.django_db


def test_first_row_starts_from_genesis_and_opens_its_chain():
    head = start(RUN)
    first, birth = row(RUN, 1), row(SYSTEM_CHAIN, 1)
    assert (first.prev_hash, first.hash) == (GENESIS, head.hash)
    assert birth.kind == "audit.chain_opened"
    assert birth.details == {"opened": RUN, "first_hash": head.hash}
    assert (birth.subject, birth.at) == (f"session:{RUN}", NOW)


def test_rows_link_to_each_other():
    heads = [start(RUN), call(RUN, "started"), call(RUN, "success")]
    rows = AuditEvent.objects.filter(chain=RUN).order_by("seq")
    assert [(found.seq, found.hash) for found in rows] == [(head.seq, head.hash) for head in heads]
    assert [found.prev_hash for found in rows] == [GENESIS, heads[0].hash, heads[1].hash]


def test_stored_row_has_the_hash_of_its_columns():
    append(
        RUN,
        "autonomous_session.tool_call",
        now=later(0.123456),
        actor="user:7",
        subject="call:1",
        request_id="r",
        details={"tool": "notify", "cost_usd": "0.1", "detail": ["a", 2**60, None, True]},
    )
    found = row(RUN, 1)
    names = ("chain", "seq", "kind", "at", "actor", "subject", "request_id", "details", "prev_hash")
    assert found.hash == event_hash(**{name: getattr(found, name) for name in names})


def test_pending_events_that_cannot_be_appended_stay_pending():
    append_later = {"kind": "model.accepted", "at": NOW, "actor": "system", "details": {"model": "m"}}
    PendingEvent.objects.create(chain=SYSTEM_CHAIN, **append_later)
    with patch.object(recorder, "_append", side_effect=OperationalError("lock timeout")):
        assert recorder.append_pending(patience=timedelta(seconds=1)) == 0
        with pytest.raises(OperationalError):
            recorder.append_pending()
    assert PendingEvent.objects.count() == 1
    assert recorder._append_one(10**9) == 0  # another process was faster
    assert recorder.append_pending() == 1
    assert (row(SYSTEM_CHAIN, 1).kind, row(SYSTEM_CHAIN, 1).at) == ("model.accepted", NOW)


def test_system_chain_has_no_opening():
    append(SYSTEM_CHAIN, "model.accepted", now=NOW, details={"model": "m"})
    assert AuditEvent.objects.count() == 1


def test_end_of_a_chain_names_its_last_row():
    start(RUN)
    last = call(RUN, "denied")
    close_chain(RUN, now=later(9))
    assert row(SYSTEM_CHAIN, 2).details == {"closed": RUN, "last_seq": 2, "last_hash": last.hash}


APPENDING = 1 if connection.vendor == "postgresql" else 2  # else the head is read first


def test_closing_accepts_a_known_head(django_assert_num_queries):
    last = start(RUN)
    with django_assert_num_queries(APPENDING):
        close_chain(RUN, now=later(9), after=last)


def test_known_head_saves_a_query(django_assert_num_queries):
    head = start(RUN)
    with django_assert_num_queries(1):
        append(RUN, "autonomous_session.halt_requested", now=NOW, after=head)


def test_stale_head_is_replaced():
    stale = start(RUN)
    call(RUN, "started")
    assert append(RUN, "autonomous_session.halt_requested", now=NOW, after=stale).seq == 3


def test_stale_empty_head_opens_no_second_chain():
    start(RUN)
    assert append(RUN, "autonomous_session.halt_requested", now=NOW, after=EMPTY).seq == 2
    assert AuditEvent.objects.filter(kind="audit.chain_opened").count() == 1


def test_append_gives_up_after_many_conflicts(monkeypatch):
    stale = start(RUN)
    call(RUN, "started")
    monkeypatch.setattr(recorder, "MAX_TRIES", 3)
    monkeypatch.setattr(recorder, "_add_next", lambda fields: None)
    monkeypatch.setattr(recorder, "chain_head", lambda chain: stale)
    with pytest.raises(AuditContention, match="other writers were faster 3 times"):
        append(RUN, "autonomous_session.halt_requested", now=NOW)


@pytest.mark.parametrize("name", ["actor", "subject", "request_id"])
def test_label_with_a_space_is_refused(name):
    with pytest.raises(ValueError, match=f"audit {name} 'two words' must be a label"):
        append(RUN, "autonomous_session.halt_requested", now=NOW, **{name: "two words"})
    assert not AuditEvent.objects.exists()


def test_chain_whose_opening_is_refused_is_not_started():
    with pytest.raises(ValueError, match="'session:two words' must be a label"):
        append("two words", "autonomous_session.halt_requested", now=NOW)
    assert not AuditEvent.objects.exists()


def test_time_without_a_zone_is_refused():
    with pytest.raises(TypeError):
        append(RUN, "autonomous_session.halt_requested", now=NOW.replace(tzinfo=None))


def test_head_of_an_empty_chain():
    assert chain_head("nobody") == Head(0, GENESIS)


@pytest.mark.django_db(transaction=True)
def test_row_joins_the_transaction_of_its_caller():
    start(RUN)
    with transaction.atomic():
        call(RUN, "started")
        start("another")
        transaction.set_rollback(True)
    assert set(AuditEvent.objects.values_list("chain", "seq")) == {(RUN, 1), (SYSTEM_CHAIN, 1)}
    assert call(RUN, "started").seq == 2


@pytest.mark.django_db(transaction=True)
def test_row_stays_when_its_caller_commits():
    with transaction.atomic():
        start(RUN)
    connection.close()
    assert AuditEvent.objects.filter(chain=RUN).count() == 1


def skill_call(**given):
    facts = {
        "skill_name": "send",
        "arguments": {"to": "a"},
        "output": "done",
        "capability_level": "CONTROLLED",
        "risk_level": None,
        "duration_ms": 12,
        "now": NOW,
    }
    return record_skill_call(**{**facts, **given})


@pytest.mark.parametrize(
    ("level", "rows"), [("SAFE", 0), ("MONITORED", 0), ("CONTROLLED", 1), ("RESTRICTED", 1), ("PRIVILEGED", 1)]
)
def test_skill_calls_of_level_controlled_and_above_are_recorded(level, rows):
    assert (skill_call(capability_level=level) is not None) == bool(rows)
    assert SkillAudit.objects.count() == rows


def test_skill_call_keeps_who_what_and_when():
    skill_call(risk_level="low", chat_id="chat-1", user_id=7, session_id=RUN)
    found = SkillAudit.objects.get()
    assert (found.skill_name, found.input_summary, found.output_summary) == ("send", '{"to":"a"}', "done")
    assert (found.risk_level, found.duration_ms, found.chat_id, found.user_id) == ("low", 12, "chat-1", 7)
    assert (str(found.session_id), found.created_at, str(found)) == (RUN, NOW, "send (CONTROLLED)")


def test_skill_call_takes_text_and_missing_output():
    skill_call(arguments="plain", output=None)
    found = SkillAudit.objects.get()
    assert (found.input_summary, found.output_summary) == ("plain", "")


def test_summaries_are_redacted_first_and_cut_afterwards(monkeypatch):
    monkeypatch.setattr(skill_audits, "redact", lambda text: text.replace("k" * 40, "[key]"))
    skill_call(arguments="x" * 190 + "k" * 40, output="y" * 500)
    found = SkillAudit.objects.get()
    assert found.input_summary == "x" * 190 + "[key]"
    assert found.output_summary == "y" * 200


def test_event_is_named_by_chain_number_and_kind():
    start(RUN)
    assert str(row(RUN, 1)) == f"{RUN}#1 autonomous_session.started"
    assert row(RUN, 1).sentence == "Run started: phased, cost cap 5.00 USD."
