"""Settings come from the environment alone. Each test reads them in an environment of its own."""

import ast
import importlib.util
import re
import sys
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core import management
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import DataError, IntegrityError
from django.test import override_settings

from lqops import cli
from lqops.env import Env

from .processes import ROOT, environment, read_settings, run

VARIABLE = re.compile(r"LQOPS_[A-Z_]*[A-Z]")


def test_defaults_are_safe(tmp_path):
    found = read_settings(tmp_path)

    assert found["DEBUG"] is False
    assert found["ALLOWED_HOSTS"] == ["127.0.0.1", "localhost", "[::1]"]
    assert found["DATABASES"]["default"]["NAME"] == str(tmp_path / "lqops.sqlite3")
    assert found["USE_TZ"] is True
    assert found["TIME_ZONE"] == "UTC"
    assert len(found["SECRET_KEY"]) >= 50
    assert found["SECRET_KEY"] != found["LQOPS_AUDIT_KEY"]


def test_second_start_uses_the_secrets_of_the_first(tmp_path):
    assert read_settings(tmp_path)["SECRET_KEY"] == read_settings(tmp_path)["SECRET_KEY"]


def test_links_lead_to_the_running_installation_unless_the_address_is_set(tmp_path):
    assert read_settings(tmp_path)["LQOPS_BASE_URL"] == "http://127.0.0.1:8000"
    (tmp_path / "address").write_text("http://127.0.0.1:8123")
    assert read_settings(tmp_path)["LQOPS_BASE_URL"] == "http://127.0.0.1:8123"
    assert read_settings(tmp_path, LQOPS_BASE_URL="https://a.example/")["LQOPS_BASE_URL"] == "https://a.example"


def test_sqlite_is_durable_and_locks_at_begin(tmp_path):
    options = read_settings(tmp_path)["DATABASES"]["default"]["OPTIONS"]

    assert options["transaction_mode"] == "IMMEDIATE"
    assert "synchronous=FULL" in options["init_command"]
    assert "journal_mode=WAL" in options["init_command"]


def test_postgresql_address_selects_postgresql(tmp_path):
    pytest.importorskip("psycopg")
    database = read_settings(tmp_path, LQOPS_DATABASE_URL="postgresql://u@db:5432/name")["DATABASES"]["default"]

    assert database["ENGINE"] == "django.db.backends.postgresql"
    assert (database["HOST"], database["PORT"], database["NAME"]) == ("db", 5432, "name")
    assert database["OPTIONS"] == {
        "options": "-c idle_in_transaction_session_timeout=20s -c plan_cache_mode=force_generic_plan "
        "-c max_parallel_workers_per_gather=0 -c jit=off -c random_page_cost=1.1",
        "connect_timeout": 5,
        "tcp_user_timeout": 30_000,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
    }


def test_address_of_postgresql_may_name_limits_of_its_own(tmp_path):
    pytest.importorskip("psycopg")
    address = "postgresql://u@db:5432/name?tcp_user_timeout=60000&connect_timeout=9"
    options = read_settings(tmp_path, LQOPS_DATABASE_URL=address)["DATABASES"]["default"]["OPTIONS"]

    assert (str(options["tcp_user_timeout"]), str(options["connect_timeout"])) == ("60000", "9")


def test_wrong_setting_is_one_line_without_a_traceback(tmp_path):
    done = run("check", env=environment(tmp_path, LQOPS_DEBUG="perhaps"))

    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "LQOPS_DEBUG" in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LQOPS_DATABASE_URL", "mysql://db/name"),
        ("LQOPS_DEBUG", "perhaps"),
        ("LQOPS_DEFAULT_SESSION_CAP_USD", "-1"),
        ("LQOPS_LEASE_SECONDS", "0"),
        ("LQOPS_HEARTBEAT_SECONDS", "15"),
        ("LQOPS_FOUR_EYES_FROM", "HIGH"),
        ("LQOPS_QUORUM", "0"),
        ("LQOPS_ESCALATE_MINUTES", "30"),  # without a role
        ("LQOPS_ESCALATE_TO", "board"),  # without a time
        ("LQOPS_SQLITE_SYNCHRONOUS", "FUL"),
        ("LQOPS_NET_ALLOW_NETWORKS", "10.0.0.0/99"),
        ("LQOPS_SECRET_KEY", "short"),
        ("LQOPS_METRICS_TOKEN", "short"),
        ("LQOPS_MODEL_NAME", "local"),
        ("LQOPS_MAX_RECOVERIES", "many"),
        ("LQOPS_SECRET_KEY_FILE", "absent"),
        ("LQOPS_SMTP_TLS", "perhaps"),
        ("LQOPS_SMTP_PORT", "0"),
        ("LQOPS_SMTP_PASSWORD_FILE", "absent"),
        ("LQOPS_BASE_URL", "ops.example.org"),
        ("LQOPS_LOOP", '{"max_steps": "x"}'),
        ("LQOPS_GUARDRAILS", '{"reserve_tokens": -1}'),
    ],
)
def test_wrong_value_is_refused_with_the_name_of_its_variable(tmp_path, name, value):
    with pytest.raises(ImproperlyConfigured) as refused:
        read_settings(tmp_path, **{name: value})

    [line] = str(refused.value).splitlines()
    assert name in line


def test_checkpoints_without_their_key_are_refused(tmp_path):
    file = tmp_path / "audit" / "checkpoints.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")

    with pytest.raises(ImproperlyConfigured, match="LQOPS_AUDIT_KEY"):
        read_settings(tmp_path)


def test_unusable_database_is_one_line(tmp_path):
    (tmp_path / "lqops.sqlite3").write_bytes(b"not a database" * 100)
    done = run("migrate", "--skip-checks", env=environment(tmp_path))

    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: the database cannot be used")


