"""The approval queue: what approvers see, and that only the call that was shown is decided."""

import json
from datetime import timedelta

import pytest
from django.urls import reverse

from agents.conf import clock
from agents.enums import ApprovalStatus, Level, Outcome, Risk, Status, ToolIntent, WaitingOn
from agents.models import AgentSession, Approval, StandingApproval, ToolCall
from audit.models import AuditEvent
from tests.agents.admin.rows import act_page, kinds_since, last_event, make_approval, make_call, page, sign_in, text_of
from tests.factories import make_agent, make_session

pytestmark = pytest.mark.django_db

LIST = "admin:agents_approval_changelist"


def waiting(**fields):
    return make_session(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL, **fields)


def decide(client, approval, decision, digest=None, **more):
    given = {"decision": decision, "digest": approval.digest if digest is None else digest, "note": "", **more}
    return client.post(reverse("admin:agents_approval_decide", args=[approval.pk]), given)


def choose(client, act, *rows, **more):
    chosen = {"action": act, "_selected_action": [row.pk for row in rows], **more}
    return client.post(reverse(LIST), chosen, follow=True)


def digests(*rows):
    return {f"digest_{row.pk}": row.digest for row in rows}


@pytest.fixture
def approver(client):
    return sign_in(client, "approver")


# --- Content ---


def test_queue_shows_pending_calls_oldest_first(client, approver):
    now = clock()
    new = make_approval(action="new_one", created_at=now)
    old = make_approval(action="old_one", created_at=now - timedelta(hours=2))
    make_approval(action="decided_one", status=ApprovalStatus.REJECTED)

    found = text_of(client.get(reverse(LIST)))
    every = client.get(reverse(LIST), {"queue": "all"})

    assert found.index("old_one") < found.index("new_one")
    assert "decided_one" not in found
    assert [row.action for row in every.context["cl"].result_list] == ["old_one", "new_one", "decided_one"]
    assert old.pk > new.pk


def test_calls_of_the_same_moment_are_in_order(client, approver):
    now = clock()
    rows = [make_approval(created_at=now) for _ in range(3)]

    assert list(client.get(reverse(LIST)).context["cl"].result_list) == rows


def test_call_is_shown_in_full_with_invisible_characters(client, approver):
    arguments = {"body": "pay\u202eevil\u200b\u00a0<script>alert(1)</script>", "n": list(range(200))}
    approval = make_approval(
        waiting(agent=make_agent(name="Clerk"), max_cost_usd="2", cost_total_usd="0.5", cost_reserved_usd="0.25"),
        arguments=arguments,
        level=Level.PRIVILEGED,
        risk_level="high",
        simulation="Would delete 3 rows.",
    )

    found = text_of(client.get(page(Approval, "change", approval.pk)))

    assert "pay⟨U+202E⟩evil⟨U+200B⟩⟨U+00A0⟩&lt;script&gt;" in found
    assert "<script>alert" not in found
    assert "199" in found
    for words in ("PRIVILEGED", "high risk", "Would delete 3 rows.", "delivery", "$1.25", "Clerk", "then it expires"):
        assert words in found, words
    assert found.index("199") < found.index("Would delete 3 rows.")
    assert f'name="digest" value="{approval.digest}"' in found


def test_session_without_a_cap_is_shown(client, approver):
    make_approval(waiting(max_cost_usd=None))

    assert "no cap" in text_of(client.get(reverse(LIST)))


def test_rest_of_the_cap_is_that_of_the_larger_cost(client, approver):
    make_approval(waiting(max_cost_usd="2", cost_total_usd="0.25", cost_actual_usd="0.5", cost_held_usd="0.4"))

    assert "$1.10" in text_of(client.get(reverse(LIST)))


def test_list_shows_arguments_and_says_when_they_are_cut(client, approver):
    make_approval(arguments={"body": "x" * 5_000})

    found = text_of(client.get(reverse(LIST)))

    assert "<dt>body</dt>" in found
    assert "4700 more characters. Open the call to see all." in found


def test_list_shows_each_argument_by_its_name(client, approver):
    make_approval(arguments={"to": "a\u202eb@example.org", "copies": 2, "tags": ["x", "y"], "empty": ""})
    make_approval(arguments={f"n{number:02}": number for number in range(20)}, key="many")

    found = text_of(client.get(reverse(LIST)))

    for name, value in {"to": "a⟨U+202E⟩b@example.org", "copies": "2", "tags": "1: x\n2: y", "empty": ""}.items():
        assert f"<dt>{name}</dt> <dd>{value}</dd>" in found, name
    assert "8 more arguments. Open the call to see all." in found


