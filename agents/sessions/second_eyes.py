"""The second pair of eyes: whom a call binds, who may decide on it, and how many yeses it needs.

From the level LQOPS_FOUR_EYES_FROM on a call needs LQOPS_QUORUM yeses of different people, of the role
LQOPS_QUORUM_ROLE if one is set; with LQOPS_FOUR_EYES on, none of them may be bound by the call. One no denies it.
Everybody who shows or takes a decision asks here.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet

from agents.conf import clock
from agents.enums import ApprovalStatus, Level, Mode
from agents.exceptions import NotAllowed
from agents.models import AgentSession, Approval, ApprovalVote, PromptSkill, Question, SkillSetting
from agents.people.access import DECIDE_PERMISSION, person_of
from agents.people.delegations import delegations_in_force, holders, is_approver
from agents.sessions.reads import parent_of

Call = tuple[int, str]  # the session's id and the name of what it calls
Bound = Mapping[int, str]  # why a call binds each of these people
MOST_OPEN: Final = 100  # pending approvals that are looked at to find a person's next one

# --- Whom a call binds: by the run, and by the runs that led to it. The first reason of a person counts ---


def _starter(run: AgentSession) -> int | None:
    return person_of(run.metadata.get("asked_by", ""))


_REASONS: Final[tuple[tuple[str, Callable[[AgentSession], int | None]], ...]] = (
    ("you own the run", lambda run: run.owner_id),
    ("you sent the message", lambda run: _starter(run) if run.mode == Mode.CHAT else None),
    ("you started the run", _starter),
    ("you last changed the agent", lambda run: run.agent.edited_by_id if run.agent else None),
    ("you last changed the trigger", lambda run: run.trigger.edited_by_id if run.trigger else None),
)
_READ: Final = (
    "public_id", "owner_id", "mode", "metadata", "params", "agent__edited_by_id", "trigger__edited_by_id",
)  # fmt: skip
_SKILL: Final = "you last changed the skill"
_ANSWERED: Final = "you answered a question of the run"


def bound_people(calls: Collection[Call]) -> dict[Call, Bound]:
    """Return whom each call binds and why, in words to that person, whatever its level. Read afresh."""
    if not calls:
        return {}
    lines = _lines({session_id for session_id, _ in calls})
    runs = [run for line in lines.values() for run in line]
    skills = PromptSkill.objects.filter(name__in={run.spec.skill for run in runs if run.spec.skill})
    changed = dict(skills.values_list("name", "changed_by_id"))
    answered: dict[int, list[int]] = defaultdict(list)
    asked = Question.objects.filter(session__in=runs, answered_by__isnull=False)
    for session_id, person in asked.values_list("session_id", "answered_by_id"):
        answered[session_id].append(person)
    set_ = dict(SkillSetting.objects.filter(name__in={name for _, name in calls}).values_list("name", "updated_by_id"))
    return {call: _bound(lines[call[0]], changed, set_.get(call[1]), answered) for call in calls}


def _bound(
    line: Iterable[AgentSession],
    changed: Mapping[str, int | None],
    set_by: int | None,
    answered: Mapping[int, Sequence[int]],
) -> Bound:
    found: dict[int, str] = {}
    for run in line:
        reasons = [(words, who(run)) for words, who in _REASONS]
        reasons += [(_ANSWERED, person) for person in answered.get(run.pk, ())]
        for words, person in (*reasons, (_SKILL, changed.get(run.spec.skill)), (_SKILL, set_by)):
            if person is not None:
                found.setdefault(person, words)
    return found


def _lines(session_ids: Collection[int]) -> dict[int, list[AgentSession]]:
    """Return each session with the sessions that led to it, one statement for each step, and what a reason needs."""
    rows = AgentSession.objects.select_related("agent", "trigger").only(*_READ)
    lines = {run.pk: [run] for run in rows.filter(pk__in=session_ids)}
    growing = list(lines.values())
    while wanted := [(line, parent) for line in growing if (parent := parent_of(line[-1])) is not None]:
        parents = {run.public_id: run for run in rows.filter(public_id__in={parent for _, parent in wanted})}
        growing = []
        for line, parent in wanted:
            if parent in parents:
                line.append(parents[parent])
                growing.append(line)
    return lines


def is_watched(level: str) -> bool:
    """Return whether a call of this level needs a second pair of eyes."""
    return bool(settings.LQOPS_FOUR_EYES) and _is_from_level(level)


def yeses_needed(level: str) -> int:
    return int(settings.LQOPS_QUORUM) if _is_from_level(level) else 1


def _needed(approval: Approval) -> int:
    """Whoever changed a watched call is its author: somebody else has to say yes to it, too."""
    others = 1 if approval.original_digest and is_watched(approval.level) else 0
    return max(yeses_needed(approval.level), 1 + others)


def _is_from_level(level: str) -> bool:
    return Level(level).rank >= Level(settings.LQOPS_FOUR_EYES_FROM).rank


def _bound_by(approvals: Iterable[Approval]) -> dict[int, Bound]:
    """Return whom each approval binds, by its id; nobody below the level."""
    watched = {row.pk: (row.session_id, row.action) for row in approvals if is_watched(row.level)}
    found = bound_people(set(watched.values()))
    return {pk: found[call] for pk, call in watched.items()}


# --- Who may decide ---


def approvers() -> QuerySet[User]:
    """Return every active user who may decide on approvals in their own right."""
    users = get_user_model().objects
    return users.with_perm(DECIDE_PERMISSION, backend="django.contrib.auth.backends.ModelBackend").order_by("pk")


def approvers_of(role: str) -> QuerySet[User]:
    """Return who of a role may decide on approvals in their own right."""
    return approvers().filter(groups__name=role).distinct()


def recipients(approval: Approval, now: datetime) -> list[User]:
    """Return whom to tell that a call waits: approvers of its roles and their delegates; nobody who has said yes."""
    everybody = list(approvers())
    case = _Case(approval, {}, _roles_of(everybody), used=set())
    found = {user.pk: user for user in everybody if case.asked_roles.keys() <= case.roles.get(user.pk, set())}
    bound = _bound_by([approval]).get(approval.pk, {})
    for row in delegations_in_force(now).filter(owner__in=list(found)):
        if not {row.owner_id, row.delegate_id} & bound.keys():
            found.setdefault(row.delegate_id, row.delegate)
    said = set(approval.votes.values_list("user_id", flat=True))
    return [user for pk, user in sorted(found.items()) if pk not in said]


@dataclass(frozen=True)
class Right:
    """Whether somebody may say yes to one call, and in whose right; else why not, in words to them."""

    holder: User | None
    refusal: str = ""


def rights(approvals: Sequence[Approval], *, by: User, now: datetime) -> dict[int, Right]:
    """Return for each approval whether this person may say yes to it, by a fixed number of statements."""
    found = holders(by, now)
    if not found:
        return dict.fromkeys((row.pk for row in approvals), Right(None, _NO_APPROVER.format(by)))
    bound, votes, roles = _bound_by(approvals), _votes(approvals), _roles_of(found)
    return {
        row.pk: _right(_Case(row, bound.get(row.pk, {}), roles, _used(votes[row.pk])), by, found) for row in approvals
    }


_NO_APPROVER: Final = f"{{}} may not decide on approvals: the permission {DECIDE_PERMISSION} is missing."


@dataclass(frozen=True)
class _Case:
    """The facts by which a right is judged: the call, whom it binds, people's roles, whose yes is there."""

    approval: Approval
    bound: Bound
    roles: Mapping[int, set[str]]
    used: set[int]

    @property
    def level(self) -> str:
        return self.approval.level

    @property
    def asked_roles(self) -> dict[str, str]:
        """The roles that people who decide must have, each with why."""
        asked = {rule["role"]: f"The rule {rule['name']}" for rule in self.approval.rules if rule["role"]}
        if settings.LQOPS_QUORUM_ROLE and _is_from_level(self.level):
            asked[settings.LQOPS_QUORUM_ROLE] = f"A {self.level} call"
        return asked


