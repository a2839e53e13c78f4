"""The checks of `doctor`: the brakes, and the other conditions of a safe installation."""

from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from agents import __version__
from agents.conf import clock, isolation_is_strict, runs_kept
from agents.database_clock import shared
from agents.definitions.catalogue import embedding_model
from agents.guard.selftest import Check, run_checks
from agents.knowledge.vectors import has_numpy
from agents.ledger.pooler import pooler_fault
from agents.models import Installation, ModelOutage, SuspendedModel
from agents.people.second_factor import deciders_without_factor, unknown_names
from agents.retention.runs import archivable
from agents.retention.sizes import database_bytes, shown, table_bytes
from agents.sensors.validation import secrets_unbound
from agents.sessions.approval_rules import roles_without_approvers
from agents.sessions.faults import failing_models, host_faults, host_here, hosts_live
from agents.sessions.schema import missing_migrations, newer_migrations
from agents.sessions.second_eyes import approvers, approvers_of
from agents.skills.handles import secrets_listed
from agents.skills.isolation import SkillFailed
from agents.skills.isolation_report import isolation_report
from agents.skills.registry import skills_left_out
from audit import models
from audit.keys import public_key

SQLITE_NORMAL = 1
TABLES_SHOWN = 3


def diagnose() -> list[Check]:
    migrated = _migrations()
    if not migrated.ok:
        return [migrated]
    has_row = Installation.objects.filter(pk=1).exists()
    suspended = sorted(SuspendedModel.objects.values_list("model", flat=True))
    too_dear = f"suspended because they cost more than their bound: {', '.join(suspended)}"
    away = sorted(ModelOutage.objects.values_list("model", flat=True))
    now = shared(clock())
    here = host_here(now)
    others = [host for host in hosts_live(now) if host.name != here.name]
    of_hosts = " ".join(text for _, text in host_faults([here, *others]))
    failing = failing_models(now)
    left_out = skills_left_out()
    return [
        migrated,
        *run_checks(),
        _append_only(),
        _durable(),
        *_pooler(),
        Check.of("the installation's row exists", ok=has_row, fault="every call is refused; run `manage.py migrate`"),
        Check.of("no model is suspended", ok=not suspended, fault=too_dear),
        Check.of("every model answers", ok=not away, fault=f"not answering: {', '.join(away)}"),
        Check.of(
            "no model fails every request",
            ok=not failing.all_requests,
            fault=f"failing: {', '.join(failing.all_requests)}",
        ),
        Check.of(
            "no model's key is refused",
            ok=not failing.key_refused,
            fault=f"set other keys: {', '.join(failing.key_refused)}",
        ),
        Check.of("hosts have free disk, a checkpoint file and the same keys", ok=not of_hosts, fault=of_hosts),
        Check.of(f"checkpoints are signed with the key {public_key()}", ok=not here.checkpoint_fault, fault=of_hosts),
        Check.of(
            "search by meaning has what it needs",
            ok=has_numpy() or not embedding_model(),
            fault="a model has the role embeddings, but numpy is missing: install the extra `semantic`",
        ),
        _retention(now),
        *_second_eyes(),
        _second_factors(),
        _secrets_bound(),
        Check.of("every callable skill is loaded", ok=not left_out, fault=" ".join(left_out)),
        *_isolation(),
    ]


def _retention(now: datetime) -> Check:
    """How much the database takes, and what pruning would archive. Nothing here is a fault."""
    kept = runs_kept()
    tables = table_bytes() if connection.vendor == "postgresql" else {}  # SQLite would read the whole file
    largest = ", ".join(f"{name} {shown(size)}" for name, size in list(tables.items())[:TABLES_SHOWN])
    found = f"{shown(database_bytes())}{f' (largest: {largest})' if largest else ''}; runs are kept "
    if kept is None:
        found += "for good: `manage.py prune --older-than 90d --dry-run` says what could be archived"
    else:
        found += f"{kept.days} days; `manage.py prune` would archive {archivable(now - kept).count()} runs"
    return Check("size of the database", ok=True, found=found)


def _second_factors() -> Check:
    unknown = unknown_names()
    fault = f"LQOPS_SECOND_FACTOR_FOR names what does not exist: {', '.join(unknown)}"
    return Check.of("the second factor is demanded of roles that exist", ok=not unknown, fault=fault)


def _secrets_bound() -> Check:
    sent = secrets_unbound()
    fault = (
        f"not sent: {'; '.join(sent)}. Name the hosts under Secrets in the admin, with `manage.py secrets bind`, or in "
        "LQOPS_SECRET_<NAME>_HOSTS"
    )
    return Check.of("secrets that sensors send are bound to their hosts", ok=not sent, fault=fault)


