"""Delegations: who may name whom, for how long, and how they end."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from agents.conf import clock
from agents.exceptions import Invalid, NotAllowed
from agents.models import Delegation, Notification
from agents.people import delegations
from agents.people.delegations import delegation_create, delegation_end, delegations_in_force, holders, is_approver
from tests.agents.admin.rows import make_approval, sign_in
from tests.agents.api.conftest import client_of
from tests.agents.people.rows import allowed, told
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def approver():
    return allowed("resolve_approval")


def name(owner, delegate, *, until=NOW + DAY, by=None, now=NOW):
    return delegation_create(owner=owner, delegate=delegate, until=until, by=by or owner, now=now)


def test_a_delegation_is_recorded_and_told_and_gives_the_right_for_its_time():
    owner, delegate = approver(), make_user()
    row = name(owner, delegate)
    assert [is_approver(delegate, at) for at in (NOW - DAY, NOW, NOW + DAY)] == [False, True, False]
    assert holders(delegate, NOW) == [owner]
    assert told("delegation.") == [
        (
            "delegation.created",
            f"user:{owner.pk}",
            {
                "delegation_id": str(row.public_id),
                "owner_id": owner.pk,
                "delegate_id": delegate.pk,
                "until": (NOW + DAY).isoformat(),
            },
        )
    ]
    notice = Notification.objects.get()
    assert (notice.owner, notice.kind) == (delegate, "delegated")
    assert notice.title == f"You decide on approvals for {owner}"


def test_somebody_else_names_nobody_and_a_command_may():
    owner, delegate = approver(), make_user()
    with pytest.raises(NotAllowed, match="Only the person who is away"):
        name(owner, delegate, by=make_user(is_superuser=True))
    assert delegation_create(owner=owner, delegate=delegate, until=NOW + DAY, by=None, now=NOW)


def test_who_has_no_right_hands_none_over_so_there_are_no_chains():
    owner, between, last = approver(), make_user(), make_user()
    name(owner, between)
    for person in (between, make_user(is_superuser=True, is_active=False)):
        with pytest.raises(NotAllowed, match="nothing to hand over"):
            name(person, last)
    assert not is_approver(last, NOW)


def test_a_delegate_with_a_right_of_their_own_hands_on_that_alone():
    first, second, last = approver(), approver(), make_user()
    name(first, second)
    name(second, last)
    assert holders(last, NOW) == [second]
    assert holders(second, NOW) == [second, first]


def test_nobody_names_who_is_away_so_there_are_no_circles():
    first, second = approver(), approver()
    name(first, second)
    with pytest.raises(Invalid, match="is away too"):
        name(second, first)


@pytest.mark.parametrize("until", [NOW, NOW - DAY, NOW + timedelta(days=91)])
def test_a_delegation_ends_in_the_future_and_within_reach(until):
    with pytest.raises(Invalid, match="at most 90 days"):
        name(approver(), make_user(), until=until)


def test_a_delegate_is_another_person_with_an_active_account():
    owner = approver()
    for delegate in (owner, make_user(is_active=False)):
        with pytest.raises(Invalid, match="another person"):
            name(owner, delegate)
    with pytest.raises(IntegrityError), transaction.atomic():
        Delegation.objects.create(owner=owner, delegate=owner, until=NOW)


def test_a_new_delegation_takes_the_place_of_the_one_before():
    owner, first, second = approver(), make_user(), make_user()
    name(owner, first)
    name(owner, second)
    name(owner, first, now=NOW + 2 * DAY, until=NOW + 3 * DAY)  # the one before was over
    assert [row.delegate for row in delegations_in_force(NOW + 2 * DAY)] == [first]
    assert [kind for kind, _, _ in told("delegation.")] == [
        "delegation.created", "delegation.ended", "delegation.created", "delegation.created",
    ]  # fmt: skip
    assert list(Delegation.objects.order_by("pk").values_list("ended_at", flat=True)) == [NOW, NOW + DAY, None]


def test_who_is_late_is_told_to_look_again(monkeypatch):
    owner = approver()
    name(owner, make_user())
    monkeypatch.setattr(delegations, "_end", lambda rows, **_: None)  # the other was made after this look
    with pytest.raises(Invalid, match="at the same moment"):
        name(owner, make_user())
    assert [kind for kind, _, _ in told("delegation.")] == ["delegation.created"]


@pytest.mark.django_db(transaction=True)
def test_of_two_that_are_made_at_once_one_is_in_force():
    owner, delegates, start = make_user(is_superuser=True), [make_user(), make_user()], Barrier(2)

    def one(delegate):
        try:
            start.wait(timeout=60)
            name(owner, delegate)
        except Invalid:
            pass
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, delegates))
    assert delegations_in_force(NOW).count() == 1


def test_its_two_people_and_those_who_manage_profiles_end_it_once():
    owner, delegate = approver(), make_user()
    for by in (owner, delegate, allowed("change_profile"), None):
        row = name(owner, delegate)
        assert delegation_end(delegation=row, by=by, now=NOW).ended_at == NOW
        assert delegation_end(delegation=row, by=by, now=NOW + DAY).ended_at == NOW
    assert [kind for kind, _, _ in told("delegation.ended")] == ["delegation.ended"] * 4
    row = name(owner, delegate)
    with pytest.raises(NotAllowed, match="its two people"):
        delegation_end(delegation=row, by=approver(), now=NOW)
    assert is_approver(delegate, NOW)


# --- Surfaces ---


def test_the_page_names_a_delegate_for_the_signed_in_person_and_ends_it(client):
    by, delegate = sign_in(client, "approver"), make_user()
    address = reverse("admin:agents_delegation_add")
    until = f"{clock() + DAY:%Y-%m-%dT%H:%M}"
    assert client.post(address, {"delegate": by.pk, "until": until}).status_code == 200
    answer = client.post(address, {"delegate": delegate.pk, "until": until})
    row = Delegation.objects.get()
    assert (answer.status_code, row.owner, row.delegate) == (302, by, delegate)
    assert "in force" in client.get(reverse("admin:agents_delegation_changelist")).content.decode()
    assert delegate.username in client.get(reverse("admin:agents_delegation_change", args=[row.pk])).content.decode()
    client.post(reverse("admin:agents_delegation_act", args=[row.pk, "end"]), {"confirmed": "1"})
    row.refresh_from_db()
    assert row.ended_at
    Delegation.objects.create(owner=by, delegate=delegate, until=NOW, created_at=NOW)
    listed = client.get(reverse("admin:agents_delegation_changelist")).content.decode()
    assert "ended" in listed
    assert "over" in listed


def test_the_page_is_for_those_who_decide(client):
    sign_in(client, "operator")
    assert client.get(reverse("admin:agents_delegation_add")).status_code == 403


def test_the_page_of_a_call_shows_who_decides_for_whom(client):
    sign_in(client, "approver")
    owner, delegate = approver(), make_user()
    row = name(owner, delegate, now=clock(), until=clock() + DAY)
    approval = make_approval()
    assert str(row) in client.get(reverse("admin:agents_approval_change", args=[approval.pk])).content.decode()


def test_the_api_names_lists_and_ends_with_the_scope_to_decide():
    owner, delegate = approver(), make_user()
    body = {"delegate": delegate.username, "until": (clock() + DAY).isoformat()}
    address = "/api/v1/delegations"
    assert client_of(owner, "read", "write").post(address, body, format="json").status_code == 403
    made = client_of(owner, "decide").post(address, body, format="json")
    assert (made.status_code, made.json()["owner"], made.json()["delegate"]) == (
        201,
        owner.username,
        delegate.username,
    )
    assert client_of(delegate).get(address).json()["count"] == 1
    assert client_of(make_user()).get(address).json()["count"] == 0
    assert client_of(delegate).get("/api/v1/me").json()["may_resolve_approvals"] is True
    ended = client_of(delegate, "write").post(f"{address}/{made.json()['id']}/end", format="json")
    assert ended.json()["ended_at"]
    assert client_of(delegate).get("/api/v1/me").json()["may_resolve_approvals"] is False
    wrong = client_of(owner).post(address, {**body, "delegate": "nobody"}, format="json")
    assert wrong.status_code == 422


def output(*arguments):
    out = io.StringIO()
    call_command("away", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_names_lists_and_ends():
    owner, delegate = approver(), make_user()
    assert output() == "Nobody decides for anybody else.\n"
    assert output(owner.username, "--delegate", delegate.username, "--days", "2").startswith(
        f"{delegate} decides for {owner} until "
    )
    [row] = json.loads(output("--json"))["delegations"]
    assert (row["owner"], row["delegate"]) == (owner.username, delegate.username)
    assert output(delegate.username) == "Nobody decides for anybody else.\n"
    output(owner.username, "--end", "--user", owner.username)
    assert json.loads(output("--json")) == {"delegations": []}
    assert [actor for _, actor, _ in told("delegation.")] == ["system", f"user:{owner.pk}"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--end"], "Say who is away"),
        (["{owner}", "--end", "--delegate", "{owner}"], "Say who is away"),
        (["{owner}", "--delegate", "{owner}", "--days", "91"], "not between 1 and 90"),
        (["{owner}", "--delegate", "nobody"], "no active user 'nobody'"),
        (["{owner}", "--delegate", "{owner}"], "another person"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, words):
    owner = approver()
    with pytest.raises(CommandError, match=words):
        output(*(argument.format(owner=owner.username) for argument in arguments))


def test_a_delegate_without_pages_gets_no_page():
    owner, delegate = approver(), make_user()
    name(owner, delegate, now=clock(), until=clock() + DAY)
    client = Client()
    client.force_login(delegate)
    assert client.get(reverse("admin:agents_approval_changelist")).status_code == 302  # to the sign-in of staff
