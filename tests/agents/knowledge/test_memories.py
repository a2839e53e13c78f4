"""Memories that agents propose: kept, dismissed and deleted by people."""

from datetime import timedelta

import pytest

from agents.exceptions import Invalid, NotFound
from agents.knowledge.projects import CONTENT_CHARS, memory_delete, memory_dismiss, memory_keep, memory_propose
from agents.models import Memory
from tests.agents.people.rows import allowed, make_memory, told
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def test_only_kept_memories_enter_prompts_newest_first():
    owner = make_user()
    make_memory(owner)
    first, second = make_memory(owner), make_memory(owner)
    memory_keep(memory=second, by=owner, now=NOW)
    memory_keep(memory=first, by=owner, now=LATER)
    assert list(Memory.objects.filter(owner=owner).kept()) == [first, second]


def test_memory_is_kept_once_and_can_be_edited():
    memory = make_memory()
    memory_keep(memory=memory, by=memory.owner, now=NOW)
    memory_keep(memory=memory, by=memory.owner, now=LATER)
    row = memory_keep(memory=memory, by=memory.owner, now=LATER, content=" Acme pays late. ")
    assert (row.state, row.content, row.kept_at) == ("kept", "Acme pays late.", NOW)
    who, memory_id = f"user:{memory.owner_id}", str(memory.public_id)
    assert told("autonomous_memory") == [
        ("autonomous_memory.keep", who, {"memory_id": memory_id, "edited": False}),
        ("autonomous_memory.keep", who, {"memory_id": memory_id, "edited": True}),
    ]


def test_dismissed_memory_leaves_prompts_and_can_be_kept_again():
    memory = make_memory()
    memory_keep(memory=memory, by=memory.owner, now=NOW)
    for _ in range(2):
        memory_dismiss(memory=memory, by=memory.owner, now=LATER)
    assert not Memory.objects.kept().exists()
    row = memory_keep(memory=memory, by=memory.owner, now=LATER)
    assert (row.state, row.kept_at) == ("kept", NOW)
    assert [kind.partition(".")[2] for kind, _, _ in told("autonomous_memory")] == ["keep", "dismiss", "keep"]


def test_deleted_memory_is_not_found():
    memory = make_memory()
    memory_keep(memory=memory, by=memory.owner, now=NOW)
    assert memory_delete(memory=memory, by=memory.owner, now=LATER).deleted_at == LATER
    assert not Memory.objects.kept().exists()
    for verb in (memory_keep, memory_dismiss, memory_delete):
        with pytest.raises(NotFound):
            verb(memory=memory, by=memory.owner, now=LATER)
    assert told("autonomous_memory.delete")[0][2] == {"memory_id": str(memory.public_id)}


@pytest.mark.parametrize("verb", [memory_keep, memory_dismiss, memory_delete])
def test_stranger_finds_no_memory(verb):
    memory = make_memory()
    for stranger in (make_user(), allowed("view_memory")):
        with pytest.raises(NotFound):
            verb(memory=memory, by=stranger, now=NOW)
    memory.refresh_from_db()
    assert (memory.state, memory.deleted_at, told("autonomous_memory")) == ("proposed", None, [])


def test_permission_holder_may_dismiss_for_others():
    memory, staff = make_memory(), allowed("change_memory")
    assert memory_dismiss(memory=memory, by=staff, now=NOW).state == "dismissed"
    assert told("autonomous_memory")[0][1] == f"user:{staff.pk}"


@pytest.mark.parametrize(
    ("content", "says"), [(" \x00 ", "needs text"), ("x" * (CONTENT_CHARS + 1), f"at most {CONTENT_CHARS}")]
)
def test_empty_or_long_content_is_refused(content, says):
    memory = make_memory()
    with pytest.raises(Invalid, match=says):
        memory_keep(memory=memory, by=memory.owner, now=NOW, content=content)


def test_secret_in_an_edited_memory_is_masked():
    memory, secret = make_memory(), "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 5
    assert secret not in memory_keep(memory=memory, by=memory.owner, now=NOW, content=f"key {secret}").content


# --- Proposing ---


def propose(owner, content, session=None):
    session = session or make_session(owner=owner)
    return memory_propose(owner_id=owner.pk, session_pk=session.pk, content=content, now=NOW)


def test_memory_is_proposed_once_in_the_same_words():
    owner = make_user()
    first, is_new = propose(owner, "Acme pays late.")
    again, is_new_again = propose(owner, "  acme pays   late")
    assert (first, is_new, is_new_again, again.state) == (again, True, False, "proposed")
    memory_keep(memory=first, by=owner, now=NOW)
    assert propose(owner, "ACME PAYS LATE!")[1] is False
    memory_dismiss(memory=first, by=owner, now=NOW)
    assert propose(owner, "Acme pays late")[1] is False
    assert propose(make_user(), "Acme pays late")[1] is True


def test_edited_memory_is_known_by_its_new_words_and_a_deleted_one_by_none():
    owner = make_user()
    memory, _ = propose(owner, "Acme pays late.")
    memory_keep(memory=memory, by=owner, now=NOW, content="Acme pays in May.")
    assert propose(owner, "Acme pays in May")[1] is False
    assert propose(owner, "Acme pays late.")[1] is True
    memory_delete(memory=memory, by=owner, now=NOW)
    assert propose(owner, "Acme pays in May")[1] is True
