"""The environment is read strictly: what is wrong is refused with the variable's name, and secrets stay secret."""

import stat
import subprocess
import sys
from decimal import Decimal

import pytest
from django.core.exceptions import ImproperlyConfigured

from lqops.env import Env, kept_secret, masked_forms, parse_database_url

from .processes import ROOT

LONG = "a secret of more than thirty-two characters"


@pytest.fixture(autouse=True)
def _driver_is_there(monkeypatch):
    """Addresses are read the same whether or not PostgreSQL's driver is installed where the tests run."""
    monkeypatch.setattr("lqops.env.importlib.util.find_spec", lambda name: name)


def refused(call, *words):
    with pytest.raises(ImproperlyConfigured) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


# --- Plain values ---


def test_counts_are_whole_numbers_for_known_names():
    assert Env({"A": "x=1, Y = 20"}).counts("A", ("X", "Y")) == {"X": 1, "Y": 20}
    assert Env({}).counts("A", ("X",)) == {}


@pytest.mark.parametrize("raw", ["x", "z=1", "x=", "x=-1", "x=1.5", "x=12345678", "=3", "x=²"])
def test_other_counts_are_refused(raw):
    refused(lambda: Env({"A": raw}).counts("A", ("X", "Y")), "A", "X=30")


def test_text_is_given_as_it_is_or_by_default():
    assert Env({"A": " x "}).text("A") == " x "
    assert Env({}).text("A", "y") == "y"


@pytest.mark.parametrize(
    ("raw", "value"),
    [("1", True), (" Yes ", True), ("on", True), ("TRUE", True), ("0", False), ("off", False), ("", False)],
)
def test_flag_reads_yes_and_no(raw, value):
    assert Env({"A": raw}).flag("A", default=not value) is value


@pytest.mark.parametrize("default", [True, False])
def test_flag_that_is_not_set_has_its_default(default):
    assert Env({}).flag("A", default=default) is default


def test_flag_that_is_neither_yes_nor_no_is_refused():
    refused(lambda: Env({"LQOPS_X": "maybe"}).flag("LQOPS_X", default=False), "LQOPS_X", "'maybe'", "1 or 0")


def test_whole_number_is_read_or_defaults():
    assert Env({"A": "7"}).whole("A", 3) == 7
    assert Env({}).whole("A", 3) == 3


@pytest.mark.parametrize(
    ("raw", "word"), [("seven", "whole number"), ("1.5", "whole number"), ("", "whole"), ("-1", "0")]
)
def test_what_is_no_whole_number_is_refused(raw, word):
    refused(lambda: Env({"LQOPS_X": raw}).whole("LQOPS_X", 3), "LQOPS_X", repr(raw), word)


def test_whole_number_below_the_least_is_refused():
    refused(lambda: Env({"LQOPS_X": "1"}).whole("LQOPS_X", 3, least=2), "LQOPS_X", "the least is 2")


def test_seconds_are_read_or_default():
    assert Env({"A": "0.5"}).seconds("A", 3) == 0.5
    assert Env({}).seconds("A", 3) == 3


@pytest.mark.parametrize("raw", ["0", "-1", "nan", "inf", "soon", ""])
def test_what_is_no_time_span_is_refused(raw):
    refused(lambda: Env({"LQOPS_X": raw}).seconds("LQOPS_X", 3), "LQOPS_X", repr(raw), "above 0")


@pytest.mark.parametrize("raw", ["0", "5", "0.000001", "20.00"])
def test_amount_is_read_exactly(raw):
    assert Env({"A": raw}).usd("A", "1") == Decimal(raw)


def test_amount_that_is_not_set_has_its_default():
    assert Env({}).usd("A", "5.00") == Decimal("5.00")


@pytest.mark.parametrize("raw", ["-1", "NaN", "Infinity", "0.0000001", "five", ""])
def test_what_is_no_amount_is_refused(raw):
    refused(lambda: Env({"LQOPS_X": raw}).usd("LQOPS_X", "1"), "LQOPS_X", repr(raw), "US dollars")


def test_list_is_split_at_commas_without_blanks():
    assert Env({"A": " a, b,,c "}).listed("A") == ["a", "b", "c"]
    assert Env({}).listed("A", "x,y") == ["x", "y"]
    assert Env({}).listed("A") == []