@pytest.mark.parametrize("kind", [{"level": Level.PRIVILEGED}, {"risk_level": Risk.HIGH}])
def test_privileged_call_offers_no_standing_approval(client, approver, kind):
    assert "Approve for this run" in text_of(client.get(page(Approval, "change", make_approval().pk)))
    single = make_approval(**kind)
    assert "Approve for this run" not in text_of(client.get(page(Approval, "change", single.pk)))


def test_readers_see_no_decision_form(client):
    sign_in(client, "operator")
    approval = make_approval()

    found = text_of(client.get(page(Approval, "change", approval.pk)))

    assert "Approve once" not in found
    assert decide(client, approval, "approve").status_code == 403
    choose(client, "approve", approval, confirmed="1", note="", **digests(approval))
    assert Approval.objects.get().status == ApprovalStatus.PENDING


def test_view_of_another_users_call_is_recorded(client, approver):
    client.get(page(Approval, "change", make_approval().pk))

    assert AuditEvent.objects.filter(kind="session.viewed", actor=f"user:{approver.pk}").count() == 1


# --- Deciding on one ---


def test_approval_resolves_the_ticket_and_wakes_the_session(client, approver):
    approval, before = make_approval(waiting()), last_event()

    answer = decide(client, approval, "approve", note="fine")

    approval.refresh_from_db()
    assert answer.url == page(Approval, "change", approval.pk)
    assert (approval.status, approval.resolved_by, approval.note) == (ApprovalStatus.APPROVED, approver, "fine")
    assert AgentSession.objects.get(pk=approval.session_id).status == Status.QUEUED
    assert "approval.approved" in kinds_since(before)
    assert "Decided" in text_of(client.get(answer.url))


def test_denial_keeps_the_note_for_the_agent(client, approver):
    approval, before = make_approval(waiting()), last_event()

    decide(client, approval, "deny", note="Not this customer.")

    approval.refresh_from_db()
    assert (approval.status, approval.note) == (ApprovalStatus.REJECTED, "Not this customer.")
    assert "approval.rejected" in kinds_since(before)


@pytest.mark.parametrize("decision", ["approve", "deny", "edit", "standing"])
def test_wrong_digest_decides_nothing(client, approver, decision):
    approval = make_approval(intent=ToolIntent.NOTIFY)
    more = {"arguments": '{"to": "y"}', "seen": "1", "uses": "3"}

    answer = decide(client, approval, decision, digest="f" * 64, **more)

    assert answer.status_code == 409
    assert "The call has changed since it was shown" in text_of(answer)
    assert Approval.objects.get().status == ApprovalStatus.PENDING


def test_missing_digest_decides_nothing(client, approver):
    approval = make_approval()

    answer = client.post(reverse("admin:agents_approval_decide", args=[approval.pk]), {"decision": "approve"})

    assert answer.status_code == 422
    assert Approval.objects.get().status == ApprovalStatus.PENDING


def test_second_decision_is_refused(client, approver):
    approval = make_approval()
    decide(client, approval, "approve")

    answer = decide(client, approval, "approve")

    assert answer.status_code == 409
    assert "cannot be decided any more" in text_of(answer)


def test_an_unknown_decision_is_refused(client, approver):
    answer = decide(client, make_approval(), "launch")

    assert answer.status_code == 422
    assert "Choose a decision." in text_of(answer)


def test_deciding_needs_a_post(client, approver):
    approval = make_approval()

    assert client.get(reverse("admin:agents_approval_decide", args=[approval.pk])).status_code == 405
    assert client.post(page(Approval, "change", approval.pk)).status_code == 403


def test_four_eyes_keep_the_owner_from_a_privileged_call(client, settings):
    settings.LQOPS_FOUR_EYES = True
    owner = sign_in(client)
    approval = make_approval(waiting(owner=owner), level=Level.PRIVILEGED)

    answer = decide(client, approval, "approve")

    assert answer.status_code == 403
    assert "needs a second pair of eyes, and you own the run" in text_of(answer)
    assert Approval.objects.get().status == ApprovalStatus.PENDING


# --- Changed arguments, and approving for the session ---


