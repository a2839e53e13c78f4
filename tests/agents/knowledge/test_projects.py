"""Projects: who may write their context, and the version that every write makes."""

from decimal import Decimal

import pytest

from agents.exceptions import Invalid, InvalidTransition, NotAllowed, NotFound
from agents.knowledge.projects import CONTEXT_CHARS, project_create, project_delete, project_edit
from agents.ledger.budgets import caps_set
from agents.models import Cap, ContextRevision, Project
from tests.agents.people.rows import allowed, make_project, told
from tests.factories import NOW, make_session, make_trigger, make_user
from tests.flows.processes import in_threads
from tests.table import every_row

pytestmark = pytest.mark.django_db


def versions(project):
    return list(ContextRevision.objects.filter(project=project).order_by("version").values_list("version", "text"))


def test_new_project_has_no_version_or_version_1():
    owner = make_user()
    empty = project_create(owner=owner, name="  Acme\nLtd ", by=owner, now=NOW)
    begun = project_create(owner=owner, name="Acme", by=owner, now=NOW, context_md="We buy.", parties="Acme Ltd")
    assert (empty.name, empty.context_version, versions(empty)) == ("Acme Ltd", 0, [])
    assert (begun.context_md, begun.context_version, versions(begun)) == ("We buy.", 1, [(1, "We buy.")])
    assert begun.revisions.get().written_by == owner
    who = f"user:{owner.pk}"
    assert told("project.") == [
        ("project.created", who, {"project_id": str(empty.public_id)}),
        ("project.created", who, {"project_id": str(begun.public_id)}),
        (
            "project.edited",
            who,
            {"project_id": str(begun.public_id), "fields": ["context_md"], "context_version": 1},
        ),
    ]


def test_only_context_changes_make_versions():
    project = make_project()
    owner = project.owner
    project_edit(project=project, by=owner, now=NOW, context_md="one", name="Acme")
    project_edit(project=project, by=owner, now=NOW, parties="Acme\r\nBeta\rGamma")
    row = project_edit(project=project, by=owner, now=NOW, context_md="two\r\nlines")
    assert versions(project) == [(1, "one"), (2, "two\nlines")]
    assert (row.name, row.parties, row.context_md) == ("Acme", "Acme\nBeta\nGamma", "two\nlines")
    assert [details["fields"] for _, _, details in told("project.edited")] == [
        ["context_md", "name"],
        ["parties"],
        ["context_md"],
    ]
    row.refresh_from_db()
    assert row.context_version == 2


def test_unchanged_values_leave_no_version_and_no_event():
    project = make_project(context_md="one", context_version=1)
    project_edit(project=project, by=project.owner, now=NOW, context_md="one", name=project.name)
    assert (versions(project), told("project.")) == ([], [])


def test_stale_form_does_not_overwrite_the_context():
    project = make_project(context_md="one\naccepted", context_version=2)
    with pytest.raises(InvalidTransition, match="at version 2 now, not 1"):
        project_edit(project=project, by=project.owner, now=NOW, context_md="one, edited", seen_version=1)
    project.refresh_from_db()
    assert project.context_md == "one\naccepted"
    assert (
        project_edit(project=project, by=project.owner, now=NOW, context_md="new", seen_version=2).context_md == "new"
    )


def test_only_the_owner_writes_the_context():
    project, staff = make_project(), allowed("change_project", "add_project")
    project_edit(project=project, by=staff, now=NOW, name="Renamed")
    project_edit(project=project, by=None, now=NOW, parties="Acme")
    with pytest.raises(NotFound):
        project_edit(project=project, by=staff, now=NOW, context_md="mine")
    with pytest.raises(NotAllowed, match="name the user"):
        project_edit(project=project, by=None, now=NOW, context_md="the machine's")
    with pytest.raises(NotFound):
        project_create(owner=project.owner, name="x", by=staff, now=NOW, context_md="mine")
    project.refresh_from_db()
    assert (project.name, project.context_md, versions(project)) == ("Renamed", "", [])
    assert Project.objects.count() == 1


def test_stranger_finds_no_project():
    project, stranger = make_project(), make_user()
    for act in (
        lambda: project_edit(project=project, by=stranger, now=NOW, name="x"),
        lambda: project_delete(project=project, by=stranger, now=NOW),
        lambda: project_create(owner=project.owner, name="x", by=stranger, now=NOW),
    ):
        with pytest.raises(NotFound):
            act()
    assert told("project.") == []


def test_inactive_owner_finds_no_project():
    project = make_project(owner=make_user(is_active=False))
    with pytest.raises(NotFound):
        project_edit(project=project, by=project.owner, now=NOW, name="x")


@every_row(
    ("changes", "says"),
    [
        ({"owner": "me"}, "no owner to change"),
        ({"context_version": "7"}, "no context_version"),
        ({"name": " \n "}, "needs a name"),
        ({"name": 7}, "must be text"),
        ({"parties": "a\x00b"}, "without null characters"),
        ({"context_md": "x" * (CONTEXT_CHARS + 1)}, f"at most {CONTEXT_CHARS}"),
    ],
)
def test_invalid_changes_are_refused_with_the_reason(changes, says):
    project = make_project()
    with pytest.raises(Invalid, match=says):
        project_edit(project=project, by=project.owner, now=NOW, **changes)


def test_secrets_in_a_context_are_masked():
    project = make_project()
    secret = "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 5
    row = project_edit(project=project, by=project.owner, now=NOW, context_md=f"The key is {secret}.")
    assert secret not in row.context_md
    assert versions(project) == [(1, row.context_md)]


def test_deleted_project_leaves_its_runs_and_triggers():
    project = make_project()
    session = make_session(owner=project.owner, project=project)
    trigger = make_trigger(owner=project.owner, project=project)
    project_edit(project=project, by=project.owner, now=NOW, context_md="one")
    project_delete(project=project, by=project.owner, now=NOW)
    session.refresh_from_db()
    trigger.refresh_from_db()
    assert (session.project, trigger.project, ContextRevision.objects.count()) == (None, None, 0)
    assert told("project.deleted") == [
        ("project.deleted", f"user:{project.owner.pk}", {"project_id": str(project.public_id)})
    ]
    with pytest.raises(NotFound):
        project_delete(project=project, by=project.owner, now=NOW)


def test_project_with_a_cap_is_deleted_by_those_who_may_loosen():
    project = make_project()
    caps_set(subject=project, by=None, now=NOW, max_cost_per_month_usd=Decimal(3))
    with pytest.raises(NotAllowed, match="the caps of the project"):
        project_delete(project=project, by=project.owner, now=NOW)
    project_delete(project=project, by=None, now=NOW)
    assert not Cap.objects.exists()
    budget = f"project:{project.pk}/month"
    assert told("budget.")[-1] == (
        "budget.cap_set",
        "system",
        {"budget": budget, "cap_usd": None, "old_cap_usd": "3.000000"},
    )


@pytest.mark.django_db(transaction=True)
def test_concurrent_writes_each_get_a_version():
    project = make_project()
    owner = project.owner
    in_threads(8, lambda n: project_edit(project=project, by=owner, now=NOW, context_md=f"text {n}"))
    assert [version for version, _ in versions(project)] == [1, 2, 3, 4, 5, 6, 7, 8]
    project.refresh_from_db()
    assert (project.context_version, project.context_md) == versions(project)[-1]
