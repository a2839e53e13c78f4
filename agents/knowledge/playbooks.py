"""Playbooks and prompt skills: the only writer of their rows.

Each edit of a playbook that changes something is a new version with its own digest. A deleted playbook stays for the
audit log and cannot run. A prompt skill runs only as the files that somebody accepted, byte for byte.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from agents.conf import skill_folders
from agents.definitions.playbooks import (
    PlaybookText,
    Position,
    checked_playbook,
    read_playbook,
    render_playbook,
    write_playbook,
)
from agents.definitions.skill_files import SkillFiles, read_skill, skill_names
from agents.exceptions import Invalid, NotAllowed, NotFound, SkillChanged
from agents.knowledge.documents import lock_row, record_change, save_named
from agents.models import Playbook, PlaybookPosition, PromptSkill
from agents.people.access import record_act, require_access
from audit.redaction import redact, redact_data

# --- Playbooks ---

MAX_RENDERED_BYTES: Final = 256 * 1024


@transaction.atomic
def playbook_create(
    *, owner: User, name: str, positions: Sequence[Position], by: User | None, now: datetime
) -> Playbook:
    """Create version 1 of a playbook. Names are unique per owner; the name of a deleted playbook is free again."""
    require_access(by, owner_id=owner.pk, permission="agents.add_playbook")
    name, positions = _checked(name, positions)
    playbook = Playbook(owner=owner, name=name, digest=_digest(name, 1, positions), created_at=now, updated_at=now)
    save_named(playbook)
    _write_positions(playbook, positions)
    _record_version(playbook, "playbook.created", positions, by=by, now=now)
    return playbook


@transaction.atomic
def playbook_edit(
    playbook: Playbook,
    *,
    by: User | None,
    now: datetime,
    name: str | None = None,
    positions: Sequence[Position] | None = None,
) -> Playbook:
    """Write the next version if anything differs; otherwise change and record nothing."""
    require_access(by, owner_id=playbook.owner_id, permission="agents.change_playbook")
    row = _lock_playbook(Playbook.objects.filter(pk=playbook.pk))
    before = positions_of(row)
    wanted_name, wanted = _checked(row.name if name is None else name, before if positions is None else positions)
    if (wanted_name, wanted) == (row.name, before):
        return row
    row.name = wanted_name
    row.version += 1
    row.updated_at = now
    row.digest = _digest(row.name, row.version, wanted)
    save_named(row)
    if wanted != before:
        row.positions.all().delete()
        _write_positions(row, wanted)
    _record_version(row, "playbook.edited", wanted, by=by, now=now)
    return row


@transaction.atomic
def playbook_delete(playbook: Playbook, *, by: User | None, now: datetime) -> Playbook:
    """Delete a playbook. The audit events of its runs keep its id, version and digest."""
    require_access(by, owner_id=playbook.owner_id, permission="agents.delete_playbook")
    row = _lock_playbook(Playbook.objects.filter(pk=playbook.pk))
    row.deleted_at = row.updated_at = now
    row.save(update_fields=["deleted_at", "updated_at"])
    record_change(row, "playbook.deleted", by=by, now=now)
    return row


@transaction.atomic
def playbook_import(*, owner: User, text: str, by: User | None, now: datetime) -> Playbook:
    """Create a playbook from YAML, or the next version of the owner's playbook of that name."""
    name, positions = read_playbook(text)
    existing = Playbook.objects.filter(owner=owner, name=name, deleted_at__isnull=True).first()
    if existing is None:
        return playbook_create(owner=owner, name=name, positions=positions, by=by, now=now)
    return playbook_edit(existing, positions=positions, by=by, now=now)


def playbook_export(playbook: Playbook) -> str:
    """Return the playbook as YAML; importing it again changes nothing."""
    return write_playbook(playbook.name, positions_of(playbook))


def playbook_runnable(owner_id: int, public_id: UUID | str) -> Playbook:
    """Return a playbook that a run of this owner may use, with its positions. Raises NotFound.

    They are read by one statement, so that version and positions belong together.
    """
    try:
        key = UUID(str(public_id))
    except ValueError:
        raise NotFound("There is no such playbook.") from None
    runnable = Playbook.objects.filter(owner_id=owner_id, public_id=key, deleted_at__isnull=True)
    of_it = PlaybookPosition.objects.filter(playbook__in=runnable).select_related("playbook")
    positions = of_it.order_by("order", "pk")
    playbook = positions[0].playbook if positions else runnable.first()
    if playbook is None:
        raise NotFound("There is no such playbook.")
    vars(playbook)["_prefetched_objects_cache"] = {"positions": positions}  # as if they had been prefetched
    return playbook


def playbook_issues(owner_id: int, public_id: str) -> tuple[str, ...]:
    """Return the names of the positions of an owner's playbook, also of a deleted one; none if there is no such one."""
    rows = PlaybookPosition.objects.filter(playbook__owner_id=owner_id, playbook__public_id=UUID(public_id))
    return tuple(rows.order_by("order", "pk").values_list("issue", flat=True))


