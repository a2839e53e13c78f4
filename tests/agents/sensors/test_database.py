"""Database sensors: rows of a query, read-only and bounded."""

import re
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic

import pytest
from django.db import connection

from agents.sensors import database
from agents.sensors.database import run_query
from agents.sensors.sensing import Failed
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.flows.processes import until
from tests.table import every_row

NUMBERS = "RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
ENDLESS = f"WITH {NUMBERS} SELECT count(*) FROM n"


@pytest.fixture
def shop(tmp_path, settings):
    path = tmp_path / "shop?.sqlite3"
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE orders (id INTEGER, total NUMERIC, note TEXT, data BLOB)")
        opened.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [(n, n * 1.5, f"n{n}", b"x") for n in range(9)])
    settings.LQOPS_SENSOR_DATABASES = {"shop": f"sqlite:///{str(path).replace('?', '%3F')}"}
    return path


def test_rows_are_objects_and_bounded(shop):
    assert run_query("shop", "SELECT id, total, note, data FROM orders ORDER BY id DESC;", 2) == [
        {"id": 8, "total": 12, "note": "n8", "data": "1 bytes"},
        {"id": 7, "total": 10.5, "note": "n7", "data": "1 bytes"},
    ]


@every_row(
    "statement",
    [
        "DELETE FROM orders",
        "WITH a AS (SELECT 1) DELETE FROM orders",
        "SELECT 1; DELETE FROM orders",
        "ATTACH DATABASE '/tmp/other.sqlite3' AS other",
        "PRAGMA query_only = OFF",
        "SELECT load_extension('x')",
        "SELECT * FROM missing",
    ],
)
def test_nothing_but_reading_is_possible(shop, statement):
    with pytest.raises(Failed, match="the query failed"):
        run_query("shop", statement, 5)
    assert run_query("shop", "SELECT count(*) AS n FROM orders", 5) == [{"n": 9}]


# One call of a function: SQLite asks nobody in between whether it is to go on.
ONE_CALL = "SELECT replace(hex(zeroblob(4000000)), '0', hex(zeroblob(1))) LIKE '%' || hex(zeroblob(9000)) || '1%' AS n"
# Each asks for far more than 256 MB, or for values that are longer than any reading.
GREEDY = [
    ("SELECT hex(zeroblob(400000000)) AS n", "string or blob too big"),
    ("SELECT length(hex(zeroblob(400000000))) AS n", "string or blob too big"),
    ("SELECT length(hex(randomblob(90000000))) AS n FROM orders", "string or blob too big"),
    ("SELECT replace(hex(zeroblob(400000)), '0', hex(zeroblob(1000))) AS n", "string or blob too big"),
    ("SELECT group_concat(hex(zeroblob(3000000))) AS n FROM orders", "string or blob too big"),
    ("SELECT json_group_array(hex(zeroblob(3000000))) AS n FROM orders", "string or blob too big"),
    ("SELECT hex(zeroblob(5000000)) AS n FROM orders", "more than 1048576 bytes"),
    (f"SELECT {', '.join(f'hex(zeroblob(7000000 + {n})) AS n{n}' for n in range(60))}", "more than 256 MB"),
    (f"WITH {NUMBERS} SELECT hex(zeroblob(1000000)) || i AS t FROM (SELECT i FROM n LIMIT 900) ORDER BY t", "256 MB"),
]  # fmt: skip


@contextmanager
def memory_of_this_process_grows_by_less_than(megabytes):
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _peak_megabytes()
    yield
    assert _peak_megabytes() - before < megabytes


def _peak_megabytes():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("statement", "reason"), GREEDY)
def test_query_that_asks_for_much_memory_takes_none_of_the_worker(shop, statement, reason):
    with memory_of_this_process_grows_by_less_than(30), pytest.raises(Failed, match=reason):
        run_query("shop", statement, 5)


def test_rows_are_read_one_by_one_up_to_a_sum_of_bytes(shop):
    """Nine rows of 300,000 bytes: three fit."""
    statement = "SELECT id, hex(zeroblob(150000)) AS n FROM orders ORDER BY id"
    assert [len(row["n"]) for row in run_query("shop", statement, 3)] == [300_000] * 3
    with pytest.raises(Failed, match="the rows have more than 1048576 bytes: select less"):
        run_query("shop", statement, 4)


