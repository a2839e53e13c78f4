"""Sessions, their calls and approvals through the API."""

from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.enums import HaltState, Outcome, Status, WaitingOn
from agents.models import AgentSession, Approval, Finding, Halt, Playbook, StandingApproval, Trigger
from audit import recorder
from tests.factories import NOW, make_session, make_trigger, make_user

from .conftest import client_of
from .world import as_made, make_approval, make_call, make_document, make_skill, make_world

pytestmark = pytest.mark.usefixtures("rolled_back")  # in place of django_db, which every test would begin anew
SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(scope="module")
def made(module_database):
    return make_world(make_user(is_superuser=True))


@pytest.fixture
def world(made, rolled_back):
    return as_made(made)


@pytest.fixture
def api(world):
    return client_of(world.owner)


def at(row, verb=""):
    kinds = {"AgentSession": "sessions", "Approval": "approvals", "ToolCall": "tool-calls"}
    return f"/api/v1/{kinds[type(row).__name__]}/{row.public_id}{f'/{verb}' if verb else ''}"


def post(api, row, verb, body=None):
    return api.post(at(row, verb), body or {}, format="json")


# --- what is shown ---


def test_running_session_has_an_open_receipt(api, world):
    shown = api.get(at(world.rows["session"])).json()
    assert shown["receipt"]["session_id"] == shown["id"]
    assert shown["receipt"]["terminal_reason"] is None
    assert shown["receipt"]["events"][0]["at"]
    recorder.append(shown["id"], "session.paused", now=NOW, details={"idle_seconds": 300})
    assert api.get(at(world.rows["session"])).json()["receipt"]["rows"] == 2


def test_result_and_its_reason_are_shown_and_filtered_by(api, world):
    over = {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW, "owner": world.owner}
    partial = make_session(**over, run_result="partial", result_reason="Not checked: lease.txt")
    make_session(**over, run_result="ok")
    shown = api.get(at(partial)).json()
    assert (shown["result"], shown["result_reason"], shown["progress"]) == ("partial", "Not checked: lease.txt", None)
    assert api.get(at(world.rows["session"])).json()["result"] == ""
    [listed] = api.get("/api/v1/sessions?result=partial").json()["results"]
    assert listed["id"] == shown["id"]
    assert api.get("/api/v1/sessions?result=partial&result=ok").json()["count"] == 2
    assert api.get("/api/v1/sessions?result=great").status_code == 422


def test_progress_is_shown_while_a_run_reads_in_sections(api, world):
    reading = {"room": 60_000, "sections": 23, "read": 6, "estimate_usd": "0.120000"}
    session = make_session(owner=world.owner, current_phase="analysis", metadata={"reading": reading})
    progress = {"section": 7, "sections": 23, "estimate_usd": "0.120000"}
    assert api.get(at(session)).json()["progress"] == progress
    AgentSession.objects.filter(pk=session.pk).update(current_phase="drafting")
    assert api.get(at(session)).json()["progress"] is None


def test_queued_session_has_no_receipt(api, world):
    assert api.get(at(make_session(owner=world.owner, status=Status.QUEUED))).json()["receipt"] is None


def test_unreadable_receipt_does_not_hide_the_session(api, world, monkeypatch):
    from agents.api import sessions
    from audit.rows import UnreadableRow

    def unreadable(chain):
        raise UnreadableRow(chain)

    monkeypatch.setattr(sessions, "build_receipt", unreadable)
    answer = api.get(at(world.rows["session"]))
    assert (answer.status_code, answer.json()["receipt"]) == (200, None)


def test_state_shows_a_call_in_flight(api, world):
    session = world.rows["session"]
    assert api.get(at(session)).json()["state"] == "waiting_for_tool"
    session.tool_calls.update(name="run_skill", intent="run_skill", model="offline")
    assert api.get(at(session)).json()["state"] == "running"
    session.tool_calls.update(name="extract")
    assert api.get(at(session)).json()["state"] == "waiting_for_tool", "a skill that asks a model is a tool"
    session.tool_calls.update(outcome=Outcome.SUCCESS, settled_at=NOW)
    assert api.get(at(session)).json()["state"] == "running"
    assert api.get(at(world.waiting)).json()["state"] == "waiting_for_approval"


def test_money_is_exact_text(api, world):
    session = make_session(owner=world.owner, cost_total_usd=Decimal("0.000001"), max_cost_usd=None)
    shown = api.get(at(session)).json()
    assert (shown["cost_total_usd"], shown["max_cost_usd"]) == ("0.000001", None)


