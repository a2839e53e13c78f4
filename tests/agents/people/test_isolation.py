"""Rows of a user: written by nobody else, and deleted with the user."""

import ast
from pathlib import Path

import pytest

from agents.enums import NoticeKind
from agents.knowledge.projects import precedent_promote, proposal_accept
from agents.models import ContextProposal, ContextRevision, Memory, Notification, OutboxMessage, Precedent, Project
from agents.people.notifications import notification_create
from tests.factories import NOW, make_user
from tests.table import every_row

from .rows import make_memory, make_precedent, make_project

SOURCE = Path(__file__).resolve().parents[3] / "agents"
WRITES = {"create", "update", "update_or_create", "get_or_create", "Project"}


@pytest.mark.django_db
def test_deleting_a_user_deletes_their_rows_and_no_others(settings):
    settings.EMAIL_HOST = "mail.example.org"
    leaver, stayer = make_user(email="a@example.org"), make_user(email="b@example.org")
    for owner in (leaver, stayer):
        make_memory(owner)
        project = make_project(owner)
        proposal = precedent_promote(precedent=make_precedent(owner), project=project, by=owner, now=NOW)
        proposal_accept(proposal=proposal, by=owner, now=NOW)
        notification_create(owner_id=owner.pk, kind=NoticeKind.AGENT, title="t", body="", now=NOW)
    leaver.delete()
    for model in (Memory, Precedent, Project, ContextProposal, Notification):
        assert set(model.objects.values_list("owner", flat=True)) == {stayer.pk}
    assert [model.objects.count() for model in (ContextRevision, OutboxMessage)] == [1, 1]


def context_writes(source):
    """Lines that write a project's context: an assignment, or a keyword of something that writes rows."""
    found = []
    if "context_md" not in source:
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == "context_md":
            found.append(node.lineno)
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found += [node.lineno for word in node.keywords if word.arg == "context_md" and called in WRITES]
    return found


def test_one_module_writes_the_context_of_projects():
    files = [path for path in SOURCE.rglob("*.py") if "migrations" not in path.parts]
    writers = {path.relative_to(SOURCE).as_posix() for path in files if context_writes(path.read_text("utf-8"))}
    assert writers == {"knowledge/projects.py"}


@every_row(
    "line",
    ["row.context_md = text", "row.context_md, x = text, 1", "rows.update(context_md='')", "Project(context_md='')"],
)
def test_write_of_a_context_is_detected(line):
    assert context_writes(line) == [1]
