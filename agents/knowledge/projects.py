"""Projects and the versions of their context. `context_write` is the only writer of a context.

It is called for the owner's own edit and for a proposal that the owner accepts or retires, with the project's row
locked: every text that a run can have read stands in a revision of its own.
"""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.models import ContextProposal, ContextRevision, Project
from agents.people.access import demand_access, demand_owner
from agents.people.actors import actor_of
from agents.text.clean import one_line
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

NAME_CHARS = 200
CONTEXT_CHARS = 100_000
PARTIES_CHARS = 100_000


@transaction.atomic
def project_create(
    *, owner: User, name: str, by: User | None, now: datetime, context_md: str = "", parties: str = ""
) -> Project:
    """A project of the owner's. A context to begin with is version 1, and only the owner can give one."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_project")
    context = _context(context_md)
    project = Project.objects.create(owner=owner, name=_name(name), parties=_parties(parties), created_at=now)
    _record(project, "project.created", by=by, now=now)
    if context:
        demand_owner(by, owner_id=owner.pk)
        context_write(project, context, by=by, now=now)
        _record(project, "project.edited", by=by, now=now, fields=["context_md"], context_version=1)
    return project


@transaction.atomic
def project_edit(
    *, project: Project, by: User | None, now: datetime, seen_version: int | None = None, **changes: str
) -> Project:
    """Changes the name, the parties or the context; the context only for the owner. What stays the same is no change.

    `seen_version` is the version of the context that the person has edited: if another one was written meanwhile,
    nothing is changed, so that no accepted line is lost by an older form.
    """
    demand_access(by, owner_id=project.owner_id, permission="agents.change_project")
    row = project_lock(project.pk)
    checks = {"name": _name, "parties": _parties, "context_md": _context}
    if unknown := changes.keys() - checks.keys():
        raise Invalid(f"A project has no {', '.join(sorted(unknown))} to change: name {', '.join(sorted(checks))}.")
    wanted = {field: checks[field](value) for field, value in changes.items()}
    wanted = {field: value for field, value in wanted.items() if value != getattr(row, field)}
    if "context_md" in wanted:
        demand_owner(by, owner_id=row.owner_id)
        if seen_version not in {None, row.context_version}:
            raise InvalidTransition(
                f"The context is at version {row.context_version} now, not {seen_version}: look at it again."
            )
        context_write(row, wanted["context_md"], by=by, now=now)
    if not wanted:
        return row
    plain = [field for field in wanted if field != "context_md"]
    for field in plain:
        setattr(row, field, wanted[field])
    row.save(update_fields=plain)
    _record(row, "project.edited", by=by, now=now, fields=sorted(wanted), context_version=row.context_version)
    return row


@transaction.atomic
def project_delete(*, project: Project, by: User | None, now: datetime) -> Project:
    """Deletes the project with its proposals and versions. Runs and triggers stay, bound to none."""
    demand_access(by, owner_id=project.owner_id, permission="agents.delete_project")
    row = project_lock(project.pk)
    Project.objects.filter(pk=row.pk).delete()
    _record(row, "project.deleted", by=by, now=now)
    return row


def project_lock(project_pk: int) -> Project:
    """The project's row, locked until the transaction ends. SQLite's transaction is the lock."""
    row = Project.objects.select_for_update(no_key=True).filter(pk=project_pk).first()
    if row is None:
        raise NotFound("There is no such project.")
    return row


def context_write(
    row: Project, text: str, *, by: User | None, now: datetime, proposal: ContextProposal | None = None
) -> int:
    """The next version of the context. The caller has locked the row, and has made sure that the owner wants this."""
    if len(text) > CONTEXT_CHARS:
        raise Invalid(
            f"The context would be {len(text)} characters long; at most {CONTEXT_CHARS} are kept: shorten it."
        )
    row.context_md, row.context_version = text, row.context_version + 1
    row.save(update_fields=["context_md", "context_version"])
    ContextRevision.objects.create(
        project=row, version=row.context_version, text=text, proposal=proposal, written_by=by, created_at=now
    )
    return row.context_version


def _name(value: object) -> str:
    name = one_line(redact(_text("name", value, 10 * NAME_CHARS)), NAME_CHARS)
    if not name:
        raise Invalid("A project needs a name.")
    return name


def _context(value: object) -> str:
    return redact(_text("context_md", value, CONTEXT_CHARS))


def _parties(value: object) -> str:
    """Not redacted: these names are looked for, letter by letter, in what is sent to models."""
    return _text("parties", value, PARTIES_CHARS)


def _text(field: str, value: object, limit: int) -> str:
    """The text with plain line ends, whatever a browser made of them."""
    if not isinstance(value, str) or "\x00" in value:
        raise Invalid(f"{field} must be text without null characters.")
    if len(value) > limit:
        raise Invalid(f"{field} is {len(value)} characters long; at most {limit} are kept: shorten it.")
    return value.replace("\r\n", "\n").replace("\r", "\n")


def _record(project: Project, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"project:{project.public_id}",
        details={"project_id": str(project.public_id), **details},
    )