def test_session_has_no_internal_columns(api, world):
    shown = api.get(at(world.rows["session"])).json()
    assert not {"fencing", "lease_owner", "lease_until", "metadata", "owner", "owner_id", "public_id"} & set(shown)


def test_statement_count_does_not_grow_with_sessions(api, world):
    def query():
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert api.get("/api/v1/sessions").status_code == 200
            return len(queries)

    query()  # the first use of a key is written down
    few = query()
    for _ in range(10):
        make_session(owner=world.owner, trigger=make_trigger(owner=world.owner))
    assert query() == few


def test_findings_and_artifacts_of_a_session(api, world):
    session = world.rows["session"]
    written = make_document(world.owner, data=b"A draft.", origin="artifact", session=session, name="draft.md")
    make_document(world.owner, data=b"Gone.", origin="artifact", session=session, deleted_at=NOW)
    Finding.objects.update(location="page 7")
    [finding] = api.get(at(session, "findings")).json()["results"]
    assert finding["location"] == "page 7"
    assert finding["document"] == str(Finding.objects.get().document.public_id)
    [artifact] = api.get(at(session, "artifacts")).json()["results"]
    assert (artifact["id"], artifact["session"]) == (str(written.public_id), str(session.public_id))


def test_findings_are_listed_in_order(api, world):
    session = make_session(owner=world.owner)
    for title, minutes in (("third", 2), ("first", 0), ("second", 0)):
        Finding.objects.create(session=session, title=title, created_at=NOW + timedelta(minutes=minutes))
    pages = [api.get(f"{at(session, 'findings')}?page_size=2&page={page}").json()["results"] for page in (1, 2)]
    assert [row["title"] for page in pages for row in page] == ["first", "second", "third"]


def test_calls_have_no_secrets_and_no_results(api, world):
    session = world.rows["session"]
    make_call(
        session, key="k2", arguments={"header": f"Bearer {SECRET}"}, result={"text": "the whole lease"},
        error=f"refused {SECRET}", outcome=Outcome.ERROR, settled_at=NOW,
    )  # fmt: skip
    answer = api.get(at(session, "calls"))
    assert [call["key"] for call in answer.json()["results"]] == ["k2", "k"]
    assert "abcdefghijkl" not in answer.content.decode()
    assert "the whole lease" not in answer.content.decode()


# --- levers ---


def test_halt_reason_is_redacted(api, world):
    session = world.rows["session"]
    answer = post(api, session, "halt", {"reason": f"It sends {SECRET} around."})
    assert answer.json()["session"]["halt_state"] == HaltState.HALT_REQUESTED
    halt = Halt.objects.get()
    assert halt.requested_by == world.owner
    assert SECRET not in halt.reason
    assert "It sends" in halt.reason


def test_halt_all_halts_own_unfinished_sessions(api, world):
    other = make_session()
    assert api.post("/api/v1/sessions/halt-all").json() == {
        "requested": 2, "already_halted": 0, "terminal": 0, "failed": 0
    }  # fmt: skip
    other.refresh_from_db()
    assert other.halt_state == HaltState.RUNNING


def test_restart_repeats_the_run_and_links_it(api, world):
    answer = post(api, world.over, "restart")
    assert answer.status_code == 201
    again = AgentSession.objects.get(public_id=answer.json()["id"])
    assert answer.json()["restarted_from"] == str(world.over.public_id)
    assert again.params["playbook"] == world.over.params["playbook"]
    assert again.params["collection"] == world.over.params["collection"]
    assert again.max_cost_usd == world.over.max_cost_usd


def test_restart_of_a_trigger_run_obeys_the_trigger(api, world):
    trigger = world.rows["trigger"]
    AgentSession.objects.filter(pk=world.over.pk).update(trigger=trigger)
    Trigger.objects.filter(pk=trigger.pk).update(max_cost_usd=Decimal("0.25"))
    answer = post(api, world.over, "restart").json()
    assert (answer["trigger"], answer["max_cost_usd"]) == (str(trigger.public_id), "0.250000")


def test_restart_without_its_trigger_uses_session_params(api, world):
    trigger = world.rows["trigger"]
    AgentSession.objects.filter(pk=world.over.pk).update(trigger=trigger)
    Trigger.objects.filter(pk=trigger.pk).update(deleted_at=NOW)
    answer = post(api, world.over, "restart")
    assert (answer.status_code, answer.json()["trigger"]) == (201, None)


