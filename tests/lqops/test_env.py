"""Reading the environment: wrong values are refused by the name of their variable, and secrets stay secret."""

import stat
import subprocess
import sys
from decimal import Decimal

import pytest
from django.core.exceptions import ImproperlyConfigured

from lqops.env import Env, make_secret, masked_forms, parse_database_url
from tests.agents.net.authority import Authority

from .processes import ROOT

LONG = "a secret of more than thirty-two characters"


@pytest.fixture(autouse=True)
def _driver_is_there(monkeypatch):
    """Make the tests independent of whether PostgreSQL's driver is installed."""
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


@pytest.mark.parametrize("raw", ["x", "z=1", "x=", "x=-1", "x=1.5", "=3", "x=²"])
def test_count_that_is_not_a_number_for_a_known_name_is_refused(raw):
    refused(lambda: Env({"A": raw}).counts("A", ("X", "Y")), "A", "X=30")


def test_text_is_unchanged_or_its_default():
    assert Env({"A": " x "}).text("A") == " x "
    assert Env({}).text("A", "y") == "y"


@pytest.mark.parametrize(
    ("raw", "value"),
    [("1", True), (" Yes ", True), ("on", True), ("TRUE", True), ("0", False), ("off", False), ("", False)],
)
def test_flag_reads_yes_and_no(raw, value):
    assert Env({"A": raw}).flag("A", default=not value) is value


@pytest.mark.parametrize("default", [True, False])
def test_unset_flag_is_its_default(default):
    assert Env({}).flag("A", default=default) is default


def test_flag_that_is_neither_yes_nor_no_is_refused():
    refused(lambda: Env({"LQOPS_X": "maybe"}).flag("LQOPS_X", default=False), "LQOPS_X", "'maybe'", "1 or 0")


def test_whole_number_is_read_or_defaults():
    assert Env({"A": "7"}).whole("A", 3) == 7
    assert Env({}).whole("A", 3) == 3


@pytest.mark.parametrize(
    ("raw", "word"), [("seven", "whole number"), ("1.5", "whole number"), ("", "whole"), ("-1", "0 or more")]
)
def test_invalid_whole_number_is_refused(raw, word):
    refused(lambda: Env({"LQOPS_X": raw}).whole("LQOPS_X", 3), "LQOPS_X", repr(raw), word)


def test_whole_number_below_the_minimum_is_refused():
    refused(lambda: Env({"LQOPS_X": "1"}).whole("LQOPS_X", 3, least=2), "LQOPS_X", "2 or more")


def test_seconds_are_read_or_default():
    assert Env({"A": "0.5"}).seconds("A", 3) == 0.5
    assert Env({}).seconds("A", 3) == 3


@pytest.mark.parametrize("raw", ["0", "-1", "nan", "inf", "soon", ""])
def test_invalid_seconds_are_refused(raw):
    refused(lambda: Env({"LQOPS_X": raw}).seconds("LQOPS_X", 3), "LQOPS_X", repr(raw), "above 0")


@pytest.mark.parametrize("raw", ["0", "5", "0.000001", "20.00"])
def test_amount_is_read_exactly(raw):
    assert Env({"A": raw}).usd("A", "1") == Decimal(raw)


def test_unset_amount_is_its_default():
    assert Env({}).usd("A", "5.00") == Decimal("5.00")


@pytest.mark.parametrize("raw", ["-1", "NaN", "Infinity", "0.0000001", "five", ""])
def test_invalid_amount_is_refused(raw):
    refused(lambda: Env({"LQOPS_X": raw}).usd("LQOPS_X", "1"), "LQOPS_X", repr(raw), "US dollars")


def test_list_is_split_at_commas_and_stripped():
    assert Env({"A": " a, b,,c "}).listed("A") == ["a", "b", "c"]
    assert Env({}).listed("A", "x,y") == ["x", "y"]
    assert Env({}).listed("A") == []


# --- Secrets ---


def test_secret_in_the_variable_is_used_and_no_file_is_created(tmp_path):
    assert Env({"LQOPS_KEY": LONG}).secret("LQOPS_KEY", kept_in=tmp_path) == LONG
    assert list(tmp_path.iterdir()) == []


def test_secret_is_read_from_the_named_file(tmp_path):
    (tmp_path / "mounted").write_text(f"{LONG}\n")

    assert Env({"LQOPS_KEY_FILE": str(tmp_path / "mounted")}).secret("LQOPS_KEY", kept_in=tmp_path) == LONG


