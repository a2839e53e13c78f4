"""Concurrent edits of one playbook: every edit is a version, and a run never mixes two."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from agents.definitions.playbooks import Position
from agents.exceptions import Invalid
from agents.knowledge.playbooks import playbook_create, playbook_edit, playbook_rendered, playbook_runnable
from agents.models import Playbook
from audit.models import AuditEvent
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db(transaction=True)
WRITERS = 4
EACH = 5


def at_once(act):
    """Runs `act(number)` in several threads that start together, each with a connection of its own."""
    start = Barrier(WRITERS)

    def one(number):
        try:
            start.wait(timeout=60)
            return act(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(one, range(WRITERS)))


def positions(mark):
    return [Position(f"{mark} {number}") for number in range(5)]


def test_concurrent_edits_get_versions_and_readers_see_whole_ones():
    owner = make_user()
    playbook = playbook_create(owner=owner, name="n", positions=positions("first"), by=None, now=NOW)

    def act(number):
        seen = []
        for turn in range(EACH):
            playbook_edit(playbook, positions=positions(f"{number}-{turn}"), by=None, now=NOW)
            runnable = playbook_runnable(owner.pk, playbook.public_id)
            marks = {row.issue.split()[0] for row in runnable.positions.all()}
            seen.append((len(marks), len(runnable.positions.all()), runnable.digest, playbook_rendered(runnable)))
        return seen

    seen = [one for many in at_once(act) for one in many]

    assert {(marks, rows) for marks, rows, _, _ in seen} == {(1, 5)}
    assert Playbook.objects.get().version == 1 + WRITERS * EACH
    versions = AuditEvent.objects.filter(kind="playbook.edited").order_by("seq").values_list("details", flat=True)
    assert [one["version"] for one in versions] == list(range(2, 2 + WRITERS * EACH))
    digests = {one["digest"] for one in versions}
    assert {digest for _, _, digest, _ in seen} <= digests


def test_concurrent_creation_with_one_name_succeeds_once():
    owner = make_user()

    def act(number):
        try:
            return playbook_create(owner=owner, name="n", positions=positions("p"), by=None, now=NOW).version
        except Invalid:
            return None

    assert sorted(at_once(act), key=str) == [1, None, None, None]
    assert Playbook.objects.count() == 1
    assert AuditEvent.objects.filter(kind="playbook.created").count() == 1