def test_a_restart_by_a_skill(api, world):
    AgentSession.objects.filter(pk=world.over.pk).update(params={"skill": "nda-review", "query": "term"})
    answer = post(api, world.over, "restart").json()
    assert (answer["params"]["skill"], answer["params"]["query"]) == ("nda-review", "term")
    make_skill("other")
    AgentSession.objects.filter(pk=world.over.pk).update(params={"skill": "unloaded"})
    assert post(api, world.over, "restart").status_code == 404


def test_a_restarted_run_reads_its_event_again(api, world):
    event = {"id": str(world.rows["event"].public_id)}
    AgentSession.objects.filter(pk=world.over.pk).update(params={**world.over.params, "event": event})
    assert post(api, world.over, "restart").json()["params"]["event"] == event


def test_restart_of_running_or_incomplete_run_is_refused(api, world):
    under_way = post(api, world.rows["session"], "restart")
    assert (under_way.status_code, under_way.json()["code"]) == (409, "invalid_transition")
    Playbook.objects.update(deleted_at=NOW)
    assert post(api, world.over, "restart").status_code == 404
    assert post(api, world.over, "restart", {"max_cost": "1"}).status_code == 422


def test_restart_keeps_the_cap_by_default(api, world):
    AgentSession.objects.filter(pk=world.over.pk).update(max_cost_usd=Decimal("0.01"))
    assert post(api, world.over, "restart").json()["max_cost_usd"] == "0.010000"
    assert post(api, world.over, "restart", {"max_cost_usd": None}).json()["max_cost_usd"] == "0.010000"
    assert post(api, world.over, "restart", {"max_cost_usd": "0.5"}).json()["max_cost_usd"] == "0.500000"
    assert post(api, world.over, "restart", {"max_cost_usd": "-1"}).status_code == 422


def test_restart_cap_overrides_the_trigger_cap(api, world):
    trigger = world.rows["trigger"]
    Trigger.objects.filter(pk=trigger.pk).update(max_cost_usd=Decimal("0.01"))
    AgentSession.objects.filter(pk=world.over.pk).update(trigger=trigger)
    answer = post(api, world.over, "restart", {"max_cost_usd": "0.5"}).json()
    assert (answer["trigger"], answer["max_cost_usd"]) == (str(trigger.public_id), "0.500000")


def test_restart_needs_the_owner_or_the_permission(world):
    from agents.exceptions import NotFound
    from agents.triggers.firing import session_restart

    with pytest.raises(NotFound):
        session_restart(session=world.over, by=make_user(), now=NOW)


# --- approvals ---


def test_approval_shows_the_call_and_resumes_the_run(api, world):
    approval = world.rows["approval"]
    shown = api.get(at(approval)).json()
    assert shown["arguments"] == {"to": "Jane", "text": "Hello"}
    assert (shown["owner"], shown["left_usd"]) == (world.owner.username, "5.000000")
    answer = post(api, approval, "approve", {"digest": shown["digest"], "note": f"ok {SECRET}"}).json()
    assert (answer["status"], answer["resolved_by"]) == ("approved", world.owner.username)
    assert SECRET not in answer["note"]
    world.waiting.refresh_from_db()
    assert world.waiting.status == Status.QUEUED


def test_approval_list_has_no_arguments(api):
    [shown] = api.get("/api/v1/approvals").json()["results"]
    assert "arguments" not in shown


def test_approval_without_a_cap_has_no_remaining_amount(api, world):
    AgentSession.objects.filter(pk=world.waiting.pk).update(max_cost_usd=None)
    assert api.get(at(world.rows["approval"])).json()["left_usd"] is None


@pytest.mark.parametrize("verb", ["approve", "deny", "approve-edited", "approve-for-session"])
def test_decision_needs_the_digest(api, world, verb):
    approval = world.rows["approval"]
    more = {"arguments": {}} if verb == "approve-edited" else {}
    assert post(api, approval, verb, more).json()["detail"].keys() == {"digest"}
    wrong = post(api, approval, verb, {"digest": "0" * 64, **more})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "ticket_refused")
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_decision_is_final(api, world):
    approval = world.rows["approval"]
    assert post(api, approval, "deny", {"digest": approval.digest}).json()["status"] == "rejected"
    again = post(api, approval, "approve", {"digest": approval.digest})
    assert (again.status_code, again.json()["code"]) == (409, "invalid_transition")