@pytest.mark.parametrize("place", ["variable", "file", "var"])
def test_short_secret_is_refused_wherever_it_comes_from(place, tmp_path):
    (tmp_path / "key").write_text("short")
    values = {"variable": {"LQOPS_KEY": "short"}, "file": {"LQOPS_KEY_FILE": str(tmp_path / "key")}, "var": {}}
    env = Env(values[place])

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "5 characters", "32 or more")


def test_unusable_var_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    refused(lambda: Env({}).secret("LQOPS_KEY", kept_in=tmp_path / "file" / "var"), "LQOPS_VAR_DIR", "cannot be used")


def test_secret_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "key").write_bytes(b"\xff\xfe" * 40)
    env = Env({"LQOPS_KEY_FILE": str(tmp_path / "key")})

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "LQOPS_KEY_FILE", "is not text")


def test_value_outside_the_choices_is_refused():
    assert Env({"X": "normal"}).one_of("X", "FULL", ("FULL", "NORMAL")) == "NORMAL"
    refused(lambda: Env({"X": "FUL"}).one_of("X", "FULL", ("FULL", "NORMAL")), "X='FUL'", "FULL, NORMAL")


def test_networks_are_checked():
    assert Env({"X": "10.0.0.0/8, fd00::/8"}).networks("X") == ["10.0.0.0/8", "fd00::/8"]
    refused(lambda: Env({"X": "10.0.0.0/99"}).networks("X"), "X=", "10.0.0.0/99")


def test_existing_secret_is_found_without_creating_one(tmp_path):
    assert not Env({}).has_secret("LQOPS_KEY", kept_in=tmp_path)
    assert Env({"LQOPS_KEY": LONG}).has_secret("LQOPS_KEY", kept_in=tmp_path)
    (tmp_path / "key").write_text(LONG)
    assert Env({}).has_secret("LQOPS_KEY", kept_in=tmp_path)


@pytest.mark.parametrize("port", ["notaport", "99999"])
def test_invalid_port_is_refused_without_the_password(port):
    with pytest.raises(ImproperlyConfigured, match="X is not a valid address: is the port a number") as caught:
        parse_database_url("X", f"postgresql://user:hunter2@h:{port}/x")

    assert "hunter2" not in str(caught.value)


def test_missing_postgresql_driver_names_the_command_to_install_it(monkeypatch):
    monkeypatch.setattr("lqops.env.importlib.util.find_spec", lambda name: None)
    refused(lambda: parse_database_url("X", "postgresql://h/x"), ".venv/bin/pip install -e '.[postgres]'")


def test_optional_secret_comes_from_the_variable_or_its_file(tmp_path):
    path = tmp_path / "key"
    path.write_text("from-a-file\n")

    assert Env({"K": "in the variable"}).optional_secret("K") == "in the variable"
    assert Env({"K_FILE": str(path)}).optional_secret("K") == "from-a-file"
    assert Env({}).optional_secret("K") == ""
    assert Env({}).optional_secret("") == ""


def test_named_secrets_share_a_prefix_except_our_own_key(tmp_path):
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
    [("S_SHORT", "1234567", "has 7 characters; a secret of less than 8"), ("S_lower", "12345678", "capital letters")],
)
def test_short_or_misnamed_secret_is_refused_without_its_value(variable, value, words):
    with pytest.raises(ImproperlyConfigured, match=words) as refused:
        Env({variable: value}).named_secrets("S_")
    assert value not in str(refused.value)


def test_file_with_certificates_is_checked_at_the_start(tmp_path):
    odd, folder = tmp_path / "odd.pem", tmp_path
    odd.write_text("no certificate")
    authority = Authority(tmp_path)
    assert Env({}).certificates("A") == ""
    assert Env({"A": str(authority.file)}).certificates("A") == str(authority.file)
    refused(
        lambda: Env({"A": str(odd)}).certificates("A"), "A: ", "holds no certificate", "Name a PEM file", "or unset"
    )
    refused(lambda: Env({"A": str(tmp_path / "no")}).certificates("A"), "cannot be read: No such file", "or unset")
    refused(lambda: Env({"A": str(folder)}).certificates("A"), "A: ", "or unset the variable")


def test_hosts_of_a_secret_stand_beside_it():
    env = Env({"S_SHOP": "abcdefgh", "S_SHOP_HOSTS": "Shop.example.org, *.eu.example.org", "S_CRM": "abcdefgh"})
    secrets = env.named_secrets("S_", but_ending="_HOSTS")
    assert secrets == {"shop": "abcdefgh", "crm": "abcdefgh"}
    assert env.hosts_of_secrets("S_", secrets) == {"shop": ["shop.example.org", "*.eu.example.org"]}


