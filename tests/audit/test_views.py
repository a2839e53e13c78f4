import re

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.contrib.staticfiles import finders
from django.db import connection

from audit.keys import public_key
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append, chain_head
from audit.views import may_read_receipt
from tests.audit.samples import NOW, RUN, call, edit, later, record_session, start

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("own_urls")]
PAGE = f"/receipts/{RUN}/"
JSON = f"/receipts/{RUN}.json"


@pytest.fixture
def owner():
    return User.objects.create_user("olga", password="x")


@pytest.fixture
def auditor():
    user = User.objects.create_user("anna", password="x")
    user.user_permissions.add(Permission.objects.get(codename="view_auditevent"))
    return user


@pytest.fixture
def stranger():
    return User.objects.create_user("sam", password="x")


def page(client, user, address=PAGE):
    client.force_login(user)
    response = client.get(address)
    return response, response.content.decode()


@pytest.mark.parametrize("address", [PAGE, JSON])
def test_asks_for_a_sign_in(client, address):
    record_session()
    response = client.get(address)
    assert response.status_code == 302
    assert response["Location"].startswith("/login/")


@pytest.mark.parametrize("address", [PAGE, JSON])
def test_owner_auditor_and_superuser_may_read(client, owner, auditor, admin_user, address):
    start(RUN, owner_id=owner.pk)
    for user in (owner, auditor, admin_user):
        assert page(client, user, address)[0].status_code == 200


@pytest.mark.parametrize("address", [PAGE, JSON])
def test_a_look_by_somebody_else_is_on_record_and_the_owner_s_is_not(client, owner, auditor, address):
    start(RUN, owner_id=owner.pk)
    page(client, owner, address)
    assert not AuditEvent.objects.filter(kind="session.viewed").exists()
    page(client, auditor, address)
    look = AuditEvent.objects.get(kind="session.viewed")
    assert (look.chain, look.actor, look.details) == (SYSTEM_CHAIN, f"user:{auditor.pk}", {"session_id": RUN})


@pytest.mark.parametrize("address", [PAGE, JSON])
def test_a_stranger_learns_nothing(client, owner, stranger, address):
    start(RUN, owner_id=owner.pk)
    assert page(client, stranger, address)[0].status_code == 404
    assert page(client, stranger, address.replace(RUN, "nobody"))[0].status_code == 404


@pytest.mark.parametrize("chain", ["nobody", SYSTEM_CHAIN])
def test_no_receipt_for_what_is_no_session(client, admin_user, chain):
    start(RUN)
    assert page(client, admin_user, f"/receipts/{chain}/")[0].status_code == 404


def test_nobody_owns_a_session_without_an_owner(client, stranger):
    append(RUN, "autonomous_session.halt_requested", now=later(0))
    assert page(client, stranger)[0].status_code == 404
    assert not may_read_receipt(AnonymousUser(), {"owner_id": None})


def test_only_reading_is_offered(admin_client):
    start(RUN)
    assert admin_client.post(PAGE).status_code == 405
    assert admin_client.delete(JSON).status_code == 405


def test_json_is_the_receipt(admin_client):
    record_session()
    receipt = admin_client.get(JSON).json()
    assert (receipt["session_id"], receipt["status"], receipt["rows"]) == (RUN, "completed", 7)


def test_page_tells_the_story(client, owner, auditor):
    asked = {"trigger_kind": "manual", "trigger_ref": "nightly", "asked_by": f"user:{auditor.pk}"}
    start(RUN, owner_id=owner.pk, agent_id=3, restarted_from="old-run", **asked)
    call(RUN, "denied", call_id="c0", name="wire", detail="budget_busy")
    append(RUN, "approval.requested", now=later(1), details={"approval_id": 5, "action": "send"})
    append(RUN, "approval.approved", now=later(2), actor=f"user:{auditor.pk}", details={"approval_id": 5})
    call(RUN, "started", second=3, call_id="c1", name="send", phase="delivery")
    call(RUN, "started", second=4, call_id="c2")
    append(RUN, "autonomous_session.halt_requested", now=later(5), actor="user:999999")
    call(RUN, "unknown", second=6, call_id="c1", cost_usd="0.25", actual_usd="0.20", model="m1")
    append(
        RUN,
        "tool_call.resolved",
        now=later(7),
        actor=f"user:{auditor.pk}",
        details={"call_id": "c1", "decision": "happened"},
    )
    append(RUN, "autonomous_session.halted", now=later(8), details={"reason": "external_halt"})
    response, text = page(client, auditor)
    assert response.status_code == 200
    for words in (
        "Halted by a person.",
        "Five-phase run, agent no. 3",
        f"Manual run, by anna (user {auditor.pk}); <code>nightly</code>",
        "old-run",
        f"olga (user {owner.pk})",
        "4 May 2026, 09:00:00 UTC",
        "4 May 2026, 09:00:08 UTC",
        "$0.25 of $5.00 (the larger of $0.25 approved and $0.20 reported by providers)",
        "Skill wire: refused, budget reserved by other calls",
        f"Approval of send was granted. By anna (user {auditor.pk}).",
        "Approval of send was requested.</li>",
        "A halt was requested. By user:999999.",
        "outcome unknown, in flight at the halt; anna",
        f"(user {auditor.pk}) decided: happened",
        "still running, in flight at the halt",
        "Verified: 10 of 10 events intact",
        chain_head(RUN).hash,
    ):
        assert words in text, words


