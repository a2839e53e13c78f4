"""Playbooks: versions, digests, ownership, deletion, and the one text that a run reads."""

import hashlib
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission

from agents.definitions.playbooks import MAX_LISTED, MAX_POSITIONS, TEXT_CHARS, Position, parse_playbook
from agents.exceptions import Invalid, NotFound
from agents.knowledge.playbooks import (
    playbook_create,
    playbook_delete,
    playbook_edit,
    playbook_export,
    playbook_import,
    playbook_rendered,
    playbook_runnable,
    positions_of,
)
from agents.models import Playbook, PlaybookPosition
from audit.models import AuditEvent
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=1)

DEPOSIT = Position(
    "Deposit",
    "critical",
    "The deposit is at most\n  three months' rent.  ",
    ("Four months' rent.", "  ", "Five months' rent."),
    "Ask   the landlord.",
    ("deposit", ""),
    ('the "usual" fee',),
)
PETS = Position("Pets   and\nother animals", standard="The tenant may keep a cat.")
GOLDEN = """# Playbook: Leases (version 1)

## 1. Deposit

Severity: critical

Standard:

> The deposit is at most
>   three months' rent.

Fallback 1:

> Four months' rent.

Fallback 2:

> Five months' rent.

Guidance:

> Ask   the landlord.

Must contain:

- "deposit"

Must not contain:

- "the "usual" fee"

## 2. Pets and other animals

Severity: warn

Standard:

> The tenant may keep a cat.
"""


def leases(owner=None, positions=(DEPOSIT, PETS), name="Leases"):
    owner = owner or make_user()
    return playbook_create(owner=owner, name=name, positions=positions, by=owner, now=NOW)


def events():
    rows = AuditEvent.objects.filter(chain="system").order_by("seq")
    return [(row.kind, row.actor, row.details) for row in rows]


def test_rendered_text_is_fixed():
    playbook = leases()

    assert playbook_rendered(playbook) == GOLDEN
    assert playbook.digest == hashlib.sha256(GOLDEN.encode()).hexdigest()
    assert parse_playbook(GOLDEN).positions == positions_of(playbook)


def test_creation_is_recorded():
    playbook = leases()

    details = {"playbook_id": str(playbook.public_id), "version": 1, "digest": playbook.digest, "positions": 2}
    assert events() == [("playbook.created", f"user:{playbook.owner_id}", details)]
    assert (playbook.version, playbook.created_at, playbook.updated_at) == (1, NOW, NOW)


def test_edit_makes_a_new_version():
    playbook = leases()

    edited = playbook_edit(playbook, positions=[PETS, DEPOSIT], by=playbook.owner, now=LATER)

    assert (edited.version, edited.updated_at) == (2, LATER)
    assert edited.digest == hashlib.sha256(playbook_rendered(edited).encode()).hexdigest() != playbook.digest
    assert [row.issue for row in edited.positions.all()] == ["Pets and other animals", "Deposit"]
    assert PlaybookPosition.objects.count() == 2
    details = {"playbook_id": str(playbook.public_id), "version": 2, "digest": edited.digest, "positions": 2}
    assert events()[1:] == [("playbook.edited", f"user:{playbook.owner_id}", details)]


def test_new_name_is_a_new_version():
    edited = playbook_edit(leases(), name=" Tenancies ", by=None, now=LATER)

    assert (edited.name, edited.version, len(positions_of(edited))) == ("Tenancies", 2, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"name": "Leases"},
        {"name": "  Leases "},
        {"positions": [DEPOSIT, PETS]},
        {"positions": [DEPOSIT, Position("Pets and other animals", "", "The tenant may keep a cat.\r\n")]},
    ],
)
def test_edit_without_a_change_is_not_recorded(changes):
    playbook = leases()
    rows = list(PlaybookPosition.objects.values_list("pk", flat=True))

    edited = playbook_edit(playbook, by=playbook.owner, now=LATER, **changes)

    assert (edited.version, edited.digest, edited.updated_at) == (1, playbook.digest, NOW)
    assert list(PlaybookPosition.objects.values_list("pk", flat=True)) == rows
    assert len(events()) == 1


def test_edit_uses_the_row_and_not_a_stale_copy():
    playbook = leases()
    playbook_edit(playbook, name="Second", by=None, now=LATER)

    third = playbook_edit(playbook, positions=[PETS], by=None, now=LATER)

    assert (third.name, third.version) == ("Second", 3)


def test_deleted_playbook_cannot_run_or_be_edited_or_deleted():
    playbook = leases()

    deleted = playbook_delete(playbook, by=playbook.owner, now=LATER)

    assert deleted.deleted_at == LATER
    assert events()[-1][0] == "playbook.deleted"
    for act in (
        lambda: playbook_runnable(playbook.owner_id, playbook.public_id),
        lambda: playbook_edit(playbook, name="x", by=playbook.owner, now=LATER),
        lambda: playbook_delete(playbook, by=playbook.owner, now=LATER),
    ):
        with pytest.raises(NotFound):
            act()
    assert leases(playbook.owner).version == 1  # its name is free again