def test_long_value_beside_what_is_selected_does_not_matter(shop):
    with closing(sqlite3.connect(shop)) as opened, opened:
        opened.execute("UPDATE orders SET data = zeroblob(40000000) WHERE id = 3")
    statement = "SELECT id, note, length(data) AS size FROM orders WHERE id = 3"
    assert run_query("shop", statement, 5) == [{"id": 3, "note": "n3", "size": 40_000_000}]


@every_row("statement", [ENDLESS, ONE_CALL])
def test_slow_query_is_ended(shop, statement):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "QUERY_SECONDS", 0.5)
        start = monotonic()
        with pytest.raises(Failed, match="the query took longer"):
            run_query("shop", statement, 5)
        assert monotonic() - start < database.START_SECONDS


def test_process_of_a_query_knows_no_key_of_the_installation(shop, monkeypatch):
    monkeypatch.setenv("LQOPS_SECRET_BANK", "hidden-word")
    monkeypatch.setenv("PGAPPNAME", "kept")
    started = []
    run = database.subprocess.run
    monkeypatch.setattr(database.subprocess, "run", lambda *a, **k: started.append((a, k)) or run(*a, **k))
    assert run_query("shop", "SELECT count(*) AS n FROM orders", 5) == [{"n": 9}]
    [((command,), options)] = started
    assert options["env"]["PGAPPNAME"] == "kept"
    assert "hidden-word" not in str(options["env"])
    assert str(shop) not in str(command)


def test_process_that_ends_otherwise_is_a_failure_of_the_sensor(shop, monkeypatch):
    monkeypatch.setattr(database, "_START", "import os; os.abort()")
    with pytest.raises(Failed, match=r"more than 256 MB of memory: select less \(its process ended with code -6\)"):
        run_query("shop", "SELECT 1", 5)
    monkeypatch.setattr(database, "_START", "import time; time.sleep(60)")
    for name in ("START_SECONDS", "CONNECT_SECONDS", "QUERY_SECONDS"):
        monkeypatch.setattr(database, name, 0.1)
    with pytest.raises(Failed, match="took longer"):
        run_query("shop", "SELECT 1", 5)


def test_database_in_wal_mode_is_read(shop):
    with closing(sqlite3.connect(shop)) as opened:
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("DELETE FROM orders WHERE id > 3")
        opened.commit()
        assert run_query("shop", "SELECT count(*) AS n FROM orders", 5) == [{"n": 4}]
    assert run_query("shop", "SELECT count(*) AS n FROM orders", 5) == [{"n": 4}]


def test_unknown_database_is_named(shop):
    with pytest.raises(Failed, match="there is no database 'shed' for sensors; known names: shop"):
        run_query("shed", "SELECT 1", 5)


