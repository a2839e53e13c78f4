"""Every migration can be reversed, with rows in the tables. A new installation is what one that came step by step is.

(`make static` finds missing ones.)
"""

import re
import tomllib
from datetime import date, timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from agents import __version__
from agents.enums import Outcome, Status, TriggerKind, WaitingOn
from agents.knowledge.documents import document_add, document_detach
from agents.models import Budget, Cap, Collection, Installation, Memory, Precedent, ToolCall, Trigger
from agents.sessions.schema import release
from agents.text.wording import text_key
from audit import models as triggers
from audit import recorder, utc_now
from audit.models import AuditEvent
from tests import databases
from tests.agents.admin.rows import make_call
from tests.agents.knowledge.samples import make_collection, make_document
from tests.factories import make_session

from .source import ROOT

OURS = ("agents", "audit")
BEFORE_CAPS, CAPS = "0001_initial", "0002_trigger_cost_caps"


class StepByStep(MigrationLoader):
    """Knows no migration that stands for several ones."""

    def load_disk(self):
        super().load_disk()
        for key in [key for key, migration in self.disk_migrations.items() if migration.replaces]:
            del self.disk_migrations[key]


@pytest.fixture
def migrate(transactional_db):
    """Migrate the test database step by step, and restore it whatever happens."""

    def move(*target):
        call_command("migrate", *target, verbosity=0)

    with databases.quick_migrations(), patch("django.db.migrations.executor.MigrationLoader", StepByStep):
        yield move
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            move()


def tables():
    """Return our tables, each with its columns."""
    with connection.cursor() as cursor:
        return {
            name: {column.name for column in connection.introspection.get_table_description(cursor, name)}
            for name in connection.introspection.table_names(cursor)
            if name.startswith(tuple(f"{app}_" for app in OURS))
        }


SCHEMA = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%'",
    "postgresql": """
        WITH space AS (SELECT 'public'::regnamespace::oid AS id)
        SELECT 'column', attrelid::regclass || '.' || attname,
            concat_ws(' ', format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid))
        FROM space, pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relnamespace = space.id AND relkind IN ('r', 'p', 'v', 'm') AND attnum > 0 AND NOT attisdropped
        UNION ALL SELECT 'settings', relname, reloptions::text FROM space, pg_class WHERE relnamespace = space.id
        UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
        FROM space, pg_constraint WHERE connamespace = space.id
        UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid)
        FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL SELECT 'function', proname, pg_get_functiondef(oid)
        FROM space, pg_proc WHERE pronamespace = space.id AND prokind = 'f'
    """,
}


def schema():
    """Return all that the database is made of; on SQLite the order of columns may be another one."""
    with connection.cursor() as cursor:
        cursor.execute(SCHEMA[connection.vendor])
        return {(kind, name): sorted(re.findall(r"[^\s,()]+", sql or "")) for kind, name, sql in cursor.fetchall()}


def declared():
    models = [model for app in OURS for model in apps.get_app_config(app).get_models()]
    return {model._meta.db_table: {field.column for field in model._meta.local_concrete_fields} for model in models}


def apps_at(migration):
    return MigrationExecutor(connection).loader.project_state(("agents", migration)).apps


@pytest.mark.django_db
def test_every_migration_operation_is_reversible():
    migrations = MigrationExecutor(connection).loader.disk_migrations
    stuck = [
        f"{app}.{name}: {operation.describe()}"
        for (app, name), migration in migrations.items()
        if app in OURS
        for operation in migration.operations
        if not operation.reversible
    ]

    assert stuck == []


LAST_WITHOUT_A_VERSION = {"agents": "0028_short_list_of_new_words", "audit": "0007_indexes_without_calls"}


def test_every_migration_names_the_oldest_version_that_may_run_beside_it():
    """`oldest_beside` of its class: the version before, if that goes on beside it; else the one that brings it."""
    disk = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    new = {key: one for key, one in disk.items() if key[0] in OURS and key[1] > LAST_WITHOUT_A_VERSION[key[0]]}
    wrong = {
        f"{app}.{name}": oldest
        for (app, name), one in new.items()
        if not re.fullmatch(r"\d+\.\d+\.\d+", oldest := str(getattr(one, "oldest_beside", "none")))
        or release(oldest) > release(__version__)
    }

    assert len(new) >= 3
    assert wrong == {}


def test_version_of_the_package_is_that_of_its_code():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


BEFORE_KEYS = "0007_inputs_health_fairness"
SEEN = [utc_now() - timedelta(days=days) for days in (3, 2, 1)]


def make_precedents_and_a_memory():
    """As they were before texts that mean the same became equal."""
    old = apps_at(BEFORE_KEYS)
    owner = get_user_model().objects.create_user("owner of precedents")
    texts = [("Payment", "No cap."), ("payment", "no  cap"), ("payment", "No parking")]
    for at, (kind, summary) in zip(SEEN, texts, strict=True):
        old.get_model("agents", "Precedent").objects.create(
            owner_id=owner.pk, pattern_kind=kind, summary=summary, summary_hash=summary, observed_count=2,
            first_seen_at=at, last_seen_at=at,
        )  # fmt: skip
    old.get_model("agents", "Memory").objects.create(owner_id=owner.pk, content="Acme pays late.")


def precedents_are_merged_with_their_counts_summed():
    first, second, third = Precedent.objects.order_by("pk")
    assert (first.observed_count, first.first_seen_at, first.last_seen_at) == (4, SEEN[0], SEEN[1])
    assert (first.pattern_kind, first.summary_hash, first.dismissed_at) == ("payment", text_key("no cap"), None)
    assert (second.merged_into, second.ended_as, second.dismissed_at is None) == (first, "merged", False)
    assert (third.observed_count, third.dismissed_at, third.merged_into) == (2, None, None)
    assert Memory.objects.get().content_hash == text_key("acme pays late")