def test_changed_arguments_are_shown_as_a_diff_first(client, approver):
    approval = make_approval(intent=ToolIntent.NOTIFY, arguments={"to": "x@example.org", "body": "hello"})
    changed = '{"to": "y@example.org", "body": "hello"}'

    shown = decide(client, approval, "edit", arguments=changed)
    assert Approval.objects.get().status == ApprovalStatus.PENDING
    assert '<div class="old">  &quot;to&quot;: &quot;x@example.org&quot;' in text_of(shown)
    assert '<div class="new">  &quot;to&quot;: &quot;y@example.org&quot;' in text_of(shown)

    before = last_event()
    decide(client, approval, "edit", arguments=changed, seen="1")

    approval.refresh_from_db()
    assert approval.status == ApprovalStatus.APPROVED
    assert approval.arguments["to"] == "y@example.org"
    assert approval.original_arguments["to"] == "x@example.org"
    assert "approval.edited" in kinds_since(before)
    assert "Changed by" in text_of(client.get(page(Approval, "change", approval.pk)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "This field is required"),
        ("{", "This is not valid JSON"),
        ("[1]", "one JSON object"),
        ('{"a": 1, "a": 2}', "a name occurs twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ("[" * 100_000, "This is not valid JSON"),
        ("x" * 100_001, "the maximum is 100000"),
        ('{"to": "x@example.org"}', "Nothing changed"),
        ('{"to": "y@example.org"}', "cannot be made with these arguments: &#x27;model&#x27; is missing"),
    ],
)
def test_invalid_arguments_are_explained(client, approver, arguments, complaint):
    approval = make_approval()

    answer = decide(client, approval, "edit", arguments=arguments, seen="1")

    assert answer.status_code == 422
    assert complaint in text_of(answer)
    assert Approval.objects.get().status == ApprovalStatus.PENDING


FLAT = {"to": "x@example.org", "body": "hello\nthere", "copies": 2, "rate": 0.5, "urgent": True}


def by_field(approval, **changed):
    """Return the fields that the page sends for a call with these arguments, in the order of their names."""
    values = {**approval.arguments, **changed}
    given = {f"argument_{number}": values[name] for number, name in enumerate(sorted(values))}
    return {"by_field": "1", **{name: value for name, value in given.items() if value is not False}}


def test_flat_arguments_are_changed_by_field_and_shown_as_a_diff(client, approver):
    approval = make_approval(intent=ToolIntent.NOTIFY, arguments=FLAT)
    opened = client.get(page(Approval, "change", approval.pk)).context["forms"]["fields"]
    assert [(field.label, field.widget_type) for field in opened if field.name.startswith("argument")] == [
        ("body", "textarea"),
        ("copies", "number"),
        ("rate", "number"),
        ("to", "text"),
        ("urgent", "checkbox"),
    ]

    shown = decide(
        client, approval, "edit", **by_field(approval, to="y@example.org", body="hello\r\nthere", urgent=False)
    )

    assert Approval.objects.get().status == ApprovalStatus.PENDING
    changed = json.loads(shown.context["arguments"])
    assert changed == {**FLAT, "to": "y@example.org", "urgent": False}
    decide(client, approval, "edit", arguments=shown.context["arguments"], seen="1")
    approval.refresh_from_db()
    assert (approval.status, approval.arguments) == (ApprovalStatus.APPROVED, changed)


def test_arguments_of_a_skill_are_changed_by_field(client, approver, monkeypatch):
    monkeypatch.setattr("agents.admin.approvals.fitting", lambda intent, arguments: dict(arguments))
    approval = make_approval(arguments={"skill": "send_letter", "arguments": {"to": "x@example.org", "copies": 2}})

    shown = decide(client, approval, "edit", by_field="1", argument_0="3", argument_1="x@example.org")

    changed = {"skill": "send_letter", "arguments": {"to": "x@example.org", "copies": 3}}
    assert json.loads(shown.context["arguments"]) == changed


def test_arguments_that_are_too_long_together_are_refused_at_once(client, approver):
    approval = make_approval(intent=ToolIntent.NOTIFY, arguments={"a": "x", "b": "y"})

    answer = decide(client, approval, "edit", by_field="1", argument_0="ä" * 60_000, argument_1="ö" * 60_000)

    assert answer.status_code == 422
    assert "the maximum is 100000" in text_of(answer)


def test_character_that_cannot_be_sent_is_escaped_on_the_second_page(client, approver, monkeypatch):
    monkeypatch.setattr("agents.admin.approvals.fitting", lambda intent, arguments: dict(arguments))
    approval = make_approval(intent=ToolIntent.NOTIFY, arguments={"a": "x"})

    shown = decide(client, approval, "edit", arguments='{"a": "\\ud800 \u00e4"}')

    assert shown.context["arguments"] == '{"a": "\\ud800 \\u00e4"}'


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [({}, "Nothing changed"), ({"copies": "two"}, "Enter a whole number"), ({"rate": ""}, "This field is required")],
)
def test_fields_of_arguments_are_checked(client, approver, changed, complaint):
    approval = make_approval(intent=ToolIntent.NOTIFY, arguments=FLAT)

    answer = decide(client, approval, "edit", **by_field(approval, **changed))

    assert answer.status_code == 422
    assert complaint in text_of(answer)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "arguments",
    [
        *({}, {"a": {"b": 1}}, {"a": [1]}, {"a": None}, {"a": "K\u202ethe"}, {"\u202ea": 1}, {"a": "b\rc"}),
        {f"a{number}": 1 for number in range(31)},
    ],
)
def test_other_arguments_are_changed_as_json(client, approver, arguments):
    approval = make_approval(arguments=arguments)

    assert "fields" not in client.get(page(Approval, "change", approval.pk)).context["forms"]
    answer = decide(client, approval, "edit", by_field="1")
    assert answer.status_code == 422
    assert "These arguments are changed as JSON." in text_of(answer)