def playbook_rendered(playbook: Playbook) -> str:
    """Return the text that models, the offline analyst and people read."""
    return _render(playbook.name, playbook.version, positions_of(playbook))


def positions_of(playbook: Playbook) -> tuple[Position, ...]:
    """Return the positions of a playbook, in order."""
    return tuple(
        Position(
            issue=row.issue,
            severity=row.severity,
            standard=row.standard,
            fallbacks=tuple(row.fallbacks),
            guidance=row.guidance,
            must_contain=tuple(row.must_contain),
            must_not_contain=tuple(row.must_not_contain),
        )
        for row in playbook.positions.all()
    )


def _checked(name: str, positions: Sequence[Position]) -> tuple[str, tuple[Position, ...]]:
    return checked_playbook({"name": name, "positions": [asdict(position) for position in positions]})


def _lock_playbook(rows: QuerySet[Playbook]) -> Playbook:
    return lock_row(rows.filter(deleted_at__isnull=True), "playbook")


def _write_positions(playbook: Playbook, positions: Sequence[Position]) -> None:
    PlaybookPosition.objects.bulk_create(
        PlaybookPosition(
            playbook=playbook,
            order=number,
            **{name: list(value) if isinstance(value, tuple) else value for name, value in asdict(position).items()},
        )
        for number, position in enumerate(positions, 1)
    )


def _render(name: str, version: int, positions: Sequence[Position]) -> str:
    return render_playbook(PlaybookText(name, version, tuple(positions)))


def _digest(name: str, version: int, positions: Sequence[Position]) -> str:
    rendered = _render(name, version, positions).encode()
    if len(rendered) > MAX_RENDERED_BYTES:
        raise Invalid(
            f"The playbook is {len(rendered)} bytes of text; at most {MAX_RENDERED_BYTES} are kept: shorten it."
        )
    return hashlib.sha256(rendered).hexdigest()


def _record_version(row: Playbook, kind: str, positions: Sequence[Position], *, by: User | None, now: datetime) -> None:
    record_change(row, kind, by=by, now=now, version=row.version, digest=row.digest, positions=len(positions))


# --- Prompt skills ---
#
# The first load accepts what it finds. From then on every difference, a missing or broken file included, is recorded
# once and refused until a person accepts it. Files are read outside of any transaction; nothing in them is executed.

PERMISSION: Final = "agents.change_promptskill"
FOLDER_CHARS: Final = 500


@dataclass(frozen=True)
class LoadedSkill:
    """One skill after a load. `state`: loaded (new), unchanged, changed, accepted, or missing."""

    name: str
    state: str
    version: int
    digest: str


@dataclass(frozen=True)
class LoadReport:
    """Result of a load. A problem names the folder or file, and why it was not loaded."""

    skills: tuple[LoadedSkill, ...] = ()
    problems: tuple[str, ...] = ()


def skills_load(*, by: User | None, now: datetime, accept: Sequence[str] = ()) -> LoadReport:
    """Load new skills from the skill folders; mark changed ones, or accept them if named."""
    _require_permission(by)
    found, problems = _read_all()
    loaded = [_load(files, accept=accept, by=by, now=now) for files in found.values()]
    missing = PromptSkill.objects.exclude(name__in=found).order_by("name")
    loaded += [_loaded(_mark(row.pk, "", by=by, now=now), "missing") for row in missing]
    problems += [f"{name}: not accepted, no such skill could be read." for name in accept if name not in found]
    return LoadReport(tuple(sorted(loaded, key=lambda one: one.name)), tuple(problems))


def skill_accept(skill: PromptSkill, *, by: User | None, now: datetime) -> PromptSkill:
    """Accept the files that the last load found. If they have changed since, mark them again and refuse."""
    _require_permission(by)
    try:
        files = _read_again(skill)
    except Invalid as refusal:
        raise SkillChanged(f"Skill {skill.name} cannot be accepted: {refusal}") from None
    if files.digest in {skill.found_digest, skill.digest}:
        return _accept(files, by=by, now=now)
    _mark(skill.pk, files.digest, by=by, now=now)
    raise SkillChanged(f"The files of skill {skill.name} changed after the last load; review them again, then accept.")


@transaction.atomic
def skill_switch(skill: PromptSkill, *, enabled: bool, by: User | None, now: datetime) -> PromptSkill:
    """Enable or disable a skill, for all runs that start later."""
    _require_permission(by)
    row = _lock_skill(pk=skill.pk)
    if row.enabled != enabled:
        row.enabled = enabled
        row.changed_by = by
        row.save(update_fields=["enabled", "changed_by"])
        _record_skill(row, "skill.enabled", by=by, now=now, enabled=enabled)
    return row