# --- Secrets ---


def test_secret_given_in_the_variable_is_used_and_nothing_is_kept(tmp_path):
    assert Env({"LQOPS_KEY": LONG}).secret("LQOPS_KEY", kept_in=tmp_path) == LONG
    assert list(tmp_path.iterdir()) == []


def test_secret_is_read_from_the_file_that_the_variable_names(tmp_path):
    (tmp_path / "mounted").write_text(f"{LONG}\n")

    assert Env({"LQOPS_KEY_FILE": str(tmp_path / "mounted")}).secret("LQOPS_KEY", kept_in=tmp_path) == LONG


@pytest.mark.parametrize("place", ["variable", "file", "var"])
def test_secret_that_is_too_short_is_refused_wherever_it_stands(place, tmp_path):
    (tmp_path / "key").write_text("short")
    values = {"variable": {"LQOPS_KEY": "short"}, "file": {"LQOPS_KEY_FILE": str(tmp_path / "key")}, "var": {}}
    env = Env(values[place])

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "5 characters", "32 or more")


def test_var_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    refused(lambda: Env({}).secret("LQOPS_KEY", kept_in=tmp_path / "file" / "var"), "LQOPS_VAR_DIR", "cannot be used")


def test_secret_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "key").write_bytes(b"\xff\xfe" * 40)
    env = Env({"LQOPS_KEY_FILE": str(tmp_path / "key")})

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "LQOPS_KEY_FILE", "is not text")


def test_word_that_is_not_one_of_the_choices_is_refused():
    assert Env({"X": "normal"}).one_of("X", "FULL", ("FULL", "NORMAL")) == "NORMAL"
    refused(lambda: Env({"X": "FUL"}).one_of("X", "FULL", ("FULL", "NORMAL")), "X='FUL'", "FULL, NORMAL")


def test_networks_are_checked():
    assert Env({"X": "10.0.0.0/8, fd00::/8"}).networks("X") == ["10.0.0.0/8", "fd00::/8"]
    refused(lambda: Env({"X": "10.0.0.0/99"}).networks("X"), "X:", "10.0.0.0/99")


def test_a_secret_that_is_there_is_known_without_making_one(tmp_path):
    assert not Env({}).has_secret("LQOPS_KEY", kept_in=tmp_path)
    assert Env({"LQOPS_KEY": LONG}).has_secret("LQOPS_KEY", kept_in=tmp_path)
    (tmp_path / "key").write_text(LONG)
    assert Env({}).has_secret("LQOPS_KEY", kept_in=tmp_path)


def test_port_that_is_no_port_is_refused():
    refused(lambda: parse_database_url("X", "postgresql://h:notaport/x"), "X names a port")


def test_postgresql_without_its_driver_says_what_to_install(monkeypatch):
    monkeypatch.setattr("lqops.env.importlib.util.find_spec", lambda name: None)
    refused(lambda: parse_database_url("X", "postgresql://h/x"), ".venv/bin/pip install -e '.[postgres]'")


def test_named_secrets_are_those_that_begin_alike_but_for_our_own_key(tmp_path):
    (tmp_path / "crm").write_text("from a file\n")
    env = Env(
        {
            "LQOPS_SECRET_KEY": "k" * 50,
            "LQOPS_SECRET_KEY_FILE": "/no/such/file",
            "LQOPS_SECRET_": "nameless",
            "LQOPS_SECRET_GITHUB": "Bearer abcdefgh12345",
            "LQOPS_SECRET_CRM_FILE": str(tmp_path / "crm"),
            "LQOPS_SECRET_UNSET": "",
        }
    )
    found = env.named_secrets("LQOPS_SECRET_", but=("KEY",))
    assert found == {"github": "Bearer abcdefgh12345", "crm": "from a file"}
    assert masked_forms(found["github"]) == ["Bearer abcdefgh12345", "abcdefgh12345"]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [("S_SHORT", "1234567", "holds 7 characters; less than 8"), ("S_lower", "12345678", "capitals")],
)
def test_named_secret_that_could_not_be_masked_or_named_is_refused_without_its_value(variable, value, words):
    with pytest.raises(ImproperlyConfigured, match=words) as refused:
        Env({variable: value}).named_secrets("S_")
    assert value not in str(refused.value)


