"""Actions in words: halt, decide and switch, with the permissions and audit events of the functions themselves."""

import pytest

from agents.enums import ApprovalStatus, HaltState
from agents.exceptions import Invalid, InvalidTransition, NotAllowed, NotFound, TicketRefused
from agents.models import AgentSession, Approval, Halt
from agents.roster.agents import agent_edit
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.halts import session_halt
from tests.agents.ask.scene import asked, is_pending, last_row, make_scene, nothing_was_inferred, trail, waiting_call
from tests.agents.autonomy import make_autonomous
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene()


def same_audit_events(in_words, by_function):
    since = last_row()
    in_words()
    said = trail(since)
    since = last_row()
    by_function()
    assert said == trail(since) != []


def make_with_prefix(owner, prefix, number):
    return make_session(owner=owner, public_id=f"{prefix}-0000-4000-8000-{number:012d}")


# --- halting ---


def test_halt_leaves_the_same_audit_events(scene):
    other = make_scene()
    same_audit_events(
        lambda: asked(scene, "halt session {s}"),
        lambda: session_halt(other.session.pk, by=other.owner, reason="x", now=NOW),
    )
    scene.session.refresh_from_db()
    assert scene.session.halt_state == HaltState.HALT_REQUESTED
    assert Halt.objects.filter(session=scene.session).get().reason == f"Asked for: halt session {scene.s}"
    assert nothing_was_inferred()


def test_run_is_halted_by_the_beginning_of_its_id(scene):
    row = make_with_prefix(scene.owner, "1f2e3d4c", 1)
    assert asked(scene, "stop 1f2e3d4c").data["answer"] == "requested"
    assert asked(scene, "stop 1f2e3d4c").data["answer"] == "already_halted"
    assert asked(scene, f"stop {str(row.public_id)[:20]}").data["answer"] == "already_halted"


@pytest.mark.parametrize("text", ["halt 1f2e3d4c", "halt session", "stop all sessions", "stop everything"])
def test_halt_without_one_run_lists_runs(scene, text):
    rows = [make_with_prefix(scene.owner, "1f2e3d4c", number) for number in (1, 2)]
    since = last_row()
    answer = asked(scene, text)

    assert {str(row.public_id) for row in rows} <= {row["id"] for row in answer.data["sessions"]}
    assert "Nothing was halted" in answer.text
    assert trail(since) == []


def test_halt_of_two_ids_halts_neither(scene):
    asked(scene, "halt {s} 1f2e3d4c")
    assert not AgentSession.objects.exclude(halt_state=HaltState.RUNNING).exists()


@pytest.mark.parametrize("said", ["1f2e3d", "00000000-0000-4000-8000-000000000000"])
def test_halt_of_unknown_id_is_not_found(scene, said):
    with pytest.raises(NotFound, match=said):
        asked(scene, f"halt session {said}")
    assert "Nothing was halted" in asked(scene, "halt session 12").text


@pytest.mark.parametrize("fields", [{}, {"is_superuser": True}])
def test_run_of_another_user_is_not_found(scene, fields):
    for text in ("halt session {s}", "show receipt {s}"):
        with pytest.raises(NotFound):
            asked(scene, text, by=make_user(**fields))
    scene.session.refresh_from_db()
    assert scene.session.halt_state == HaltState.RUNNING


# --- approvals ---


@pytest.mark.parametrize(("verb", "service"), [("approve", approval_approve), ("reject", approval_reject)])
def test_decision_leaves_the_same_audit_events(scene, verb, service):
    other = make_scene()
    same_audit_events(
        lambda: asked(scene, verb + " {a} {d}"),
        lambda: service(other.approval.pk, by=other.owner, digest=other.approval.digest, now=NOW),
    )
    assert Approval.objects.get(pk=scene.approval.pk).resolved_by == scene.owner
    assert nothing_was_inferred()


@pytest.mark.parametrize(
    "text", ["approve {a}", "reject {a}", "approve {a} 3f9a2c", "approve all", "approve", "deny it"]
)
def test_nothing_is_decided_without_the_digest(scene, text):
    since = last_row()
    answer = asked(scene, text)

    assert "Nothing was decided" in answer.text
    assert is_pending(scene.approval)
    assert trail(since) == []


def test_shown_words_decide_when_repeated(scene):
    shown = asked(scene, "approve {a}").data["approval"]

    assert shown["arguments"] == {"to": "x@example.org"}
    assert shown["digest"] == scene.approval.digest
    assert asked(scene, shown["repeat"]).data["status"] == ApprovalStatus.APPROVED


def test_wrong_digest_decides_nothing(scene):
    with pytest.raises(TicketRefused):
        asked(scene, "approve {a} 000000000000")
    assert is_pending(scene.approval)


