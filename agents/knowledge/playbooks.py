"""Playbooks: the only writer of their rows. Each edit that changes something is a new version with a digest of its own.

What is stored is what a reader of the rendered text reads back. A deleted playbook stays for the record, and cannot
run. Texts that hold what looks like a secret are refused: a mask in a phrase would quietly check for something else.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet, prefetch_related_objects

from agents.conf import skill_folders
from agents.definitions import playbooks
from agents.definitions.playbooks import PlaybookText, Position, parse_playbook, render_playbook
from agents.definitions.skill_files import SkillFiles, read_skill, skill_names
from agents.exceptions import Invalid, NotAllowed, NotFound, SkillChanged
from agents.models import Playbook, PlaybookPosition, PromptSkill
from agents.people.access import actor_of, demand_access
from agents.text.strict_yaml import UNSTORABLE
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact, redact_data

# What a playbook may hold: sizes, characters, no secrets. Gives back the values as the rendered text says them.
#
# Reads and writes nothing. A refusal names the place as in YAML, `positions[2].guidance`, the limit and the value.


NAME_CHARS: Final = 120
MAX_POSITIONS: Final = 200
MAX_LISTED: Final = 50
TEXT_CHARS: Final = 20_000
LIMITS: Final = {"issue": 200, "severity": 32}


def checked_name(name: object) -> str:
    """The name on one line."""
    return " ".join(_text("name", name, NAME_CHARS, needed=True).split())


def checked_positions(positions: Sequence[Position]) -> tuple[Position, ...]:
    """The positions in order, with the blank space that a reader of the text would not see taken out."""
    if not 0 < len(positions) <= MAX_POSITIONS:
        raise Invalid(f"positions: a playbook has 1 to {MAX_POSITIONS} of them, not {len(positions)}.")
    for number, position in enumerate(positions):
        for place, value in _texts(position, f"positions[{number}]"):
            field = place.rpartition(".")[2]
            _text(place, value, LIMITS.get(field, TEXT_CHARS), needed=field == "issue")
    return parse_playbook(render_playbook(PlaybookText("", 1, tuple(positions)))).positions


def _texts(position: Position, path: str) -> Iterator[tuple[str, object]]:
    for field in fields(position):
        value = getattr(position, field.name)
        if not isinstance(value, list | tuple):
            yield f"{path}.{field.name}", value
            continue
        if len(value) > MAX_LISTED:
            raise Invalid(f"{path}.{field.name}: at most {MAX_LISTED} are kept, not {len(value)}.")
        yield from ((f"{path}.{field.name}[{number}]", item) for number, item in enumerate(value))


def _text(place: str, value: object, limit: int, *, needed: bool = False) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{place}: expected text, found {type(value).__name__}.")
    plain = value.replace("\r\n", "\n").replace("\r", "\n")
    if len(plain) > limit:
        raise Invalid(f"{place}: {len(plain)} characters; at most {limit} are kept: shorten it.")
    if unstorable := UNSTORABLE.search(plain):
        raise Invalid(f"{place}: the character U+{ord(unstorable[0]):04X} cannot be kept.")
    if needed and not plain.strip():
        raise Invalid(f"{place}: is missing.")
    if redact(plain) != plain:
        raise Invalid(f"{place}: holds what looks like a secret; write it without.")
    return plain


MAX_RENDERED_BYTES: Final = 256 * 1024


@transaction.atomic
def playbook_create(
    *, owner: User, name: str, positions: Sequence[Position], by: User | None, now: datetime
) -> Playbook:
    """Version 1 of a playbook of the owner's. Names are the owner's own; a deleted playbook's name is free again."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_playbook")
    name, positions = checked_name(name), checked_positions(positions)
    playbook = Playbook(owner=owner, name=name, digest=_digest(name, 1, positions), created_at=now, updated_at=now)
    _save(playbook)
    _write_positions(playbook, positions)
    _record_playbook(
        playbook, "playbook.created", by=by, now=now, version=1, digest=playbook.digest, positions=len(positions)
    )
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
    """The next version, if anything differs; else the playbook as it is, and nothing is recorded."""
    demand_access(by, owner_id=playbook.owner_id, permission="agents.change_playbook")
    row = _locked_playbook(Playbook.objects.filter(pk=playbook.pk))
    before = positions_of(row)
    wanted_name = row.name if name is None else checked_name(name)
    wanted = before if positions is None else checked_positions(positions)
    if (wanted_name, wanted) == (row.name, before):
        return row
    row.name, row.version, row.updated_at = wanted_name, row.version + 1, now
    row.digest = _digest(row.name, row.version, wanted)
    _save(row)
    if wanted != before:
        row.positions.all().delete()
        _write_positions(row, wanted)
    details = {"version": row.version, "digest": row.digest, "positions": len(wanted)}
    _record_playbook(row, "playbook.edited", by=by, now=now, **details)
    return row


@transaction.atomic
def playbook_delete(playbook: Playbook, *, by: User | None, now: datetime) -> Playbook:
    """Takes a playbook out of use. Runs that used it keep its id, version and digest in their record."""
    demand_access(by, owner_id=playbook.owner_id, permission="agents.delete_playbook")
    row = _locked_playbook(Playbook.objects.filter(pk=playbook.pk))
    row.deleted_at = row.updated_at = now
    row.save(update_fields=["deleted_at", "updated_at"])
    _record_playbook(row, "playbook.deleted", by=by, now=now)
    return row


@transaction.atomic
def playbook_import(*, owner: User, text: str, by: User | None, now: datetime) -> Playbook:
    """A new playbook from YAML or, when the owner has one of that name, its next version."""
    name, positions = playbooks.read_playbook(text)
    name = checked_name(name)
    existing = Playbook.objects.filter(owner=owner, name=name, deleted_at__isnull=True).first()
    if existing is None:
        return playbook_create(owner=owner, name=name, positions=positions, by=by, now=now)
    return playbook_edit(existing, positions=positions, by=by, now=now)