def test_secret_file_that_cannot_be_read_is_refused(tmp_path):
    env = Env({"LQOPS_KEY_FILE": str(tmp_path / "absent")})

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "LQOPS_KEY_FILE", "absent", "cannot be read")


def test_empty_secret_file_is_refused_and_not_replaced(tmp_path):
    (tmp_path / "empty").write_text(" \n")
    env = Env({"LQOPS_KEY_FILE": str(tmp_path / "empty")})

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "LQOPS_KEY_FILE", "is empty")


def test_secret_that_nobody_set_is_made_once_and_kept(tmp_path):
    first = Env({}).secret("LQOPS_KEY", kept_in=tmp_path / "var")
    second = Env({"LQOPS_KEY": ""}).secret("LQOPS_KEY", kept_in=tmp_path / "var")

    assert first == second == (tmp_path / "var/key").read_text()
    assert len(first) >= 50


def test_kept_secret_is_readable_by_its_owner_alone(tmp_path):
    kept_secret(tmp_path / "key")

    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_two_installations_have_different_secrets(tmp_path):
    assert kept_secret(tmp_path / "one") != kept_secret(tmp_path / "two")


def test_processes_that_start_together_agree_on_one_value(tmp_path):
    code = (
        "import sys; from pathlib import Path; from lqops.env import kept_secret\n"
        "print('ready', flush=True); sys.stdin.readline(); print(kept_secret(Path(sys.argv[1])))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "var/key")],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 4
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()

    values = {process.communicate(timeout=60)[0] for process in started}

    assert values == {(tmp_path / "var/key").read_text() + "\n"}
    assert [path.name for path in (tmp_path / "var").iterdir()] == ["key"], "no draft is left behind"


def test_whoever_comes_second_takes_the_value_of_the_first(tmp_path, monkeypatch):
    """The race in slow motion: the other process links its value after this one has seen that there is none."""

    def link_after_somebody_else(draft, path):
        path.write_text("theirs")
        raise FileExistsError

    monkeypatch.setattr("os.link", link_after_somebody_else)

    assert kept_secret(tmp_path / "key") == "theirs"


# --- Database addresses ---


def test_sqlite_address_names_a_file():
    assert parse_database_url("X", "sqlite:///var/a.db")["NAME"] == "var/a.db"
    assert parse_database_url("X", "sqlite:////tmp/a%20b.db")["NAME"] == "/tmp/a b.db"
    assert parse_database_url("X", "sqlite:///a.db")["ENGINE"] == "django.db.backends.sqlite3"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/a.db"])
def test_sqlite_address_without_a_file_is_refused(url):
    refused(lambda: parse_database_url("LQOPS_X", url), "LQOPS_X", "names no file")


def test_postgresql_address_is_taken_apart():
    assert parse_database_url("X", "postgresql://us%40r:p%2Fw@db:5433/name?sslmode=require") == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "name",
        "USER": "us@r",
        "PASSWORD": "p/w",
        "HOST": "db",
        "PORT": "5433",
        "OPTIONS": {"sslmode": "require"},
    }


def test_postgresql_address_may_be_short():
    found = parse_database_url("X", "postgres:///name")

    assert (found["NAME"], found["USER"], found["HOST"], found["PORT"]) == ("name", "", "", "")


def test_postgresql_address_without_a_database_is_refused_without_its_password():
    with pytest.raises(ImproperlyConfigured, match="LQOPS_X names no database") as caught:
        parse_database_url("LQOPS_X", "postgresql://user:hunter2@db/")

    assert "hunter2" not in str(caught.value)


def test_other_databases_are_refused_without_their_password():
    with pytest.raises(ImproperlyConfigured, match="LQOPS_X starts with 'mysql'") as caught:
        parse_database_url("LQOPS_X", "mysql://user:hunter2@db/name")

    assert "hunter2" not in str(caught.value)


def test_database_variable_that_is_empty_has_its_default():
    assert Env({"A": ""}).database("A", default="sqlite:///d.db")["NAME"] == "d.db"
    assert Env({"A": "sqlite:///e.db"}).database("A", default="sqlite:///d.db")["NAME"] == "e.db"