def test_every_typed_character_of_the_digest_counts(scene):
    with pytest.raises(TicketRefused):
        asked(scene, f"approve {scene.a} {scene.approval.digest[:-1]}0" if scene.approval.digest[-1] != "0" else
              f"approve {scene.a} {scene.approval.digest[:-1]}1")  # fmt: skip
    assert asked(scene, f"approve {scene.a} {scene.approval.digest}").data["status"] == "approved"


def test_decision_needs_the_permission(scene):
    scene.owner.user_permissions.clear()
    scene.owner = type(scene.owner).objects.get(pk=scene.owner.pk)
    for verb in ("approve", "reject"):
        with pytest.raises(NotAllowed, match="resolve_approval"):
            asked(scene, verb + " {a} {d}")
    assert is_pending(scene.approval)


def test_approval_is_found_by_approvers_only(scene, approver):
    with pytest.raises(NotFound):
        asked(scene, "approve {a} {d}", by=make_user())
    assert asked(scene, "approve {a} {d}", by=approver).data["status"] == "approved"


def test_view_of_another_users_call_is_audited(scene, approver):
    since = last_row()
    asked(scene, "approve {a}", by=approver)
    asked(scene, "pending approvals", by=approver)
    assert [kind for kind, *_ in trail(since)] == ["session.viewed"]


def test_four_eyes_rule_applies_to_words(scene, settings):
    settings.LQOPS_FOUR_EYES = True
    Approval.objects.update(level="PRIVILEGED")
    with pytest.raises(NotAllowed, match="second pair of eyes, and you own the run"):
        asked(scene, "approve {a} {d}")


def test_decision_is_final(scene):
    asked(scene, "reject {a} {d}")
    with pytest.raises(InvalidTransition):
        asked(scene, "approve {a} {d}")


def test_ambiguous_id_of_an_approval_decides_nothing(scene):
    for number in (1, 2):
        waiting_call(scene.owner, public_id=f"1f2e3d4c-0000-4000-8000-{number:012d}")
    answer = asked(scene, f"approve 1f2e3d4c {scene.d}")
    assert len(answer.data["approvals"]) == 2
    assert not Approval.objects.exclude(status="pending").exists()


# --- agents ---


@pytest.mark.parametrize(("text", "enabled"), [("pause agent {}", False), ("resume {}", True)])
def test_switching_an_agent_leaves_the_same_audit_events(scene, text, enabled):
    mine, other = (make_agent(owner=scene.owner, name=name, enabled=not enabled) for name in ("Ada", "Bob"))
    same_audit_events(
        lambda: asked(scene, text.format(mine.name)),
        lambda: agent_edit(agent=other, by=scene.owner, now=NOW, enabled=enabled),
    )
    mine.refresh_from_db()
    assert mine.enabled is enabled


def test_longest_name_is_the_one_that_is_meant(scene):
    longer = make_agent(owner=scene.owner, name="Clerk of the archive and the mail")
    asked(scene, "please pause agent Clerk of the archive and the mail")
    longer.refresh_from_db()
    scene.agent.refresh_from_db()
    assert (longer.enabled, scene.agent.enabled) == (False, True)


def test_pause_without_a_name_lists_agents(scene):
    since = last_row()
    assert asked(scene, "pause agent").data["choices"][0]["name"] == "Clerk"
    assert trail(since) == []


def test_paused_agent_has_no_loop(scene):
    loop = make_session(owner=scene.owner, agent=scene.agent, mode="loop", status="sleeping")
    text = asked(scene, "pause Clerk").text
    loop.refresh_from_db()
    assert (loop.status, "its loop has ended" in text) == ("halted", True)


def test_loop_of_an_agent_is_started_and_stopped(scene):
    scene.agent.definition = make_autonomous().definition
    scene.agent.save()
    since = last_row()
    assert asked(scene, "start Clerk").text == "The loop of agent Clerk has started."
    assert [kind for kind, *_ in trail(since)][-1] == "agent.started"
    assert "Stop requested" in asked(scene, "Stop the clerk").text
    assert asked(scene, "stop agent Clerk").text.startswith("Nothing was done: the loop of agent Clerk is not running")
    with pytest.raises(Invalid, match="has nothing to start"):
        asked(scene, f"start {make_agent(owner=scene.owner, name='Ada').name}")


def test_name_of_an_agent_and_a_trigger_starts_neither(scene):
    make_agent(owner=scene.owner, name="Weekly scan")
    since = last_row()
    assert asked(scene, "start weekly scan").text.startswith("No agent was changed.")
    assert trail(since) == []


def test_agent_of_another_user_is_not_switched(scene):
    stranger = make_user()
    assert asked(scene, "pause agent Clerk", by=stranger).data["choices"] == []
    scene.agent.refresh_from_db()
    assert scene.agent.enabled
