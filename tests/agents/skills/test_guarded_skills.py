"""Skills through the guard: grants, limits, timeouts, isolation and audit rows."""

from datetime import timedelta
from decimal import Decimal
from itertools import product

import pytest
from django.conf import settings

from agents.enums import Level, Outcome, Phase, Status, ToolIntent
from agents.exceptions import SessionHalted, ToolNotGranted
from agents.guard import guarded_group, guarded_tool_call
from agents.guard.calls import plan_call, skill_audit
from agents.guard.tools import BadParams
from agents.models import Agent, AgentSession, Approval, SkillCount, SkillSetting, ToolCall
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.halts import halt_all_work, session_halt
from agents.types import ToolResult
from audit.models import AuditEvent, SkillAudit
from audit.receipts import build_receipt
from audit.verify import verify_log
from tests.factories import NOW, make_agent, make_session

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sample_skills")]


@pytest.fixture
def session():
    agent = make_agent(mode="auto", waived_skills=["reign"])
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=agent)


def ask(session, skill, key="", now=NOW, **arguments):
    params = {"skill": skill, "arguments": arguments}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key, now=now)


def test_skill_runs_and_is_journaled_under_its_name(session):
    result = ask(session, "look", place="here")

    assert (result.outcome, result.data) == (Outcome.SUCCESS, {"seen": "here"})
    [made] = ToolCall.objects.all()
    assert (made.intent, made.name, made.version, made.repeatable) == ("run_skill", "look", "1", True)
    assert AuditEvent.objects.filter(chain=session.chain, details__name="look").count() == 2


def test_phase_without_the_grant_runs_no_skill(session):
    session.current_phase = Phase.DELIVERY
    session.save()
    with pytest.raises(ToolNotGranted):
        ask(session, "look")
    assert not ToolCall.objects.exists()


@pytest.mark.parametrize("name", ["nothing", "", 7, None])
def test_unknown_skill_is_refused_before_any_write(session, name):
    with pytest.raises(BadParams, match="not found or disabled"):
        ask(session, name)


@pytest.mark.parametrize("arguments", [None, "place", ["here"]])
def test_arguments_that_are_no_object_are_refused_before_any_write(session, arguments):
    with pytest.raises(BadParams, match="the arguments of look are an object"):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"skill": "look", "arguments": arguments}, now=NOW)
    assert not ToolCall.objects.exists()


def test_disabled_skill_is_refused_like_an_unknown_one(session):
    SkillSetting.objects.create(name="look", enabled=False)
    with pytest.raises(BadParams, match="not found or disabled"):
        ask(session, "look")


def test_call_over_the_hourly_limit_is_refused_until_the_next_hour(session):
    for _ in range(20):
        assert ask(session, "reign").ok
    refused = ask(session, "reign")

    assert refused.outcome == Outcome.RATE_LIMITED
    assert "20 times in this hour" in refused.error
    assert ToolCall.objects.count() == 20
    assert SkillAudit.objects.filter(skill_name="reign").count() == 21
    assert SkillCount.objects.get().refused == 1
    assert ask(session, "reign", now=NOW + timedelta(hours=1)).ok


@pytest.mark.usefixtures("approver")
def test_call_over_its_limit_requests_no_approval(session):
    Agent.objects.update(mode="semi")
    SkillSetting.objects.create(name="act", hourly_limit=0)

    refused = ask(session, "act", what="it")

    assert (refused.outcome, refused.detail) == (Outcome.RATE_LIMITED, "rate_limited")
    assert not Approval.objects.exists()
    assert SkillAudit.objects.get().output_summary == "act has a limit of 0 calls per hour"
    assert SkillCount.objects.get().refused == 1


def test_call_over_its_limit_does_not_use_its_approval(session, approver):
    Agent.objects.update(mode="semi")
    ask(session, "act", key="a:1", what="it")
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    SkillSetting.objects.create(name="act", hourly_limit=0)

    assert ask(session, "act", key="a:1", what="it").outcome == Outcome.RATE_LIMITED
    assert Approval.objects.get().consumed_at is None
    SkillSetting.objects.update(hourly_limit=1)
    assert ask(session, "act", key="a:1", what="it").ok
    assert Approval.objects.get().consumed_at == NOW


def test_call_with_an_expired_approval_is_not_counted(session, approver):
    Agent.objects.update(mode="semi")
    ask(session, "act", key="a:1", what="it")
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)

    late = ask(session, "act", key="a:1", now=NOW + settings.LQOPS_APPROVAL_LIFETIME, what="it")

    assert (late.outcome, late.detail) == (Outcome.DENIED, "ticket_refused")
    assert not SkillCount.objects.filter(used__gt=0).exists()


def test_skill_over_its_timeout_is_abandoned(session):
    late = ask(session, "dawdle", seconds=5)

    assert late.outcome == Outcome.TIMEOUT
    assert late.error == "TimeoutError: dawdle exceeded its timeout of 0.2 s"


def test_timeout_of_a_skill_with_side_effects_is_unknown(session):
    assert ask(session, "dawdle_and_act", seconds=5).outcome == Outcome.UNKNOWN
    assert ask(session, "dawdle_apart").outcome == Outcome.UNKNOWN


def test_failure_names_the_exception(session):
    failed = ask(session, "fail", words="no such thing")

    assert (failed.outcome, failed.data) == (Outcome.ERROR, None)
    assert failed.error == "ValueError: no such thing"


def test_unlisted_host_makes_a_read_restricted(session, settings):
    settings.LQOPS_SKILL_HOSTS = ["docs.example.org"]
    session.agent.mode = "semi"
    session.agent.save()

    assert ask(session, "visit", url="https://docs.example.org/a").ok
    assert ask(session, "visit", url="https://elsewhere.example/?q=secret").outcome != Outcome.SUCCESS
    assert ask(session, "visit", url="https://docs.example.org@elsewhere.example/").outcome != Outcome.SUCCESS


