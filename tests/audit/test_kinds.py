from string import Formatter

import pytest

from audit.kinds import KINDS, TERMINAL_KINDS, AuditDetailRefused, UnknownAuditKind, checked_details, sentence
from audit.models import AuditEvent
from audit.recorder import append
from tests.audit.samples import NOW
from tests.table import every_row

CALL = "autonomous_session.tool_call"


def test_session_kinds_are_exactly_these():
    assert {name.partition(".")[2] for name in KINDS if name.startswith("autonomous_session.")} == {
        "started",
        "resumed",
        "phase_transition",
        "tool_call",
        "halt_requested",
        "pause_requested",
        "resume_requested",
        "halted",
        "cost_cap_reached",
        "completed",
        "failed",
    }


def test_terminal_kinds_are_exactly_these():
    assert {name.partition(".")[2] for name in TERMINAL_KINDS} == {"halted", "cost_cap_reached", "completed", "failed"}


def test_kinds_cannot_be_added_at_run_time():
    with pytest.raises(TypeError):
        KINDS["autonomous_session.danced"] = KINDS[CALL]


@pytest.mark.django_db
def test_unknown_kind_is_refused_before_the_insert():
    with pytest.raises(UnknownAuditKind, match=r"autonomous_session\.danced"):
        append("run", "autonomous_session.danced", now=NOW)
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
@every_row(
    "value",
    [
        0.1,
        "two words",
        'a"quote',
        "line\n",
        "é",
        "x" * 129,
        {"nested": 1},
        [["nested"]],
        ["fine", "not fine"],
        [1.5],
        b"bytes",
        object(),
    ],
)
def test_content_is_refused_before_the_insert(value):
    with pytest.raises(AuditDetailRefused, match="'detail' must be a count, id, label or cost"):
        append("run", CALL, now=NOW, details={"detail": value})
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
def test_undeclared_detail_is_refused_before_the_insert():
    with pytest.raises(AuditDetailRefused, match="'prompt' is not declared"):
        append("run", CALL, now=NOW, details={"prompt": "x"})
    assert not AuditEvent.objects.exists()


@every_row("value", ["", "0.005000", "user:7", "a/b@c+d-e.f", 7, 2**70, True, None, [], ["a", 1, None]])
def test_counts_ids_labels_and_costs_pass(value):
    assert checked_details(CALL, {"detail": value}) == {"detail": value}


def test_details_are_copied():
    given = {"tool": "notify"}
    checked = checked_details(CALL, given)
    given["tool"] = "other"
    assert checked == {"tool": "notify"}


@every_row("kind", KINDS.values())
def test_each_kind_reads_as_a_sentence(kind):
    named = {field for _, field, _, _ in Formatter().parse(kind.sentence) if field}
    text = sentence(kind.name, dict.fromkeys(named, "X"))
    assert text[0].isupper()
    assert text.endswith(".")
    assert "{" not in text
    assert named <= kind.details


def test_sentence_names_a_missing_detail():
    assert sentence(CALL, {"tool": "notify"}) == "Notify: none."


def test_sentence_of_an_unknown_kind_is_its_name():
    assert sentence("autonomous_session.danced", {}) == "autonomous_session.danced"
