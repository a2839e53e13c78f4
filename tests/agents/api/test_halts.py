"""Halt of an agent's sessions and of all work through the API, and the release."""

import pytest
from django.contrib.auth.models import Permission

from agents.enums import Status
from agents.models import AgentSession, Halt, Installation, Profile
from agents.sessions.halts import halt_all_work
from tests.factories import NOW, make_agent, make_session, make_starter, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db
HALT, RELEASE = "/api/v1/halt", "/api/v1/release"
WHY = {"reason": "An incident."}


@pytest.fixture
def operator():
    user = make_starter()
    user.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    return user


def post(user, address, body=None, *scopes):
    return client_of(user, *scopes).post(address, body or {}, format="json")


def halt_of(agent):
    return f"/api/v1/agents/{agent.public_id}/halt"


def states():
    return dict(AgentSession.objects.values_list("pk", "halt_state"))


# --- an agent ---


def test_halting_an_agent_halts_its_sessions_and_no_others(person):
    agent, other = make_agent(owner=person), make_agent(owner=person)
    its, theirs, over = (
        make_session(owner=person, agent=agent),
        make_session(owner=person, agent=other),
        make_session("completed", owner=person, agent=agent, terminal_reason="completed", completed_at=NOW),
    )
    answer = post(person, halt_of(agent), WHY)
    assert answer.json() == {"requested": 1, "already_halted": 0, "terminal": 0, "failed": 0}
    assert states() == {its.pk: "halt_requested", theirs.pk: "running", over.pk: "running"}
    assert Halt.objects.get().reason == "An incident."
    assert post(person, halt_of(agent), WHY).json()["already_halted"] == 1


def test_halted_agent_stays_enabled(person):
    agent = make_agent(owner=person)
    assert post(person, halt_of(agent), WHY).status_code == 200
    agent.refresh_from_db()
    assert agent.enabled is True


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}])
def test_halt_needs_no_reason(operator, body):
    session = make_session(owner=operator, agent=make_agent(owner=operator))
    assert post(operator, halt_of(session.agent), body).json()["requested"] == 1
    assert post(operator, HALT, body).status_code == 200
    assert Installation.objects.get().halt.reason == ""


def test_halt_of_all_work_spares_what_waits_for_a_person(operator):
    asks = make_session(Status.WAITING, owner=operator, waiting_on="approval")
    make_session(owner=operator)
    found = post(operator, HALT, WHY).json()
    assert (found["sessions"], found["spared"]) == (1, 1)
    assert post(operator, RELEASE, {"keep_paused": True}).status_code == 200
    asks.refresh_from_db()
    assert asks.paused_at is not None


def test_halt_of_all_work_ends_what_waits_for_a_person_if_told_to(operator):
    make_session(Status.WAITING, owner=operator, waiting_on="approval")
    found = post(operator, HALT, {"end_waiting": True}).json()
    assert (found["sessions"], found["spared"]) == (1, 0)


def test_user_without_opt_in_may_halt_and_release(operator):
    session = make_session(owner=operator, agent=make_agent(owner=operator))
    Profile.objects.filter(user=operator).update(opted_in=False)
    assert post(operator, halt_of(session.agent), WHY).json()["requested"] == 1
    assert post(operator, HALT, WHY).status_code == 200
    assert post(operator, RELEASE).status_code == 200
    assert Installation.objects.get().halt is None


# --- all work ---


def test_halt_of_all_work_reaches_all_users_until_release(operator, person):
    session = make_session(owner=person)
    halted = post(operator, HALT, WHY).json()
    assert (halted["halted"], halted["requested_by"], halted["sessions"]) == (True, operator.username, 1)
    assert states() == {session.pk: "running"}  # the ticker halts it, and none of its calls starts
    assert client_of(person).get("/api/v1/health").json()["halted"] is True
    assert post(person, "/api/v1/run-now", {"goal": "Read on"}).json()["code"] == "session_halted"
    released = post(operator, RELEASE).json()
    assert (released["halted"], released["reason"], released["released_at"] is None) == (False, "An incident.", False)
    assert states() == {session.pk: "halt_requested"}
    assert post(person, "/api/v1/run-now", {"goal": "Read on"}).status_code == 201


def test_repeated_halt_of_all_work_keeps_the_first_reason(operator):
    halt_all_work(by=None, reason="Maintenance.", now=NOW)
    again = post(operator, HALT, WHY).json()
    assert (again["reason"], again["requested_by"]) == ("Maintenance.", None)
    assert Halt.objects.count() == 1


def test_release_without_a_halt_is_a_conflict(operator):
    answer = post(operator, RELEASE)
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_transition")


def test_halt_and_release_of_all_work_need_the_permission():
    session = make_session()
    for user in (make_user(), make_starter(), session.owner):
        for address in (HALT, RELEASE):
            answer = post(user, address, WHY if address == HALT else None)
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), address
    assert states() == {session.pk: "running"}


def test_write_key_may_halt_all_work_but_not_release(operator):
    assert post(operator, HALT, WHY, "write").status_code == 200
    answer = post(operator, RELEASE, None, "read", "write")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert post(operator, RELEASE, None, "decide").status_code == 200
