"""approvals, approve, deny and answer: effects, output and exit codes."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from agents.enums import ApprovalStatus, Level, Status, ToolIntent, WaitingOn
from agents.guard import guarded_tool_call
from agents.management.base import incomplete
from agents.models import AgentSession, Approval
from agents.sessions.ending import session_rest
from audit.management import base
from audit.models import AuditEvent
from tests.agents.ask.rows import make_question
from tests.agents.conftest import Probe, tool
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(approver):
    """A session that is waiting for approval of one call."""
    session = make_session(agent=make_agent())
    with tool(ToolIntent.RUN_SKILL, probe=Probe(), level=Level.RESTRICTED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "a letter"}, key="step:1")
    session_rest(session, Status.WAITING, now=NOW, waiting_on=WaitingOn.APPROVAL)
    return Approval.objects.get(session=session)


def output(*arguments):
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_pending_approvals_are_listed_and_the_digest_only_beside_the_arguments(waiting):
    [row] = json.loads(output("approvals", "--json"))

    assert (row["approval"], row["digest"]) == (str(waiting.public_id), waiting.digest)
    assert row["arguments"] == {"to": "a letter"}
    assert waiting.digest not in output("approvals")
    assert "1 waiting." in output("approvals")


@pytest.mark.parametrize(("risk", "shown"), [("", "(RESTRICTED)"), ("high", "(RESTRICTED, high risk)")])
def test_pending_approval_is_listed_with_its_level_and_risk(waiting, risk, shown):
    Approval.objects.update(risk_level=risk)
    assert shown in output("approvals")


def test_empty_list_says_nothing_is_waiting():
    assert output("approvals") == "Nothing is waiting for a person.\n"
    assert json.loads(output("approvals", "--json")) == []


def test_approvals_mentions_open_questions():
    make_question()
    message = "Questions waiting for an answer: 1. `manage.py answer` lists them.\n"
    assert output("approvals") == f"No call is waiting for approval.\n{message}"
    assert json.loads(output("approvals", "--json")) == []


def test_waiting_run_prints_the_next_command(waiting):
    question = make_question()
    known = make_session(status=Status.WAITING, waiting_on=WaitingOn.OPERATOR)
    waiting.session.refresh_from_db()

    assert incomplete(waiting.session) == (
        "did not complete: it is waiting for an approval. Review the call with: "
        f"manage.py approve {waiting.public_id} --user NAME"
    )
    assert incomplete(question.session) == (
        f'did not complete: it is waiting for an answer: Which of the two?\nmanage.py answer {question.public_id} "…" '
        "--user NAME"
    )
    assert "unknown outcome" in incomplete(known)
    assert incomplete(make_session(status=Status.QUEUED)) == "did not complete: queued."


def test_approve_without_a_digest_shows_the_call_and_decides_nothing(waiting, approver):
    named = f"{waiting.public_id} --user {approver.username}"
    facts = json.loads(output("approve", str(waiting.public_id), "--user", approver.username, "--json"))
    text = output("approve", str(waiting.public_id), "--user", approver.username)

    assert facts["digest"] == waiting.digest
    assert "pk" not in facts
    assert f"manage.py approve {named} --digest {waiting.digest}\n" in text
    assert f"manage.py deny {named} " in text
    waiting.refresh_from_db()
    assert waiting.status == ApprovalStatus.PENDING


def test_approve_of_a_decided_call_says_so(waiting, approver):
    output("deny", str(waiting.public_id), "--user", approver.username)
    text = output("approve", str(waiting.public_id), "--user", approver.username)

    assert text.endswith("There is nothing to decide: it is denied.\n")
    assert "--digest" not in text


def test_approve_with_digest_resumes_the_run(waiting, approver):
    answer = output(
        "approve", str(waiting.public_id), "--user", approver.username, "--digest", waiting.digest, "--json"
    )

    assert json.loads(answer) == {"approval": str(waiting.public_id), "status": "approved"}
    assert AgentSession.objects.get(pk=waiting.session_id).status == Status.QUEUED
    event = AuditEvent.objects.get(kind="approval.approved")
    assert event.actor == f"user:{approver.pk}"


def test_approve_with_another_digest_is_refused(waiting, approver):
    with pytest.raises(CommandError, match="has changed since it was shown"):
        output("approve", str(waiting.public_id), "--user", approver.username, "--digest", "0" * 64)


def test_decision_needs_the_permission(waiting):
    with pytest.raises(CommandError, match="may not decide"):
        output("approve", str(waiting.public_id), "--user", make_user().username, "--digest", waiting.digest)
    with pytest.raises(CommandError, match="may not decide"):
        output("deny", str(waiting.public_id), "--user", make_user().username)


def test_deny_stores_the_note_and_resumes_the_run(waiting, approver):
    line = output("deny", str(waiting.public_id), "--user", approver.username, "--note", "not to them")

    waiting.refresh_from_db()
    assert line == "Denied: send_letter.\n"
    assert (waiting.status, waiting.note) == (ApprovalStatus.REJECTED, "not to them")
    assert AgentSession.objects.get(pk=waiting.session_id).status == Status.QUEUED


@pytest.mark.parametrize("command", ["approve", "deny"])
@pytest.mark.parametrize("name", ["4554cdd9", "00000000-0000-0000-0000-000000000000"])
def test_unknown_approval_is_an_error(command, name, approver):
    with pytest.raises(CommandError, match=f"There is no approval '{name}'"):
        output(command, name, "--user", approver.username)


def test_decision_needs_a_user(waiting):
    with pytest.raises(CommandError, match="There is no active user"):
        output("approve", str(waiting.public_id), "--user", "ghost")


def test_unique_beginning_of_an_id_is_enough(waiting, approver):
    by = ("--user", approver.username)
    short = str(waiting.public_id)[:8]
    with pytest.raises(CommandError, match="give at least 6 characters of its id"):
        output("approve", short[:4], *by)
    assert "Nothing is decided yet" in output("approve", short, *by)
    twin = f"{short}-0000-4000-8000-000000000001"
    other = Approval.objects.get(pk=waiting.pk)
    other.pk, other.public_id, other.call_key = None, twin, "another"
    other.save(force_insert=True)
    with pytest.raises(CommandError, match="Several approvals match"):
        output("deny", short, *by)
    assert output("deny", str(waiting.public_id)[:13], *by) == "Denied: send_letter.\n"


def test_answer_without_text_or_user_is_an_error():
    question = make_question()
    short = str(question.public_id)[:8]
    with pytest.raises(CommandError, match="Give the answer"):
        output("answer", short)
    with pytest.raises(CommandError, match="Give the user who answers"):
        output("answer", short, "The first.")
    output("answer", short, "The first.", "--user", question.session.owner.get_username())
    question.refresh_from_db()
    assert question.answer == "The first."


def test_closed_output_pipe_is_no_error(monkeypatch):
    class Closed(io.StringIO):
        def flush(self):
            raise BrokenPipeError

    moved = []
    monkeypatch.setattr(base.os, "dup2", lambda *ends: moved.append(ends))
    call_command("approvals", stdout=Closed())
    assert len(moved) == 1
