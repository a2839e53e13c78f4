"""The command `ask`: its output, waiting, and refusals."""

import io
import json

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from agents.management import base
from agents.models import AgentSession, Message
from tests.agents.ask.scene import make_scene
from tests.factories import NOW

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene(username="ada")


def said(text, *options):
    out = io.StringIO()
    call_command("ask", text, "--user", "ada", *options, stdout=out)
    return out.getvalue()


def ends_as(monkeypatch, **fields):
    """A worker takes the session, and answers, while the command sleeps."""

    def work(_seconds):
        session = AgentSession.objects.order_by("-pk").first()
        AgentSession.objects.filter(pk=session.pk).update(completed_at=NOW, **fields)
        Message.objects.create(
            session=session, seq=1, role="assistant", content="It is Tuesday.", stop="end_turn", created_at=NOW
        )

    monkeypatch.setattr(base.time, "sleep", work)


def test_fast_path_is_printed(scene):
    assert said("runs waiting").startswith("1 run:\n- ")
    found = json.loads(said("runs waiting", "--json"))
    assert (found["kind"], found["path"], found["data"]["count"]) == ("answer", "list_sessions", 1)


def test_started_session_is_printed(scene):
    out = said("What day is it?", "--agent", "Clerk")
    session = AgentSession.objects.order_by("-pk").first()
    assert str(session.public_id) in out
    assert session.agent == scene.agent


def test_output_links_to_the_session(scene, settings, client):
    settings.LQOPS_BASE_URL = "https://ops.example"
    User.objects.filter(username="ada").update(is_staff=True, is_superuser=True)
    client.force_login(User.objects.get(username="ada"))
    for text in ("What day is it?", "Investigate why the supplier raised its prices"):
        out = said(text, "--agent", "Clerk")
        session = AgentSession.objects.order_by("-pk").first()
        assert "--wait SECONDS" in out
        assert f'manage.py ask "receipt {str(session.public_id)[:8]}" --user ada' in out
        page = out.partition("https://ops.example")[2].partition(";")[0]
        assert client.get(page).status_code == 200


def test_wait_prints_the_answer(scene, monkeypatch):
    ends_as(monkeypatch, status="completed", terminal_reason="completed")
    out = said("What day is it?", "--agent", "Clerk", "--wait", "5")
    assert out.endswith("completed (completed).\nIt is Tuesday.\n")
    ends_as(monkeypatch, status="completed", terminal_reason="completed")
    found = json.loads(said("What day is it?", "--wait", "5", "--json", "--agent", str(scene.agent.public_id)))
    assert (found["status"], found["answer"]) == ("completed", "It is Tuesday.")


def test_session_that_does_not_complete_is_an_error(scene, monkeypatch):
    ends_as(monkeypatch, status="failed", terminal_reason="worker_error")
    with pytest.raises(CommandError, match="worker_error"):
        said("What day is it?", "--agent", "Clerk", "--wait", "5")
    with pytest.raises(CommandError, match="queued"):
        said("What day is it?", "--agent", "Clerk", "--wait", "0")


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "long"])
def test_invalid_wait_is_refused_before_anything_starts(scene, wait):
    before = AgentSession.objects.count()
    with pytest.raises(CommandError, match="is not a number of seconds, 0 or more"):
        said("What day is it?", f"--wait={wait}")
    assert AgentSession.objects.count() == before


def test_wanted_change_is_printed_as_the_command_that_makes_it(scene):
    assert f"To do it, run: manage.py halt {scene.s} --user ada" in said(f"halt {scene.s}")
    assert f"To do it, run: manage.py pause --agent {scene.agent.public_id} --user ada" in said("pause Clerk")
    type(scene.agent).objects.update(enabled=False)
    out = said("resume Clerk")
    scene.agent.refresh_from_db()
    assert not scene.agent.enabled
    token = out.partition("ask --confirm ")[2].split()[0]
    done = io.StringIO()
    call_command("ask", "--confirm", token, "--user", "ada", stdout=done)
    scene.agent.refresh_from_db()
    assert (done.getvalue().startswith("Agent Clerk works again"), scene.agent.enabled) == (True, True)


def test_question_without_a_model_prints_commands_and_rows(scene):
    out = said("who is the clerk", "--no-model")
    assert "Nearest commands" in out
    assert "agent Clerk" in out


def test_request_and_confirmation_exclude_each_other(scene):
    with pytest.raises(CommandError, match="one of the two"):
        call_command("ask", "--user", "ada")


def test_next_message_stays_in_the_chat(scene, monkeypatch):
    ends_as(monkeypatch, status="completed", terminal_reason="completed")
    first = json.loads(said("What day is it?", "--agent", "Clerk", "--wait", "5", "--json"))
    second = json.loads(said("Are you sure?", "--chat", first["data"]["chat"], "--json"))
    assert second["data"]["chat"] == first["data"]["chat"]


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("", (), "characters"),
        ("halt session 00000000-0000-4000-8000-000000000000", (), "no run"),
        ("hello there", ("--agent", "Nobody"), "no agent"),
        ("hello there", ("--chat", "x"), "invalid UUID"),
    ],
)
def test_refusal_is_an_error(scene, text, options, why):
    with pytest.raises(CommandError, match=why):
        said(text, *options)


def test_unknown_user_is_refused():
    with pytest.raises(CommandError, match="no active user"):
        call_command("ask", "help", "--user", "nobody")