def test_hosts_without_their_secret_and_odd_hosts_are_refused():
    alone, odd = Env({"S_MY_HOSTS": "shop.example.org"}), Env({"S_SHOP": "abcdefgh", "S_SHOP_HOSTS": "https://x.org/"})
    refused(lambda: alone.hosts_of_secrets("S_", []), "S_MY_HOSTS names hosts for a secret that is not set: set S_MY")
    refused(lambda: odd.hosts_of_secrets("S_", ["shop"]), "S_SHOP_HOSTS: 'https://x.org/' is not a host such as")


def test_unreadable_secret_file_is_refused(tmp_path):
    env = Env({"LQOPS_KEY_FILE": str(tmp_path / "absent")})

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "LQOPS_KEY_FILE", "absent", "cannot be read")


def test_empty_secret_file_is_refused_and_not_replaced(tmp_path):
    (tmp_path / "empty").write_text(" \n")
    env = Env({"LQOPS_KEY_FILE": str(tmp_path / "empty")})

    refused(lambda: env.secret("LQOPS_KEY", kept_in=tmp_path), "LQOPS_KEY_FILE", "is empty")


def test_unset_secret_is_created_once_and_kept(tmp_path):
    first = Env({}).secret("LQOPS_KEY", kept_in=tmp_path / "var")
    second = Env({"LQOPS_KEY": ""}).secret("LQOPS_KEY", kept_in=tmp_path / "var")

    assert first == second == (tmp_path / "var/key").read_text()
    assert len(first) >= 50


def test_created_secret_is_readable_by_its_owner_alone(tmp_path):
    make_secret(tmp_path / "key")

    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_two_installations_have_different_secrets(tmp_path):
    make_secret(tmp_path / "one")
    make_secret(tmp_path / "two")

    assert (tmp_path / "one").read_text() != (tmp_path / "two").read_text()


def test_processes_that_start_together_agree_on_one_secret(tmp_path):
    code = (
        "import sys; from pathlib import Path; from lqops.env import make_secret\n"
        "path = Path(sys.argv[1]); print('ready', flush=True); sys.stdin.readline()\n"
        "make_secret(path); print(path.read_text())"
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


def test_second_process_keeps_the_secret_of_the_first(tmp_path, monkeypatch):
    """The other process writes its secret after this one has seen that there is none."""

    def link_after_somebody_else(draft, path):
        path.write_text("theirs")
        raise FileExistsError

    monkeypatch.setattr("os.link", link_after_somebody_else)

    make_secret(tmp_path / "key")

    assert (tmp_path / "key").read_text() == "theirs"


# --- Database addresses ---


def test_sqlite_address_names_a_file():
    assert parse_database_url("X", "sqlite:///var/a.db")["NAME"] == "var/a.db"
    assert parse_database_url("X", "sqlite:////tmp/a%20b.db")["NAME"] == "/tmp/a b.db"
    assert parse_database_url("X", "sqlite:///a.db")["ENGINE"] == "django.db.backends.sqlite3"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/a.db"])
def test_sqlite_address_without_a_file_is_refused(url):
    refused(lambda: parse_database_url("LQOPS_X", url), "LQOPS_X", "names no file")


def test_postgresql_address_is_parsed():
    assert parse_database_url("X", "postgresql://us%40r:p%2Fw@db:5433/name?sslmode=require").items() >= {
        ("ENGINE", "django.db.backends.postgresql"),
        ("NAME", "name"),
        ("USER", "us@r"),
        ("PASSWORD", "p/w"),
        ("HOST", "db"),
        ("PORT", 5433),
    }
    assert parse_database_url("X", "postgresql://db/name?sslmode=require")["OPTIONS"] == {"sslmode": "require"}


def test_postgresql_address_may_be_short():
    found = parse_database_url("X", "postgres:///name")

    assert (found["NAME"], found["USER"], found["HOST"], found["PORT"]) == ("name", "", "", "")


def test_postgresql_address_without_database_hides_its_password():
    with pytest.raises(ImproperlyConfigured, match="LQOPS_X names no database") as caught:
        parse_database_url("LQOPS_X", "postgresql://user:hunter2@db/")

    assert "hunter2" not in str(caught.value)


def test_other_databases_are_refused_without_the_password():
    with pytest.raises(ImproperlyConfigured, match="LQOPS_X starts with 'mysql'") as caught:
        parse_database_url("LQOPS_X", "mysql://user:hunter2@db/name")

    assert "hunter2" not in str(caught.value)


def test_empty_database_variable_is_its_default():
    assert Env({"A": ""}).database("A", default="sqlite:///d.db")["NAME"] == "d.db"
    assert Env({"A": "sqlite:///e.db"}).database("A", default="sqlite:///d.db")["NAME"] == "e.db"