def _right(case: _Case, by: User, found: Sequence[User]) -> Right:
    if by.pk in case.bound:
        return Right(None, f"A {case.level} call needs a second pair of eyes, and {case.bound[by.pk]}.")
    if by.pk in case.used:
        return Right(None, "You have said yes already, or somebody has for you. Another person has to.")
    objections = [(_objection(case, holder), holder) for holder in found]
    holder = next((holder for objection, holder in objections if not objection), None)
    return Right(holder, "" if holder else objections[0][0])


def _objection(case: _Case, holder: User) -> str:
    """Return why this person's right does not count for the call; "" if it does."""
    if holder.pk in case.bound:
        return f"A {case.level} call needs a second pair of eyes, and binds {holder}, for whom you decide."
    if holder.pk in case.used:
        return f"The yes of {holder}, for whom you decide, is there already."
    missing = case.asked_roles.keys() - case.roles.get(holder.pk, set())
    return next((f"{case.asked_roles[role]} needs people of the role {role}." for role in sorted(missing)), "")


def _used(votes: Iterable[ApprovalVote]) -> set[int]:
    return {pk for vote in votes for pk in (vote.user_id, vote.holder_id)}


def _roles_of(people: Collection[User]) -> dict[int, set[str]]:
    """Return the roles of each person."""
    found: dict[int, set[str]] = defaultdict(set)
    rows = Group.objects.filter(user__in={person.pk for person in people})
    for name, pk in rows.values_list("name", "user"):
        found[pk].add(name)
    return found