BEFORE_MONTHS, MONTHS = "0020_retention", "0021_budgets_of_months"


def days_stay_and_months_go(migrate):
    """Totals of days are kept both ways; what the version before does not know is dropped on the way back."""
    day = {"day": date(2026, 3, 1), "charged_usd": Decimal(2), "cap_usd": Decimal(5)}
    kept = Budget.objects.create(scope="installation", **day)
    Budget.objects.create(scope="installation", period="month", **day)
    Budget.objects.create(scope="owner", subject_id=1, **day)
    Cap.objects.create(scope="installation", period="month", cap_usd=5)
    migrate("agents", BEFORE_MONTHS)
    before = apps_at(BEFORE_MONTHS).get_model("agents", "Budget")
    old = before.objects.create(scope="agent", subject_id=1, **day)
    assert list(before.objects.order_by("pk").values_list("pk", "charged_usd")) == [(kept.pk, 2), (old.pk, 2)]
    migrate("agents", MONTHS)
    rows = Budget.objects.order_by("pk").values_list("pk", "period", "charged_usd", "cap_usd")
    assert list(rows) == [(kept.pk, "day", 2, 5), (old.pk, "day", 2, 5)]
    assert not Cap.objects.exists()


def test_last_migration_can_be_reversed_and_applied_again(migrate):
    built = schema()
    unknown, *_ = [make_call(outcome=outcome) for outcome in (Outcome.UNKNOWN, Outcome.SUCCESS, Outcome.STARTED)]
    *_, before, last = sorted(
        name for app, name in MigrationExecutor(connection).loader.disk_migrations if app == "agents"
    )
    migrate("agents", before)
    migrate("agents", last)
    assert schema() == built
    assert list(ToolCall.objects.unknown().values_list("pk", "unknown_since")) == [(unknown.pk, unknown.settled_at)]


def test_run_that_waits_for_started_runs_goes_on_in_the_version_before(migrate):
    run = make_session(Status.WAITING, waiting_on=WaitingOn.RUNS)
    migrate("agents", "0032_versions_beside_migrations")
    row = apps_at("0032_versions_beside_migrations").get_model("agents", "AgentSession").objects.get(pk=run.pk)
    assert (row.status, row.waiting_on, row.next_wake_at) == ("queued", "", None)
    assert row.enqueued_at


def test_same_bytes_under_two_names_keep_that_migration_from_being_taken_back(migrate):
    owner = get_user_model().objects.create_user("owner of twins")
    for name in ("a.txt", "b.txt"):
        inbox = make_collection(owner, f"for {name}")
        document_add(owner=owner, name=name, data=b"The same words.", collection=inbox, by=owner, now=utc_now())
    with pytest.raises(RuntimeError, match=r"have the same content.* a\.txt and b\.txt\.|b\.txt and a\.txt\."):
        migrate("agents", "0036_secret_bindings")


def pending_list():
    """How PostgreSQL keeps new words before they are in the index; None on SQLite."""
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'agents_chunk_words'")
        return cursor.fetchone()[0]


def test_upgrade_counts_documents_and_shortens_the_list_of_new_words(migrate):
    owner = get_user_model().objects.create_user("owner of collections")
    full, rest = make_collection(owner, "full"), make_collection(owner, "rest")
    for number in range(3):
        make_document(owner, f"document {number}", collection=full)
    gone = make_document(owner, "document 3", collection=rest)
    document_detach(document=gone, collection=rest, by=owner, now=utc_now())
    short = pending_list()

    migrate("agents", "0026_asked_digest")
    if short:
        with connection.cursor() as cursor:
            cursor.execute("ALTER INDEX agents_chunk_words RESET (gin_pending_list_limit)")
        assert pending_list() is None
    migrate()

    assert dict(Collection.objects.values_list("name", "documents")) == {"full": 3, "rest": 0}
    assert pending_list() == short


@pytest.mark.long
def test_migrations_can_be_reversed_to_zero_and_applied_again_with_rows(migrate):
    """One way down and up for all of them: each takes many seconds. The database was made by one migration for all."""
    built, made = tables(), schema()
    owner = get_user_model().objects.create_user("owner")
    row = Trigger.objects.create(owner=owner, kind=TriggerKind.MANUAL, name="n", max_cost_usd=Decimal("0.25"))

    days_stay_and_months_go(migrate)
    migrate("agents", BEFORE_CAPS)
    before = apps_at(BEFORE_CAPS).get_model("agents", "Trigger")
    kept = before.objects.get()
    fields = {field.name for field in before._meta.get_fields()}
    migrate("agents", CAPS)
    after = apps_at(CAPS).get_model("agents", "Trigger").objects.get()
    for app in OURS:
        migrate(app, "zero")
    left = tables()
    migrate("agents", BEFORE_KEYS)
    make_precedents_and_a_memory()
    migrate()

    assert (kept.pk, kept.name) == (row.pk, "n")
    assert "max_cost_usd" not in fields
    assert (after.pk, after.max_cost_usd, after.max_cost_per_day_usd) == (row.pk, None, None)
    assert left == {}
    assert schema() == made
    assert built.keys() == declared().keys()
    assert all(columns <= built[name] for name, columns in declared().items())  # PostgreSQL has one for searching
    assert Installation.objects.filter(pk=1).exists()
    precedents_are_merged_with_their_counts_summed()


def test_audit_log_is_append_only_after_its_migration_is_repeated(migrate):
    migrate("audit", "zero")
    migrate("audit")
    recorder.append("system", "organisation.released", now=utc_now(), details={"halt_id": 1})

    with pytest.raises(DatabaseError, match=triggers.MESSAGE):
        AuditEvent.objects.update(kind="changed")