def test_page_tells_of_a_notice_that_was_denied_and_of_whom_it_waited_for(client, owner, auditor):
    start(RUN, owner_id=owner.pk, trigger_kind="manual", asked_by="command")
    append(RUN, "approval.requested", now=later(1), details={"approval_id": 5, "action": "notify"})
    call(RUN, "approval_pending", second=1, call_id="c1", tool="notify")
    text = page(client, owner)[1]
    assert "Refused calls" not in text
    assert "Manual run, by the command line" in text
    append(RUN, "approval.rejected", now=later(2), actor=f"user:{auditor.pk}", details={"approval_id": 5})
    append(RUN, "autonomous_session.completed", now=later(3), details={"reason": "completed"})
    told = f"Completed, without: notification (denied by anna (user {auditor.pk}))."
    assert told in page(client, owner)[1]


def test_page_names_the_result(client, owner):
    start(RUN, owner_id=owner.pk)
    append(RUN, "autonomous_session.completed", now=later(3), details={"reason": "completed", "result": "partial"})
    text = page(client, owner)[1]
    assert "Partly done: not everything was checked." in text
    assert '<dt>Result</dt><dd class="bad">Partial</dd>' in text


def test_page_of_a_running_session(client, owner):
    start(RUN, owner_id=owner.pk)
    text = page(client, owner)[1]
    assert "Still running." in text
    assert "<dd>not yet</dd>" in text


def test_page_says_when_the_record_was_changed(admin_client, unguarded):
    record_session()
    edit(RUN, 2, actor="user:666")
    text = admin_client.get(PAGE).content.decode()
    assert "The audit log was changed after it was written." in text
    assert "row 2" in text
    assert "Verified" not in text


def test_page_says_which_amounts_cannot_be_read(admin_client):
    start(RUN)
    call(RUN, "success", cost_usd="x")
    assert "Row 2 has an unreadable amount. The totals leave it out." in admin_client.get(PAGE).content.decode()


def test_an_unreadable_record_is_said_to_auditors_alone(client, owner, admin_user, unguarded):
    start(RUN, owner_id=owner.pk)
    edit(RUN, 1, details=[])
    response, text = page(client, admin_user)
    assert (response.status_code, "The audit log of this run cannot be read" in text) == (500, True)
    response, _ = page(client, admin_user, JSON)
    assert (response.status_code, response.json()["code"]) == (500, "unreadable")
    assert page(client, owner)[0].status_code == 404


def test_everything_is_escaped(admin_client, unguarded):
    evil = "<script>alert(1)</script>"
    start(RUN)
    call(RUN, "denied", call_id="c1")
    edit(RUN, 1, details={"mode": evil, "owner_id": evil, "max_cost_usd": evil, "agent_id": evil, "trigger_kind": evil})
    edit(RUN, 2, actor=evil, details={"tool": evil, "outcome": evil, "call_id": evil, "name": evil, "model": evil})
    text = admin_client.get(PAGE).content.decode()
    assert evil not in text
    assert "&lt;script&gt;" in text


def test_page_runs_nothing_and_loads_only_its_font(admin_client):
    record_session()
    response = admin_client.get(PAGE)
    text = response.content.decode()
    assert response["Content-Security-Policy"].startswith("default-src 'none'")
    assert "no-store" in response["Cache-Control"]
    for word in ("<script", "<link", "<img", "src=", "http", "onclick", "javascript:"):
        assert word not in text.replace("src: url", ""), word
    assert "font-src 'self'" in response["Content-Security-Policy"]
    assert all(finders.find(one.removeprefix("/static/")) for one in re.findall(r"url\(([^)]+)\)", text))
    assert text.count("url(") == 2
    assert f"Run <code>{RUN}</code>" in text
    assert "@media print" in text


def test_page_takes_a_fixed_number_of_queries(client, auditor, django_assert_num_queries):
    record_session(calls=50)
    client.force_login(auditor)
    with django_assert_num_queries(12 if connection.vendor == "postgresql" else 13):
        # sign-in 2, permissions 2, receipt, names, the runs it started, the session's own names, chain, birth and end;
        # the event that it was read, which on SQLite looks at its chain first
        client.get(PAGE)


def test_an_owner_who_is_no_staff_signs_in_and_reads_the_receipt(client, owner):
    start(RUN, owner_id=owner.pk)
    assert "Sign in" in client.get(PAGE, follow=True).content.decode()
    wrong = client.post("/login/", {"login": "olga", "password": "wrong", "next": PAGE})
    assert "do not match" in wrong.content.decode()
    right = client.post("/login/", {"login": "olga", "password": "x", "next": PAGE}, follow=True)
    assert "Receipt" in right.content.decode()


# --- The public key ---


def test_public_key_is_for_everybody(client):
    append(SYSTEM_CHAIN, "audit.key_replaced", now=NOW, details={"old_key": "ab", "new_key": "cd"})
    found = client.get("/.well-known/lqops-audit-key").json()
    former = [{"replaced_at": NOW.isoformat(), "old_key": "ab", "new_key": "cd"}]
    assert found == {"algorithm": "Ed25519", "key": public_key(), "former": former}
    assert client.post("/.well-known/lqops-audit-key").status_code == 405


def test_receipts_of_runs_that_started_each_other_are_linked(client, owner):
    other = RUN[:-4] + "abcd"
    start(RUN, owner_id=owner.pk)
    append(RUN, "run.handed_on", now=later(1), details={"child_id": other, "cap_usd": "0.40"})
    start(other, owner_id=owner.pk, asked_by=f"session:{RUN}")
    assert f'<a href="/receipts/{other}/">' in page(client, owner)[1]
    assert f'<a href="/receipts/{RUN}/">' in page(client, owner, f"/receipts/{other}/")[1]


def test_receipt_of_a_run_that_a_person_started_links_no_run(client, owner):
    start(RUN, owner_id=owner.pk)
    assert "Started by run" not in page(client, owner)[1]
