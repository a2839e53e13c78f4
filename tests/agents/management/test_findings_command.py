"""`findings`: list what runs found, and settle it."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from agents.models import Finding, Precedent
from audit.models import AuditEvent
from tests.factories import make_session, make_user

pytestmark = pytest.mark.django_db


def printed(*given):
    out = StringIO()
    call_command("findings", *given, stdout=out)
    return out.getvalue().strip()


def make_finding(**fields):
    return Finding.objects.create(**{"session": make_session(), "title": "Term: too long", **fields})


def test_open_findings_are_listed_unless_others_are_asked_for():
    assert printed() == "0 listed."
    row, done = make_finding(severity="warn"), make_finding(state="resolved", title="Done")
    make_finding(about_run=True)
    assert printed() == f"{row.public_id}  open  warn: Term: too long\n1 listed."
    assert [one["title"] for one in json.loads(printed("--state", "resolved", "--json"))] == ["Done"]
    assert len(json.loads(printed("--state", "all", "--json"))) == 2
    assert printed("--severity", "critical") == "0 listed."
    assert str(done.public_id) in printed("--state", "all", "--run", done.session.chain[:8])


def test_one_finding_is_settled_by_the_beginning_of_its_id():
    row, by = make_finding(), make_user(is_superuser=True)
    named = str(row.public_id)[:8]
    for act, given, state in (
        ("--acknowledge", (), "acknowledged"),
        ("--resolve", (), "resolved"),
        ("--reopen", (), "open"),
        ("--dismiss", ("--reason", "Usual here", "--no-teach"), "dismissed"),
    ):
        assert f"  {state}  " in printed(act, named, *given, "--user", by.username), act
        assert AuditEvent.objects.order_by("-pk").first().actor == f"user:{by.pk}"
    assert not Precedent.objects.exists()


def test_finding_is_assigned_and_commented_on():
    row = make_finding()
    owner = row.session.owner.username
    assert f"assigned to {owner}" in printed("--assign", str(row.public_id), "--to", owner)
    assert "assigned" not in printed("--assign", str(row.public_id))
    printed("--comment", str(row.public_id), "--text", "Looks right", "--user", owner)
    assert row.comments.get().text == "Looks right"


def test_refusals_are_errors_of_the_command():
    row = make_finding()
    for given, error in (
        (("--dismiss", str(row.public_id)), "reason"),
        (("--resolve", "0000000000"), "There is no finding"),
        (("--assign", str(row.public_id), "--to", "nobody"), "no active user"),
        (("--resolve", str(row.public_id), "--user", make_user().username), "nothing of that kind"),
    ):
        with pytest.raises(CommandError, match=error):
            printed(*given)
