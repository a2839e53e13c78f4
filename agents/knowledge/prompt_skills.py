"""Prompt skills: the only writer of their rows. A skill runs only as the files that somebody accepted, byte for byte.

The first load accepts what it finds. From then on every difference, a missing file and a broken one included, is
recorded once and refused until a person accepts it. Files are read outside of any transaction; nothing in them is run.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.conf import skill_folders
from agents.definitions.skill_files import SkillFiles, read_skill, skill_names
from agents.exceptions import Invalid, NotAllowed, NotFound, SkillChanged
from agents.models import PromptSkill
from agents.people.actors import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact, redact_data

PERMISSION: Final = "agents.change_promptskill"
FOLDER_CHARS: Final = 500


@dataclass(frozen=True)
class Loaded:
    """One skill after a load. `state`: loaded (new), unchanged, changed, accepted, or missing."""

    name: str
    state: str
    version: int
    digest: str


@dataclass(frozen=True)
class LoadReport:
    """What a load came to. A problem names the folder or file, and why it was not taken."""

    skills: tuple[Loaded, ...] = ()
    problems: tuple[str, ...] = ()


def skills_load(*, by: User | None, now: datetime, accept: Sequence[str] = ()) -> LoadReport:
    """Looks through the skill folders. New skills are taken; changed ones are marked, or accepted if named."""
    _demand_permission(by)
    found, problems = _read_all()
    loaded = [_load(files, accept=accept, by=by, now=now) for files in found.values()]
    known = list(PromptSkill.objects.exclude(name__in=found).order_by("name"))
    missing = [_mark_missing(row, by=by, now=now) for row in known]
    problems += [
        f"{name}: no such skill could be read, so it was not accepted." for name in accept if name not in found
    ]
    return LoadReport(tuple(sorted([*loaded, *missing], key=lambda one: one.name)), tuple(problems))


def skill_accept(skill: PromptSkill, *, by: User | None, now: datetime) -> PromptSkill:
    """Takes the files that the last load found. If they are others by now, they are marked anew and not accepted."""
    _demand_permission(by)
    try:
        files = _read_again(skill)
    except Invalid as refusal:
        raise SkillChanged(f"Skill {skill.name} cannot be accepted: {refusal}") from None
    if files.digest in {skill.found_digest, skill.digest}:
        return _accept(files, by=by, now=now)
    _mark(skill.pk, files.digest, by=by, now=now)
    raise SkillChanged(
        f"The files of skill {skill.name} are not those of the last load any more; look at them again, then accept."
    )


@transaction.atomic
def skill_switch(skill: PromptSkill, *, enabled: bool, by: User | None, now: datetime) -> PromptSkill:
    """Switches a skill on or off, for all runs that begin later."""
    _demand_permission(by)
    row = _locked(skill.pk)
    if row.enabled != enabled:
        row.enabled = enabled
        row.save(update_fields=["enabled"])
        _record(row, "skill.enabled", by=by, now=now, enabled=enabled)
    return row


def skill_text(skill: PromptSkill) -> str:
    """The instructions, read from the files now; they have to be those that stand accepted, in hand and in the row."""
    row = PromptSkill.objects.filter(pk=skill.pk).first()
    if row is None or not row.enabled:
        raise SkillChanged(f"Skill {skill.name} is switched off or gone; it does not run.")
    try:
        files = _read_again(row)
    except Invalid:  # why is for operators: it names a folder of the server
        raise SkillChanged(
            f"The files of skill {skill.name} are gone or cannot be read, so it does not run; `load_skills` says why."
        ) from None
    if not files.digest == row.digest == skill.digest:
        raise SkillChanged(
            f"The files of skill {skill.name} have changed since they were accepted; it does not run until somebody "
            "has looked at them and accepted them."
        )
    return redact(files.body)


def _read_all() -> tuple[dict[str, SkillFiles], list[str]]:
    """Every skill that can be read, by name, and why the others cannot. Of two with one name the first counts."""
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
    """The files of a skill that was loaded; only from a folder that is still one of the configured ones."""
    folder = Path(skill.folder)
    if folder.parent not in skill_folders():
        raise Invalid(f"{folder}: lies in none of the folders of LQOPS_SKILL_FOLDERS.")
    return read_skill(folder.parent, folder.name)


@transaction.atomic
def _load(files: SkillFiles, *, accept: Collection[str], by: User | None, now: datetime) -> Loaded:
    row, created = PromptSkill.objects.get_or_create(name=files.name, defaults=_columns(files, now))
    if created:
        _record(row, "skill.loaded", by=by, now=now, digest=row.digest, version=row.version)
        return Loaded(row.name, "loaded", row.version, row.digest)
    row = _locked(row.pk)
    if files.digest != row.digest and files.name in accept:
        row = _accept(files, by=by, now=now)
        return Loaded(row.name, "accepted", row.version, row.digest)
    if row.folder != files.folder:
        row.folder = files.folder
        row.save(update_fields=["folder"])
    _mark(row.pk, files.digest, by=by, now=now)
    state = "unchanged" if files.digest == row.digest else "changed"
    return Loaded(row.name, state, row.version, row.digest)


@transaction.atomic
def _accept(files: SkillFiles, *, by: User | None, now: datetime) -> PromptSkill:
    row = PromptSkill.objects.select_for_update(no_key=True).get(name=files.name)
    if files.digest == row.digest:
        return _mark(row.pk, files.digest, by=by, now=now)
    for column, value in _columns(files, now).items():
        setattr(row, column, value)
    row.version += 1
    row.save()
    _record(row, "skill.accepted", by=by, now=now, digest=row.digest, version=row.version)
    return row


def _mark_missing(skill: PromptSkill, *, by: User | None, now: datetime) -> Loaded:
    row = _mark(skill.pk, "", by=by, now=now)
    return Loaded(row.name, "missing", row.version, row.digest)


@transaction.atomic
def _mark(skill_pk: int, found_digest: str, *, by: User | None, now: datetime) -> PromptSkill:
    """Keeps what was found. A difference is recorded once; files that are the accepted ones again need no word."""
    row = _locked(skill_pk)
    if row.found_digest == found_digest:
        return row
    row.found_digest = found_digest
    row.save(update_fields=["found_digest"])
    if row.has_changed:
        _record(row, "skill.changed", by=by, now=now, digest=found_digest)
    return row


def _columns(files: SkillFiles, now: datetime) -> dict[str, Any]:
    return {
        "description": redact(files.description),
        "folder": files.folder,
        "front_matter": redact_data(dict(files.front_matter)),
        "body": redact(files.body),
        "digest": files.digest,
        "found_digest": files.digest,
        "loaded_at": now,
    }


def _locked(skill_pk: int) -> PromptSkill:
    row = PromptSkill.objects.select_for_update(no_key=True).filter(pk=skill_pk).first()
    if row is None:
        raise NotFound("There is no such skill.")
    return row


def _demand_permission(by: User | None) -> None:
    """Skills are the installation's: whoever may change them, and the machine itself, passes."""
    if by is not None and not by.has_perm(PERMISSION):
        raise NotAllowed(f"Skills are loaded, accepted and switched by users who have {PERMISSION}.")


def _record(skill: PromptSkill, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"skill:{skill.name}",
        details={"skill": skill.name, **details},
    )