def test_edited_approval_keeps_original_arguments(api, world):
    approval = world.rows["approval"]
    body = {"digest": approval.digest, "arguments": {"to": "Jo", "text": "Hello"}}
    refused = post(api, approval, "approve-edited", body)  # a question to a model that names none
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert api.get(at(approval)).json()["status"] == "pending"
    Approval.objects.filter(pk=approval.pk).update(intent="notify")
    answer = post(api, approval, "approve-edited", body).json()
    assert answer["arguments"]["to"] == "Jo"
    assert answer["original_arguments"]["to"] == "Jane"
    assert answer["digest"] != approval.digest


def test_an_approval_for_the_session_is_bounded(api, world):
    approval = world.rows["approval"]
    for uses in (0, 21, -1, True, "x"):
        body = {"digest": approval.digest, "uses": uses}
        assert post(api, approval, "approve-for-session", body).json()["detail"].keys() == {"uses"}
    body = {"digest": approval.digest, "uses": 2, "free_arguments": ["text"]}
    assert post(api, approval, "approve-for-session", body).json()["status"] == "approved"
    standing = StandingApproval.objects.get()
    assert (standing.uses_left, standing.free_arguments) == (2, ["text"])


def test_a_privileged_call_is_not_approved_for_a_session(api, world):
    Approval.objects.update(level="PRIVILEGED")
    approval = world.rows["approval"]
    answer = post(api, approval, "approve-for-session", {"digest": approval.digest})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


def test_expired_approval_cannot_be_approved(api, world):
    late = make_approval(world.waiting, call_key="late", expires_at=NOW)
    assert post(api, late, "approve", {"digest": late.digest}).status_code == 409


def test_a_call_of_unknown_outcome_is_resolved_once(api, world):
    call = world.rows["tool-call"]
    known = post(api, call, "resolve", {"decision": "happened"})
    assert (known.status_code, known.json()["code"]) == (409, "invalid_transition")
    type(call).objects.filter(pk=call.pk).update(outcome=Outcome.UNKNOWN, settled_at=NOW, unknown_since=NOW)
    AgentSession.objects.filter(pk=call.session_id).update(status=Status.WAITING, waiting_on=WaitingOn.OPERATOR)
    assert post(api, call, "resolve", {"decision": "perhaps"}).status_code == 422
    body = {"decision": "happened", "result": {"sent": True, "key": SECRET}}
    assert post(api, call, "resolve", body).json()["outcome"] == "success"
    call.refresh_from_db()
    assert call.result["sent"] is True
    assert SECRET not in str(call.result)
    assert AgentSession.objects.get(pk=call.session_id).status == Status.QUEUED


def test_ids_are_public_ids(api, world):
    for name in ("sessions", "approvals", "tool-calls", "triggers", "documents"):
        for row in api.get(f"/api/v1/{name}").json()["results"]:
            assert UUID(row["id"])


# --- Why it exists ---


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("fields", "purpose"),
    [
        ({"trigger_kind": "watch", "params": {"query": "leases"}}, ("trigger", "“leases”")),
        ({"trigger_kind": "manual", "params": {"skill": "summarise"}}, ("run_now", "summarise")),
        ({"params": {"goal": "Find every lease"}}, ("goal", "“Find every lease”")),
        ({"mode": "chat", "params": {"message": "Hello?", "way": "answer"}}, ("chat", "“Hello?”")),
        ({"mode": "chat", "params": {"message": "Do it", "way": "goal"}}, ("goal", "“Do it”")),
        ({"mode": "heartbeat", "params": {}}, ("heartbeat", "heartbeat run")),
        ({"mode": "loop", "params": {}}, ("loop", "loop run")),
    ],
)
def test_session_has_a_purpose(api, world, fields, purpose):
    session = make_session(owner=world.owner, **fields)

    for detail in (api.get(at(session)).json(), api.get("/api/v1/sessions").json()["results"][0]):
        assert (detail["purpose"]["kind"], detail["purpose"]["title"]) == purpose


def test_statement_count_of_purposes_does_not_grow(api, world, django_assert_max_num_queries):
    make_session(owner=world.owner, params={"document": str(make_document(world.owner, data=b"first").public_id)})
    with django_assert_max_num_queries(20) as few:
        api.get("/api/v1/sessions")
    for number in range(5):
        document = make_document(world.owner, data=str(number).encode())
        make_session(owner=world.owner, params={"document": str(document.public_id)})
    with django_assert_max_num_queries(len(few)):
        api.get("/api/v1/sessions")