def require_approver(by: User, now: datetime) -> None:
    """Raise unless this person decides on approvals at all."""
    if not is_approver(by, now):
        raise NotAllowed(_NO_APPROVER.format(by))


def require_right(approval: Approval, *, by: User, now: datetime, says_no: bool = False) -> User:
    """Return the person in whose right this one decides; raise NotAllowed with the reason if there is none.

    Whoever holds the permission may always say no. A delegate may say no where they could say yes.
    """
    if says_no and by.is_active and by.has_perm(DECIDE_PERMISSION):
        return by
    right = rights([approval], by=by, now=now)[approval.pk]
    if right.holder is None:
        raise NotAllowed(right.refusal)
    return right.holder


# --- Yeses ---


@dataclass(frozen=True)
class Tally:
    """The yeses to one call that count, and how many it needs."""

    yeses: tuple[ApprovalVote, ...]
    needed: int

    @property
    def is_enough(self) -> bool:
        return len(self.yeses) >= self.needed

    def __str__(self) -> str:
        """As in `1 of 2 said yes (ada, 10:12)`; empty where one yes is enough."""
        if self.needed == 1:
            return ""
        names = "; ".join(map(str, self.yeses))
        return f"{len(self.yeses)} of {self.needed} said yes" + (f" ({names})" if names else "")


def tallies(approvals: Sequence[Approval]) -> dict[int, Tally]:
    """Return the yeses to each call; while it is pending, of people who could still say them."""
    votes = _votes(approvals)
    pending = [row for row in approvals if row.status == ApprovalStatus.PENDING and votes[row.pk]]
    bound = _bound_by(pending)
    roles = _roles_of([vote.holder for row in pending for vote in votes[row.pk]])
    in_force = set(delegations_in_force(clock()).values_list("owner_id", "delegate_id")) if pending else set()
    found = {}
    for row in approvals:
        given = votes[row.pk]
        if row.status == ApprovalStatus.PENDING:
            case = _Case(row, bound.get(row.pk, {}), roles, used=set())
            given = [vote for vote in given if _counts(case, vote, in_force)]
        decided = row.status == ApprovalStatus.APPROVED
        found[row.pk] = Tally(tuple(given), (len(given) or 1) if decided else _needed(row))
    return found


def tally(approval: Approval) -> Tally:
    return tallies([approval])[approval.pk]


def _counts(case: _Case, vote: ApprovalVote, in_force: Collection[tuple[int, int]]) -> bool:
    is_for_another = vote.user_id != vote.holder_id
    is_entitled = vote.user.is_active and vote.holder.has_perm(DECIDE_PERMISSION)
    is_entitled = is_entitled and (not is_for_another or (vote.holder_id, vote.user_id) in in_force)
    return is_entitled and vote.user_id not in case.bound and not _objection(case, vote.holder)


def _votes(approvals: Sequence[Approval]) -> dict[int, list[ApprovalVote]]:
    """Return the yeses to each call as it is now."""
    found: dict[int, list[ApprovalVote]] = {row.pk: [] for row in approvals}
    digests = {row.pk: row.digest for row in approvals}
    for vote in ApprovalVote.objects.filter(approval__in=found).select_related("user", "holder").order_by("pk"):
        if vote.digest == digests[vote.approval_id]:
            found[vote.approval_id].append(vote)
    return found


def with_decisions(approvals: Sequence[Approval], *, by: User, now: datetime) -> None:
    """Put on each row its tally as `said`, and as `refusal` why this person may not say yes; "" if they may."""
    said, mine = tallies(approvals), rights(approvals, by=by, now=now)
    for row in approvals:
        is_pending = row.status == ApprovalStatus.PENDING
        row.said, row.refusal = said[row.pk], mine[row.pk].refusal if is_pending else ""  # type: ignore[attr-defined]


def open_to(by: User, now: datetime) -> list[Approval]:
    """Return the first pending approvals that this person may say yes to, oldest first, without their arguments."""
    pending = Approval.objects.filter(status=ApprovalStatus.PENDING, expires_at__gt=now).order_by("created_at", "pk")
    rows = list(pending.defer("arguments", "original_arguments", "simulation")[:MOST_OPEN])
    mine = rights(rows, by=by, now=now)
    return [row for row in rows if mine[row.pk].holder is not None]


def may_deny(approval: Approval, *, by: User, now: datetime) -> bool:
    try:
        require_right(approval, by=by, now=now, says_no=True)
    except NotAllowed:
        return False
    return True


def waits_text(approval: Approval) -> str:
    """Say that a yes was taken, and that others have to follow."""
    return f"Your yes is recorded: {tally(approval)}. The call still waits."