def warnings() -> list[str]:
    """Return what is worth changing, although nothing fails."""
    return [*_unguarded_deciders(), *_rules_for_nobody(), *_secrets_without_hosts()]


def _secrets_without_hosts() -> list[str]:
    names = [listed.name for listed in secrets_listed() if not listed.hosts]
    if not names:
        return []
    without = f"No host is named for {', '.join(names)}, so these secrets are sent nowhere."
    return [f"{without} Name the hosts with `manage.py secrets bind`, or remove the secrets."]


def _rules_for_nobody() -> list[str]:
    roles = roles_without_approvers()
    return [
        f"An approval rule asks people of the role {role}, of whom nobody may decide: its calls wait in vain. "
        "Give somebody the role and the right to decide, or change the rule."
        for role in roles
    ]


def _unguarded_deciders() -> list[str]:
    without = deciders_without_factor()
    if not without:
        return []
    demanded = "" if settings.LQOPS_SECOND_FACTOR_FOR else " and set LQOPS_SECOND_FACTOR_FOR (docs/deployment.md)"
    who = f"People who may decide, loosen or halt everything have no second factor: {', '.join(without)}."
    return [f"{who} Let them set one up{demanded}."]


def _migrations() -> Check:
    missing, newer = missing_migrations(), newer_migrations()
    fault = f"run `manage.py migrate`; missing: {', '.join(missing)}"
    if newer:
        fault = f"a newer version has migrated it, and does not allow {__version__}: {', '.join(newer)}"
    return Check.of("the database is migrated", ok=not missing and not newer, fault=fault)


def _isolation() -> list[Check]:
    """The protections of isolated skills, tried in a real process. One that is off is a fault only under STRICT."""
    name = "isolated skills, {}"
    try:
        report = isolation_report()
    except SkillFailed as error:
        return [Check(name.format("start"), ok=False, found=str(error))]
    strict = isolation_is_strict()
    return [
        Check(name.format(what), ok=not off or not strict, found=f"off: {off}" if off else "on", note=bool(off))
        for what, off in report.items()
    ]


def _append_only() -> Check:
    missing = models.missing(connection)
    fault = f"missing triggers: {', '.join(missing)}; run `manage.py migrate`"
    return Check.of("the audit log is append-only", ok=not missing, fault=fault)


def _durable() -> Check:
    """A commit must be on disk: the guard records each call before it is made."""
    name = "a commit survives a crash"
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA synchronous")
            is_durable = cursor.fetchall()[0][0] >= SQLITE_NORMAL
            return Check.of(name, ok=is_durable, fault="synchronous is off: a crash may lose rows or corrupt the file")
        cursor.execute("SHOW synchronous_commit")
        value = cursor.fetchall()[0][0]
    return Check.of(name, ok=value != "off", fault="synchronous_commit is off: a crash of the server may lose rows")


def _pooler() -> list[Check]:
    """Calls run prepared statements, which a pooler before PostgreSQL may lose."""
    if connection.vendor != "postgresql":
        return []
    fault = pooler_fault()
    return [Check.of("prepared statements last in the connections to the database", ok=not fault, fault=fault)]


def _second_eyes() -> list[Check]:
    """Who has to look at calls, as set, and whether there are enough people to."""
    level, needed, role = settings.LQOPS_FOUR_EYES_FROM, settings.LQOPS_QUORUM, settings.LQOPS_QUORUM_ROLE
    people = approvers_of(role) if role else approvers()
    of_role = f" of the role {role}" if role else ""
    eyes = f"four eyes are {'on' if settings.LQOPS_FOUR_EYES else 'off'}"
    found = people.count()
    enough = Check.of(
        f"{eyes}; calls from {level} need {needed} yes{'es' if needed > 1 else ''}{of_role}",
        ok=found >= needed or (needed == 1 and not role),
        fault=f"{found} people may say yes: give more people the right to decide, or lower LQOPS_QUORUM",
    )
    told = settings.LQOPS_ESCALATE_TO
    if not told:
        return [enough]
    members = User.objects.filter(is_active=True, groups__name=told).exists()
    minutes = settings.LQOPS_ESCALATE_AFTER.total_seconds() / 60
    fault = f"nobody is in the role {told}: add people to it, or correct LQOPS_ESCALATE_TO"
    return [
        enough,
        Check.of(f"approvals that wait {minutes:g} minutes are escalated to {told}", ok=members, fault=fault),
    ]