def test_editable_arguments_hide_nothing(client, approver):
    plain = make_approval(arguments={"name": "Käthe"})
    hidden = make_approval(arguments={"name": "K\u202ethe"})

    assert "Käthe" in text_of(client.get(page(Approval, "change", plain.pk)))
    assert "K\\u202ethe" in text_of(client.get(page(Approval, "change", hidden.pk)))


def test_standing_approval_frees_the_chosen_arguments(client, approver):
    approval, before = make_approval(arguments={"title": "a", "count": 1}), last_event()

    decide(client, approval, "standing", free_arguments=["title"], uses="3")

    standing = StandingApproval.objects.get()
    assert (standing.fixed_arguments, standing.free_arguments, standing.uses_left) == ({"count": 1}, ["title"], 3)
    assert "approval.standing_created" in kinds_since(before)


@pytest.mark.parametrize(("free", "uses"), [(["to"], "3"), ([], "21"), ([], "0"), (["no_such"], "3")])
def test_a_standing_approval_has_limits(client, approver, free, uses):
    approval = make_approval(arguments={"to": "x@example.org"})

    answer = decide(client, approval, "standing", free_arguments=free, uses=uses)

    assert answer.status_code in {403, 422}
    assert not StandingApproval.objects.exists()


# --- Several at once ---


def test_calls_of_one_session_are_approved_together(client, approver):
    session = waiting()
    rows = [make_approval(session, key=f"k{number}", arguments={"n": number}) for number in range(5)]

    asked = choose(client, "approve", *rows)
    for row in rows:
        assert f'name="digest_{row.pk}" value="{row.digest}"' in text_of(asked)
    before = last_event()
    done = choose(client, "approve", *rows, confirmed="1", note="all fine", **digests(*rows))

    assert "5 approvals approved." in text_of(done)
    assert set(Approval.objects.values_list("status", "note")) == {(ApprovalStatus.APPROVED, "all fine")}
    assert kinds_since(before).count("approval.approved") == 5


def test_calls_are_denied_together_with_one_note(client, approver):
    session = waiting()
    rows = [make_approval(session, key=f"k{number}") for number in range(2)]

    done = choose(client, "deny", *rows, confirmed="1", note="no", **digests(*rows))

    assert "2 approvals denied." in text_of(done)
    assert set(Approval.objects.values_list("status", "note")) == {(ApprovalStatus.REJECTED, "no")}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"arguments": {"n": 1}}, {"arguments": {"n": 2}}, "only if they are the same call"),
        ({"arguments": {"n": 1}}, {"arguments": {"n": True}}, "only if they are the same call"),
        ({"action": "a"}, {"action": "b"}, "only if they are the same call"),
        ({"version": "1"}, {"version": "2"}, "only if they are the same call"),
        ({"level": Level.CONTROLLED}, {"level": Level.RESTRICTED}, "only if they are the same call"),
        ({"level": Level.PRIVILEGED}, {"level": Level.PRIVILEGED}, "is not decided on across runs"),
        ({"risk_level": Risk.HIGH}, {"risk_level": Risk.HIGH}, "is not decided on across runs"),
    ],
)
def test_other_calls_of_several_runs_are_not_decided_together(client, approver, first, second, words):
    rows = [make_approval(**first), make_approval(**second)]

    for more in ({}, {"confirmed": "1", "note": "", **digests(*rows)}):
        answer = choose(client, "approve", *rows, **more)
        assert words in text_of(answer)

    assert set(Approval.objects.values_list("status", flat=True)) == {ApprovalStatus.PENDING}