def test_skill_with_process_isolation_runs_in_another_process(session):

    result = ask(session, "alone", key="step:1:0", text="hello")

    assert result.data == {"text": "hello", "key": f"{session.public_id}:step:1:0"}


@pytest.mark.parametrize(
    ("skill", "how", "said"),
    [
        *product(["quit_beside", "quit_inside", "quit_apart"], ["exit"], ["SystemExit: 3"]),
        *product(["quit_beside", "quit_inside"], ["cancel"], ["CancelledError: over"]),
        ("quit_beside", "interrupt", "KeyboardInterrupt"),
    ],
)
def test_skill_that_exits_fails_without_ending_the_worker(session, skill, how, said):
    failed = ask(session, skill, how=how)

    assert (failed.outcome, failed.data) == (Outcome.ERROR, None)
    assert failed.error.startswith("SkillFailed: ")
    assert said in failed.error


def test_ctrl_c_in_a_skill_ends_the_worker(session):
    with pytest.raises(KeyboardInterrupt):
        ask(session, "quit_inside", how="interrupt")


def test_process_killed_during_side_effects_is_unknown(session, tmp_path):
    gone = ask(session, "die", path=str(tmp_path / "effect"))

    assert (tmp_path / "effect").exists()
    assert (gone.outcome, gone.error) == (Outcome.UNKNOWN, "die ended with code 9 without a result.")


def test_process_killed_during_a_read_fails(session):
    assert ask(session, "die_looking").outcome == Outcome.ERROR


def test_result_of_a_process_is_found_among_its_output(session):
    assert ask(session, "chatter").data == "answered"


def test_three_of_five_levels_are_recorded(session):
    for name, level in zip(["a", "b", "c", "d", "e"], Level, strict=True):
        SkillSetting.objects.update_or_create(name="echo", defaults={"level": level})
        ask(session, "echo", text=name)

    notes = SkillAudit.objects.order_by("pk").values_list("capability_level", "risk_level")
    assert list(notes) == [("CONTROLLED", None), ("RESTRICTED", "low"), ("PRIVILEGED", "low")]


@pytest.mark.django_db(transaction=True)
def test_group_runs_in_parallel_and_answers_in_order(session):
    asked = [
        plan_call(
            session,
            ToolIntent.RUN_SKILL,
            {"skill": "look", "arguments": {"place": place}},
            key=f"step:1:{place}",
            now=NOW,
        )
        for place in "abc"
    ]

    results = guarded_group(asked)

    assert [result.data["seen"] for result in results] == ["a", "b", "c"]
    rows = AuditEvent.objects.filter(chain=session.chain).order_by("seq").values_list("details__outcome", flat=True)
    assert list(rows) == ["started"] * 3 + ["success"] * 3


# --- Refused calls on the receipt ---


def refused(session):
    return [(call["name"], call["brake"], call["detail"]) for call in build_receipt(session.chain)["refused_calls"]]


def test_r5_is_named_with_the_skill_and_the_reason_of_the_halt(session):
    session_halt(session.pk, by=None, reason="it loops", now=NOW)
    for _ in range(2):
        with pytest.raises(SessionHalted):
            ask(session, "act", what="it")
    assert set(refused(session)) == {("act", "R5", "external_halt")}
    assert len(refused(session)) == 2
    assert [halt["reason"] for halt in build_receipt(session.chain)["halts"]] == ["it loops", None]


def test_halt_of_all_work_is_named_with_its_reason(session):
    halt_all_work(by=None, reason="incident", now=NOW)
    with pytest.raises(SessionHalted):
        ask(session, "act", what="it")
    assert refused(session) == [("act", "R5", "external_halt")]
    assert [halt["reason"] for halt in build_receipt(session.chain)["halts"]] == ["incident"]


def test_r6_is_named_with_the_skill(session):
    AgentSession.objects.update(current_phase=Phase.DELIVERY)
    with pytest.raises(ToolNotGranted):
        ask(session, "look")
    assert refused(session) == [("look", "R6", None)]


def test_denied_approval_is_named_with_the_skill(session, approver):
    Agent.objects.update(mode="semi")
    ask(session, "act", key="a:1", what="it")
    ticket = Approval.objects.get()
    approval_reject(ticket.pk, by=approver, digest=ticket.digest, note="no", now=NOW)
    ask(session, "act", key="a:1", what="it")
    assert refused(session) == [("act", "approval", "rejected")]


def test_limit_and_arguments_are_named_with_the_skill(session):
    SkillSetting.objects.create(name="act", hourly_limit=0)
    ask(session, "act", what="it")
    assert refused(session) == [("act", "rate_limit", "rate_limited")]


@pytest.mark.parametrize(("seconds", "duration"), [(1.5, 1_500), (0, 0), (-3, 0)])
def test_duration_is_in_milliseconds_and_never_negative(session, seconds, duration):
    call = plan_call(session, ToolIntent.RUN_SKILL, {"skill": "look", "arguments": {"place": "a"}}, key="k", now=NOW)
    audited = skill_audit(call, ToolResult(Decimal(0), "seen", Outcome.SUCCESS), now=NOW + timedelta(seconds=seconds))
    assert audited.duration_ms == duration


def test_every_skill_audit_is_held_by_the_event_of_its_call(session):
    SkillSetting.objects.create(name="act", hourly_limit=1)
    for number in range(3):
        ask(session, "act", key=f"a:{number}", what="it")
        ask(session, "look", key=f"b:{number}", place="here")
    held = AuditEvent.objects.filter(details__has_key="skill_audit")
    assert held.count() == SkillAudit.objects.count() == 6
    assert verify_log().verified