def skill_text(skill: PromptSkill) -> str:
    """Read the instructions from the files; they must be the accepted ones, in hand and in the row."""
    row = PromptSkill.objects.filter(pk=skill.pk).first()
    if row is None or not row.enabled:
        raise SkillChanged(f"Skill {skill.name} is disabled or deleted; it does not run.")
    try:
        files = _read_again(row)
    except Invalid:  # the reason names a folder of the server: for operators only
        raise SkillChanged(
            f"The files of skill {skill.name} are missing or unreadable, so it does not run; `load_skills` says why."
        ) from None
    if not files.digest == row.digest == skill.digest:
        raise SkillChanged(
            f"The files of skill {skill.name} have changed since they were accepted; it does not run until somebody "
            "reviews and accepts them."
        )
    return redact(files.body)


def _read_all() -> tuple[dict[str, SkillFiles], list[str]]:
    """Return every readable skill by name, and the problems of the others. Of two with one name the first counts."""
    found: dict[str, SkillFiles] = {}
    problems: list[str] = []
    for root, name in _candidates(problems):
        try:
            files = read_skill(root, name)
            if name in found:
                raise Invalid(f"{files.folder}: {found[name].folder} has the same name, and comes first.")
            if len(files.folder) > FOLDER_CHARS:
                raise Invalid(f"{files.folder}: the path is longer than {FOLDER_CHARS} characters.")
            found[name] = files
        except Invalid as refusal:
            problems.append(str(refusal))
    return found, problems


def _candidates(problems: list[str]) -> Iterator[tuple[Path, str]]:
    for root in skill_folders():
        try:
            yield from [(root, name) for name in skill_names(root)]
        except Invalid as refusal:
            problems.append(str(refusal))


def _read_again(skill: PromptSkill) -> SkillFiles:
    """Read the files of a loaded skill; only from a folder that is still configured."""
    folder = Path(skill.folder)
    if folder.parent not in skill_folders():
        raise Invalid(f"{folder}: is in none of the folders of LQOPS_SKILL_FOLDERS.")
    return read_skill(folder.parent, folder.name)


@transaction.atomic
def _load(files: SkillFiles, *, accept: Collection[str], by: User | None, now: datetime) -> LoadedSkill:
    row, created = PromptSkill.objects.get_or_create(name=files.name, defaults=_skill_columns(files, by, now))
    if created:
        _record_skill(row, "skill.loaded", by=by, now=now, digest=row.digest, version=row.version)
        return _loaded(row, "loaded")
    row = _lock_skill(pk=row.pk)
    if files.digest != row.digest and files.name in accept:
        return _loaded(_accept(files, by=by, now=now), "accepted")
    if row.folder != files.folder:
        row.folder = files.folder
        row.save(update_fields=["folder"])
    _mark(row.pk, files.digest, by=by, now=now)
    return _loaded(row, "unchanged" if files.digest == row.digest else "changed")


def _loaded(row: PromptSkill, state: str) -> LoadedSkill:
    return LoadedSkill(row.name, state, row.version, row.digest)


@transaction.atomic
def _accept(files: SkillFiles, *, by: User | None, now: datetime) -> PromptSkill:
    row = _lock_skill(name=files.name)
    if files.digest == row.digest:
        return _mark(row.pk, files.digest, by=by, now=now)
    for column, value in _skill_columns(files, by, now).items():
        setattr(row, column, value)
    row.version += 1
    row.save()
    _record_skill(row, "skill.accepted", by=by, now=now, digest=row.digest, version=row.version)
    return row


@transaction.atomic
def _mark(skill_pk: int, found_digest: str, *, by: User | None, now: datetime) -> PromptSkill:
    """Store what was found. A difference is recorded once; a return to the accepted files is not recorded."""
    row = _lock_skill(pk=skill_pk)
    if row.found_digest == found_digest:
        return row
    row.found_digest = found_digest
    row.save(update_fields=["found_digest"])
    if row.has_changed:
        _record_skill(row, "skill.changed", by=by, now=now, digest=found_digest)
    return row


def _skill_columns(files: SkillFiles, by: User | None, now: datetime) -> dict[str, Any]:
    return {
        "description": redact(files.description),
        "folder": files.folder,
        "front_matter": redact_data(dict(files.front_matter)),
        "body": redact(files.body),
        "digest": files.digest,
        "found_digest": files.digest,
        "loaded_at": now,
        "changed_by": by,
    }


def _lock_skill(**which: Any) -> PromptSkill:
    return lock_row(PromptSkill.objects.filter(**which), "skill")


def _require_permission(by: User | None) -> None:
    """Skills belong to the installation: users with the permission, and the system itself, may change them."""
    if by is not None and not by.has_perm(PERMISSION):
        raise NotAllowed(f"To load, accept or switch skills you need the permission {PERMISSION}.")


def _record_skill(skill: PromptSkill, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    record_act(kind, by=by, now=now, subject=f"skill:{skill.name}", skill=skill.name, **details)