def test_identical_calls_of_several_runs_are_approved_each_with_its_digest(client, approver):
    rows = [make_approval(arguments={"text": "pay\u202eeve", "n": [1]}) for _ in range(3)]
    assert len({row.digest for row in rows}) == 3

    asked = text_of(choose(client, "approve", *rows))
    assert "The same call, 3 times." in asked
    assert asked.count("pay⟨U+202E⟩eve") == 2  # by field and as JSON
    for row in rows:
        assert f'name="digest_{row.pk}" value="{row.digest}"' in asked
        assert f'<td class="lq-code">{row.digest}</td>' in asked
        assert page(AgentSession, "change", row.session_id) in asked
    before = last_event()
    given = {**digests(*rows), f"digest_{rows[2].pk}": rows[0].digest}
    done = text_of(choose(client, "approve", *rows, confirmed="1", note="", **given))

    assert "2 approvals approved." in done
    assert "The call has changed since it was shown" in done
    assert kinds_since(before).count("approval.approved") == 2
    assert [Approval.objects.get(pk=row.pk).status for row in rows] == ["approved", "approved", "pending"]


def test_changed_call_is_left_out_and_named(client, approver):
    session = waiting()
    good, changed = make_approval(session, key="a"), make_approval(session, key="b", action="other_call")
    given = {**digests(good), f"digest_{changed.pk}": "f" * 64}

    answer = choose(client, "approve", good, changed, confirmed="1", note="", **given)

    assert "1 approval approved." in text_of(answer)
    assert "other_call (pending): The call has changed since it was shown" in text_of(answer)
    assert Approval.objects.get(pk=changed.pk).status == ApprovalStatus.PENDING


def test_one_missing_digest_approves_none(client, approver):
    rows = [make_approval(waiting())]

    choose(client, "approve", *rows, confirmed="1", note="")

    assert Approval.objects.get().status == ApprovalStatus.PENDING


# --- Outcome unknown ---


def lost():
    session = make_session(status=Status.WAITING, waiting_on=WaitingOn.OPERATOR)
    return make_call(session, outcome=Outcome.UNKNOWN, name="wire_money")


def test_call_with_unknown_outcome_asks_what_happened(client, approver):
    found = text_of(client.get(page(ToolCall, "change", lost().pk)))

    assert "the call may have taken effect" in found
    assert "It happened" in found
    assert "It did not happen" in found


def test_happened_with_a_result(client, approver):
    call, before = lost(), last_event()

    client.post(act_page(call, "happened"), {"confirmed": "1", "result": '{"id": 7}'})

    call.refresh_from_db()
    assert (call.outcome, call.result) == (Outcome.SUCCESS, {"id": 7})
    assert "tool_call.resolved" in kinds_since(before)
    assert AgentSession.objects.get(pk=call.session_id).status == Status.QUEUED


def test_happened_without_a_result(client, approver):
    call = lost()

    client.post(act_page(call, "happened"), {"confirmed": "1", "result": ""})

    call.refresh_from_db()
    assert (call.outcome, call.result) == (Outcome.SUCCESS, None)


def test_did_not_happen(client, approver):
    call = lost()

    client.post(act_page(call, "did_not_happen"), {"confirmed": "1"})

    call.refresh_from_db()
    assert call.outcome == Outcome.WORKER_LOST


def test_resolved_call_is_not_resolved_again(client, approver):
    call = make_call()

    answer = client.post(act_page(call, "did_not_happen"), {"confirmed": "1"})

    assert "has no unknown outcome to decide on" in text_of(answer)


def test_only_approvers_resolve_calls(client):
    sign_in(client, "operator")
    call = lost()

    assert client.post(act_page(call, "happened"), {"confirmed": "1"}).status_code == 403
    call.refresh_from_db()
    assert call.outcome == Outcome.UNKNOWN


@pytest.mark.parametrize(("role", "offered"), [("approver", 1), ("viewer", 0)])
def test_approvers_see_a_button_in_each_pending_row(client, role, offered):
    sign_in(client, role)
    make_approval(action="waits")
    make_approval(action="decided", status=ApprovalStatus.REJECTED)
    assert text_of(client.get(page(Approval, "changelist"), {"queue": "all"})).count(">Decide</span>") == offered