def test_run_gets_the_playbook_of_its_owner_with_its_positions(django_assert_num_queries):
    playbook = leases()

    runnable = playbook_runnable(owner_id=playbook.owner_id, public_id=str(playbook.public_id))

    assert runnable == playbook
    playbook_edit(playbook, positions=[PETS], by=None, now=LATER)
    with django_assert_num_queries(0):
        assert playbook_rendered(runnable) == GOLDEN  # version and positions stay those of one moment


def test_playbook_of_another_owner_cannot_run():
    playbook = leases()

    for owner_id, public_id in (
        (make_user().pk, playbook.public_id),
        (playbook.owner_id, uuid4()),
        (playbook.owner_id, "nonsense"),
        (playbook.owner_id, ""),
    ):
        with pytest.raises(NotFound):
            playbook_runnable(owner_id, public_id)


def test_strangers_find_nothing():
    playbook, stranger = leases(), make_user()

    for act in (
        lambda: playbook_create(owner=playbook.owner, name="x", positions=[PETS], by=stranger, now=NOW),
        lambda: playbook_edit(playbook, name="x", by=stranger, now=NOW),
        lambda: playbook_delete(playbook, by=stranger, now=NOW),
        lambda: playbook_import(owner=playbook.owner, text=playbook_export(playbook), by=stranger, now=NOW),
        lambda: playbook_import(owner=playbook.owner, text="{name: x, positions: [{issue: i}]}", by=stranger, now=NOW),
    ):
        with pytest.raises(NotFound):
            act()
    assert Playbook.objects.get().version == 1
    assert len(events()) == 1


def test_permission_holder_may_act_for_the_owner():
    playbook, staff = leases(), make_user()
    staff.user_permissions.add(Permission.objects.get(codename="change_playbook"))

    assert playbook_edit(playbook, name="x", by=staff, now=NOW).version == 2
    assert events()[-1][1] == f"user:{staff.pk}"
    with pytest.raises(NotFound):
        playbook_delete(playbook, by=staff, now=NOW)


def test_name_is_unique_per_owner():
    first = leases()
    leases()  # another owner's
    other = leases(first.owner, name="Other")

    with pytest.raises(Invalid, match="A playbook named 'Leases' exists already"):
        leases(first.owner)
    with pytest.raises(Invalid, match="A playbook named 'Leases' exists already"):
        playbook_edit(other, name="Leases", by=None, now=LATER)
    assert Playbook.objects.get(pk=other.pk).version == 1


def test_import_creates_or_edits_and_export_is_stable():
    owner = make_user()
    text = "name: Leases\npositions:\n- issue: Deposit\n  standard: Two months.\n"

    first = playbook_import(owner=owner, text=text, by=None, now=NOW)
    again = playbook_import(owner=owner, text=playbook_export(first), by=None, now=LATER)
    second = playbook_import(owner=owner, text=text.replace("Two", "Three"), by=None, now=LATER)

    assert (first.version, again.version, second.version) == (1, 1, 2)
    assert first.pk == again.pk == second.pk
    assert playbook_export(second) == text.replace("Two", "Three").replace("  standard", "  severity: warn\n  standard")
    assert [kind for kind, _, _ in events()] == ["playbook.created", "playbook.edited"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": ""}, "name: expected text that is not empty"),
        ({"name": 5}, "name: expected text, in quotes; got 5"),
        ({"name": "x" * 121}, "name: expected text of at most 120 characters, not 121"),
        ({"positions": []}, "positions: expected a list of at least 1 positions"),
        ({"positions": [PETS] * (MAX_POSITIONS + 1)}, f"not {MAX_POSITIONS + 1}"),
        ({"positions": [PETS, Position(" ")]}, r"positions\[1\].issue: expected text that is not empty"),
        ({"positions": [Position("x" * 201)]}, r"positions\[0\].issue: expected text of at most 200 characters"),
        ({"positions": [Position("i", "x" * 33)]}, r"positions\[0\].severity: expected text of at most 32 char"),
        ({"positions": [Position("i", fallbacks=("a", None))]}, r"fallbacks\[1\]: expected text; got nothing"),
        ({"positions": [Position("i", standard="x" * (TEXT_CHARS + 1))]}, f"text of at most {TEXT_CHARS} char"),
        (
            {"positions": [Position("i", must_contain=("x",) * 51)]},
            f"must_contain: expected a list of at most {MAX_LISTED}",
        ),
        (
            {"positions": [Position("i", must_contain=("ok", "ghp_" + "a1B2c3D4e5F6" * 3))]},
            r"positions\[0\].must_contain\[1\]: expected text without secrets",
        ),
        ({"positions": [Position("i", standard="x" * TEXT_CHARS)] * 14}, "bytes of text"),
    ],
)
def test_error_names_the_place(changes, says):
    playbook = leases()

    with pytest.raises(Invalid, match=says):
        playbook_edit(playbook, by=playbook.owner, now=LATER, **changes)
    with pytest.raises(Invalid, match=says):
        playbook_create(owner=playbook.owner, by=None, now=LATER, **{"name": "Other", "positions": [PETS], **changes})

    assert Playbook.objects.get().version == 1
    assert len(events()) == 1