@pytest.fixture
def server(settings):
    if connection.vendor != "postgresql":
        pytest.skip("a PostgreSQL server is needed")
    given = connection.settings_dict
    url = f"postgresql://{given['USER']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"
    settings.LQOPS_SENSOR_DATABASES = {"shop": url}
    return url


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_postgresql_reads_one_statement_in_a_read_only_transaction(server, settings):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS sensor_orders (id integer, at timestamptz DEFAULT now())")
        cursor.execute("INSERT INTO sensor_orders SELECT generate_series(1, 5000)")
    try:
        rows = run_query("shop", "SELECT id, at, 1.50::numeric AS n FROM sensor_orders ORDER BY id", 3)
        assert [(row["id"], row["n"], row["at"][:2]) for row in rows] == [
            (1, 1.5, "20"),
            (2, 1.5, "20"),
            (3, 1.5, "20"),
        ]
        for statement in (
            "DELETE FROM sensor_orders",
            "WITH a AS (DELETE FROM sensor_orders RETURNING 1) SELECT * FROM a",
            "SELECT 1; DELETE FROM sensor_orders",
            "SELECT 1; COMMIT; DELETE FROM sensor_orders",
            "SELECT nextval('missing')",
        ):
            with pytest.raises(Failed, match="the query failed"):
                run_query("shop", statement, 3)
        assert run_query("shop", "SELECT count(*) AS n FROM sensor_orders", 3) == [{"n": 5000}]
        assert run_query("shop", "SELECT id FROM sensor_orders WHERE id < 0", 3) == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE sensor_orders")
    settings.LQOPS_SENSOR_DATABASES = {"shop": "postgresql://nobody:hidden-word@127.0.0.1:1/none"}
    with pytest.raises(Failed, match="cannot be reached") as failed:
        run_query("shop", "SELECT 1", 3)
    assert "hidden-word" not in str(failed.value)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_values_of_postgresql_become_json(server):
    statement = (
        "SELECT 7::numeric AS whole, 1.5::numeric AS part, 'infinity'::numeric AS endless, '\\x0102'::bytea AS data, "
        "date '2026-01-02' AS day, '{\"a\": [1]}'::jsonb AS json, inet '10.0.0.1' AS host, NULL AS nothing"
    )
    assert run_query("shop", statement, 3) == [
        {
            "whole": 7,
            "part": 1.5,
            "endless": float("inf"),
            "data": "2 bytes",
            "day": "2026-01-02",
            "json": {"a": [1]},
            "host": "10.0.0.1",
            "nothing": None,
        }
    ]
    nested = f"SELECT ('{'[' * 600}{']' * 600}')::jsonb AS n"
    assert run_query("shop", nested, 3)
    with pytest.raises(Failed, match="the query failed"):
        run_query("shop", "SELECT (repeat('[', 5000) || repeat(']', 5000))::jsonb AS n", 3)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT repeat('x', 200000000) AS n", "more than 256 MB of memory"),
        ("SELECT string_agg(repeat('x', 1000000), '') AS n FROM generate_series(1, 200)", "more than 256 MB of memory"),
        ("SELECT array_agg(repeat('x', 3000000)) AS n FROM generate_series(1, 50)", "more than 256 MB of memory"),
        ("SELECT json_agg(repeat('x', 3000000)) AS n FROM generate_series(1, 50)", "more than 256 MB of memory"),
        ("SELECT repeat('x', 10000000) AS n FROM generate_series(1, 60)", "more than 1048576 bytes"),
        ("SELECT repeat('x', 2000) AS n FROM generate_series(1, 900000)", "more than 1048576 bytes"),
        ("SELECT repeat('x', 2000000000) AS n", "requested length too large"),
    ],
)
def test_query_of_postgresql_that_asks_for_much_memory_takes_none_of_the_worker(server, statement, reason):
    with memory_of_this_process_grows_by_less_than(30), pytest.raises(Failed, match=reason):
        run_query("shop", statement, 1_000)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@every_row(
    "statement",
    [
        "SELECT pg_sleep(60)",
        "SELECT set_config('statement_timeout', '0', false), pg_sleep(60)",
        f"WITH {NUMBERS} SELECT count(*) FROM n",
    ],
)
def test_slow_query_of_postgresql_is_ended_here_and_there(server, statement):
    with pytest.MonkeyPatch.context() as patch, connection.cursor() as cursor:
        patch.setattr(database, "QUERY_SECONDS", 1)
        patch.setenv("PGAPPNAME", "sensor-too-slow")
        start = monotonic()
        with pytest.raises(Failed, match="the query took longer than 1 seconds"):
            run_query("shop", statement, 3)
        assert monotonic() - start < database.START_SECONDS

        def ended():
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sensor-too-slow'")
            return cursor.fetchone() == (0,)

        until(ended)


@pytest.mark.django_db(transaction=True)
def test_condition_on_a_query_alerts(shop):
    source = {"query": "SELECT count(*) AS late FROM orders WHERE total > 5", "database": "shop"}
    signal = {"name": "late", "when": {"path": "[0].late", "above": 6}}
    scene = Scene(poll(**source, updates=["rows"], signals=[signal]), fields={"rows": "array"})
    with running_slice(time_scale=0.1):
        until(lambda: scene.value("rows") == [{"late": 5}])
        with closing(sqlite3.connect(shop)) as opened, opened:
            opened.execute("INSERT INTO orders VALUES (10, 100, 'n', NULL), (11, 100, 'n', NULL)")
        until(scene.alerts)

    assert "[0].late above 6" in scene.alerts()[0].text