def playbook_export(playbook: Playbook) -> str:
    """The playbook as YAML; importing it again changes nothing."""
    return playbooks.write_playbook(playbook.name, positions_of(playbook))


@transaction.atomic
def playbook_runnable(owner_id: int, public_id: UUID | str) -> Playbook:
    """A playbook that a run of this owner may use, with its positions. Somebody else's, or a deleted one, is not found.

    The row is locked while the positions are read, so that version and positions belong together.
    """
    row = _locked_playbook(Playbook.objects.filter(owner_id=owner_id, public_id=_uuid(public_id)))
    prefetch_related_objects([row], "positions")
    return row


def playbook_rendered(playbook: Playbook) -> str:
    """The one text that a model, the offline analyst and a person read."""
    return _render(playbook.name, playbook.version, positions_of(playbook))


def positions_of(playbook: Playbook) -> tuple[Position, ...]:
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


def _locked_playbook(rows: QuerySet[Playbook]) -> Playbook:
    """The row, locked until the transaction ends, unless it was deleted. SQLite's transaction is the lock."""
    row = rows.filter(deleted_at__isnull=True).select_for_update(no_key=True).first()
    if row is None:
        raise NotFound("There is no such playbook.")
    return row


def _save(playbook: Playbook) -> None:
    try:
        with transaction.atomic():
            playbook.save()
    except IntegrityError:
        raise Invalid(
            f"There is a playbook named {playbook.name!r} already; edit that one, or choose another name."
        ) from None


def _write_positions(playbook: Playbook, positions: Sequence[Position]) -> None:
    PlaybookPosition.objects.bulk_create(
        PlaybookPosition(playbook=playbook, order=number, **_position_columns(position))
        for number, position in enumerate(positions, 1)
    )


def _position_columns(position: Position) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(position).items()}


def _render(name: str, version: int, positions: Sequence[Position]) -> str:
    return playbooks.render_playbook(playbooks.PlaybookText(name, version, tuple(positions)))


def _digest(name: str, version: int, positions: Sequence[Position]) -> str:
    rendered = _render(name, version, positions).encode()
    if len(rendered) > MAX_RENDERED_BYTES:
        raise Invalid(
            f"The playbook is {len(rendered)} bytes long when written out; at most {MAX_RENDERED_BYTES} are kept: "
            "shorten it, or split it into two."
        )
    return hashlib.sha256(rendered).hexdigest()


def _uuid(public_id: UUID | str) -> UUID:
    try:
        return public_id if isinstance(public_id, UUID) else UUID(public_id)
    except ValueError:
        raise NotFound("There is no such playbook.") from None


def _record_playbook(playbook: Playbook, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"playbook:{playbook.public_id}",
        details={"playbook_id": str(playbook.public_id), **details},
    )


# Prompt skills: the only writer of their rows. A skill runs only as the files that somebody accepted, byte for byte.
#
# The first load accepts what it finds. From then on every difference, a missing file and a broken one included, is
# recorded once and refused until a person accepts it. Files are read outside of any transaction; nothing in them is
# run.


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
    row = _locked_skill(skill.pk)
    if row.enabled != enabled:
        row.enabled = enabled
        row.save(update_fields=["enabled"])
        _record_skill(row, "skill.enabled", by=by, now=now, enabled=enabled)
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
    row, created = PromptSkill.objects.get_or_create(name=files.name, defaults=_skill_columns(files, now))
    if created:
        _record_skill(row, "skill.loaded", by=by, now=now, digest=row.digest, version=row.version)
        return Loaded(row.name, "loaded", row.version, row.digest)
    row = _locked_skill(row.pk)
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
    for column, value in _skill_columns(files, now).items():
        setattr(row, column, value)
    row.version += 1
    row.save()
    _record_skill(row, "skill.accepted", by=by, now=now, digest=row.digest, version=row.version)
    return row


def _mark_missing(skill: PromptSkill, *, by: User | None, now: datetime) -> Loaded:
    row = _mark(skill.pk, "", by=by, now=now)
    return Loaded(row.name, "missing", row.version, row.digest)


@transaction.atomic
def _mark(skill_pk: int, found_digest: str, *, by: User | None, now: datetime) -> PromptSkill:
    """Keeps what was found. A difference is recorded once; files that are the accepted ones again need no word."""
    row = _locked_skill(skill_pk)
    if row.found_digest == found_digest:
        return row
    row.found_digest = found_digest
    row.save(update_fields=["found_digest"])
    if row.has_changed:
        _record_skill(row, "skill.changed", by=by, now=now, digest=found_digest)
    return row


def _skill_columns(files: SkillFiles, now: datetime) -> dict[str, Any]:
    return {
        "description": redact(files.description),
        "folder": files.folder,
        "front_matter": redact_data(dict(files.front_matter)),
        "body": redact(files.body),
        "digest": files.digest,
        "found_digest": files.digest,
        "loaded_at": now,
    }


def _locked_skill(skill_pk: int) -> PromptSkill:
    row = PromptSkill.objects.select_for_update(no_key=True).filter(pk=skill_pk).first()
    if row is None:
        raise NotFound("There is no such skill.")
    return row


def _demand_permission(by: User | None) -> None:
    """Skills are the installation's: whoever may change them, and the machine itself, passes."""
    if by is not None and not by.has_perm(PERMISSION):
        raise NotAllowed(f"Skills are loaded, accepted and switched by users who have {PERMISSION}.")


def _record_skill(skill: PromptSkill, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"skill:{skill.name}",
        details={"skill": skill.name, **details},
    )