@pytest.mark.parametrize(
    "error", [IntegrityError("UNIQUE constraint failed: agents_x.name\nDETAIL"), DataError("too long")]
)
def test_row_that_the_database_refuses_is_not_called_an_unusable_database(monkeypatch, error):
    def refuse(arguments):
        raise error

    monkeypatch.setattr(management, "execute_from_command_line", refuse)
    monkeypatch.setattr(sys, "argv", ["lqops", "opt_in", "admin"])
    monkeypatch.setattr(Env, "uses_data", Env.uses_data)
    monkeypatch.setattr(cli, "private_process", lambda: None)
    monkeypatch.setattr(cli, "gc", SimpleNamespace(set_threshold=lambda _: None, freeze=lambda: None))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    first = str(error).partition("\n")[0]
    assert ended.value.code == f"Error: the database refused a row, so the command was stopped: {first}. Run it again."


def test_mail_password_is_never_sent_without_tls(tmp_path):
    with pytest.raises(ImproperlyConfigured, match="LQOPS_SMTP_TLS=NONE") as refused:
        read_settings(tmp_path, LQOPS_SMTP_PASSWORD="a password", LQOPS_SMTP_TLS="none")

    assert "a password" not in str(refused.value)


def test_mail_is_off_without_a_server(tmp_path):
    off, on = read_settings(tmp_path), read_settings(tmp_path, LQOPS_SMTP_HOST="mail", LQOPS_SMTP_PASSWORD="a password")

    assert (off["EMAIL_HOST"], off["EMAIL_BACKEND"]) == ("", "django.core.mail.backends.dummy.EmailBackend")
    assert (on["EMAIL_HOST"], on["EMAIL_PORT"], on["EMAIL_USE_TLS"], on["EMAIL_USE_SSL"]) == ("mail", 587, True, False)
    assert on["EMAIL_BACKEND"] == "agents.net.mail.EmailBackend"
    assert on["EMAIL_TIMEOUT"] > 0
    assert "a password" in on["LQOPS_KNOWN_SECRETS"]


def test_secrets_of_skills_are_masked_whole_and_in_parts(tmp_path):
    found = read_settings(tmp_path, LQOPS_SECRET_SHOP="Bearer abcdefgh12345", LQOPS_SECRET_KEY="k" * 50)

    assert found["LQOPS_SECRETS"] == {"shop": "Bearer abcdefgh12345"}
    assert {"Bearer abcdefgh12345", "abcdefgh12345"} <= set(found["LQOPS_KNOWN_SECRETS"])
    assert "Bearer" not in found["LQOPS_KNOWN_SECRETS"]


def test_https_turns_on_everything_that_needs_it(tmp_path):
    found = read_settings(tmp_path, LQOPS_HTTPS="1")

    assert found["SESSION_COOKIE_SECURE"] is found["CSRF_COOKIE_SECURE"] is found["SECURE_SSL_REDIRECT"] is True
    assert found["SECURE_HSTS_SECONDS"] >= 31_536_000


def test_deployment_check_is_clean_behind_tls(tmp_path):
    found = read_settings(tmp_path, LQOPS_HTTPS="1")
    checked = {name: value for name, value in found.items() if name.startswith(("CSRF_", "SECURE_", "SESSION_"))}
    said = StringIO()

    with override_settings(**checked, SECRET_KEY=found["SECRET_KEY"], ALLOWED_HOSTS=found["ALLOWED_HOSTS"]):
        call_command("check", deploy=True, fail_level="WARNING", stdout=said)

    assert "no issues" in said.getvalue()


# --- docs/deployment.md lists every variable, and no other ---


def variables_read() -> set[str]:
    """Return every `LQOPS_…` that lqops/ reads; a key or a password can also come from a file."""
    found = {
        node.value
        for path in (ROOT / "lqops").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value)
    }
    return found | {
        f"{name}_FILE" for name in found if name.endswith(("_KEY", "_PASSWORD", "_CLIENT_SECRET", "_TOKEN"))
    }


def variables_listed() -> list[str]:
    return re.findall(r"^\| `(LQOPS_\w+)` \|", (ROOT / "docs/deployment.md").read_text(), re.MULTILINE)


def test_deployment_page_lists_each_variable_once():
    assert len(variables_read()) > 10
    assert sorted(variables_listed()) == sorted(variables_read())


def test_spans_without_their_package_are_refused_with_the_extra_to_install(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "opentelemetry" else real(name))

    with pytest.raises(ImproperlyConfigured, match=r"\.\[otel\]"):
        read_settings(tmp_path, LQOPS_OTEL="1")


def test_second_eyes_are_as_the_environment_says(tmp_path):
    found = read_settings(tmp_path)
    assert (found["LQOPS_FOUR_EYES_FROM"], found["LQOPS_QUORUM"], found["LQOPS_QUORUM_ROLE"]) == ("PRIVILEGED", 1, "")
    assert (found["LQOPS_ESCALATE_TO"], found["LQOPS_ESCALATE_AFTER"]) == ("", timedelta(0))
    escalated = {"LQOPS_ESCALATE_TO": "board", "LQOPS_ESCALATE_MINUTES": "30"}
    found = read_settings(tmp_path, LQOPS_FOUR_EYES_FROM="restricted", LQOPS_QUORUM="2", **escalated)
    assert (found["LQOPS_FOUR_EYES_FROM"], found["LQOPS_QUORUM"]) == ("RESTRICTED", 2)
    assert found["LQOPS_ESCALATE_AFTER"] == timedelta(minutes=30)
    with pytest.raises(ImproperlyConfigured, match="LQOPS_ESCALATE_MINUTES=30 must be less than"):
        read_settings(tmp_path, LQOPS_APPROVAL_SECONDS="1800", **escalated)
