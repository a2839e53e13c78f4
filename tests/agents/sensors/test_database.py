"""Database sensors: rows of a query, read-only and bounded."""

import sqlite3
from contextlib import closing

import pytest
from django.db import connection

from agents.sensors import database
from agents.sensors.database import run_query
from agents.sensors.sensing import Failed
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.flows.processes import until
from tests.table import every_row

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


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


def test_slow_query_is_ended(shop, monkeypatch):
    monkeypatch.setattr(database, "QUERY_SECONDS", 0.2)
    with pytest.raises(Failed, match="took longer"):
        run_query("shop", ENDLESS, 5)


def test_unknown_database_is_named(shop):
    with pytest.raises(Failed, match="there is no database 'shed' for sensors; known names: shop"):
        run_query("shed", "SELECT 1", 5)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_postgresql_reads_one_statement_in_a_read_only_transaction(settings, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("a PostgreSQL server is needed")
    given = connection.settings_dict
    url = f"postgresql://{given['USER']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"
    settings.LQOPS_SENSOR_DATABASES = {"shop": url}
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
        monkeypatch.setattr(database, "QUERY_SECONDS", 1)
        with pytest.raises(Failed, match="took longer than 1 seconds"):
            run_query("shop", "SELECT pg_sleep(5)", 3)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE sensor_orders")
    settings.LQOPS_SENSOR_DATABASES = {"shop": "postgresql://nobody:hidden-word@127.0.0.1:1/none"}
    with pytest.raises(Failed, match="cannot be reached") as failed:
        run_query("shop", "SELECT 1", 3)
    assert "hidden-word" not in str(failed.value)


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
