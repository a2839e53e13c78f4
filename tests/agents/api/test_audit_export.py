"""The export of the audit log through the API: for whom, what, and in bounded memory."""

import json

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission
from django.test import AsyncClient

from audit import views
from audit.models import AuditEvent
from audit.rows import stream
from tests.audit.samples import RUN, record_session
from tests.factories import make_user

from .conftest import client_of, key_of

pytestmark = pytest.mark.django_db
EXPORT = "/api/v1/audit/export"


@pytest.fixture
def auditor(settings, tmp_path):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "checkpoints.jsonl"
    user = make_user()
    user.user_permissions.add(Permission.objects.get(codename="view_auditevent"))
    return user


def lines_of(response):
    assert response.status_code == 200, response.content
    return response.getvalue().decode().splitlines()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_auditor_exports_one_run(auditor, kind):
    record_session()
    response = client_of(auditor, "read").get(EXPORT, {"type": kind, "chain": RUN})
    assert "lqops-audit-export/1" in lines_of(response)[-1]
    event = AuditEvent.objects.get(kind="audit.exported")
    key = auditor.lqops_api_keys.get()
    assert (event.actor, event.details["chain"]) == (f"user:{auditor.pk}:key:{key.prefix}", RUN)


def test_filters_are_those_of_the_command(auditor):
    record_session()
    query = {"since": "2026-05-04T09:01:00Z", "kind": "audit.chain_closed"}
    found = [json.loads(line) for line in lines_of(client_of(auditor).get(EXPORT, query))]
    assert [line.get("kind") for line in found] == ["audit.chain_closed", None]
    assert found[-1]["manifest"]["filters"]["since"] == "2026-05-04T09:01:00+00:00"


def test_others_are_refused(api, auditor):
    answer = api.get(EXPORT)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert client_of(auditor, "write").get(EXPORT).json()["code"] == "scope_missing"
    assert not AuditEvent.objects.filter(kind="audit.exported").exists()


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"chain": "nobody"}, 404, "not_found"),
        ({"kind": "gossip"}, 422, "invalid"),
        ({"type": "xml"}, 422, "invalid"),
        ({"colour": "red"}, 422, "invalid"),
    ],
)
def test_wrong_query_is_refused(auditor, query, status, code):
    answer = client_of(auditor).get(EXPORT, query)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content


def test_export_without_a_checkpoint_is_refused(auditor, settings):
    settings.LQOPS_CHECKPOINT_FILE.mkdir()
    answer = client_of(auditor).get(EXPORT)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")


def test_rows_are_read_as_they_are_sent(auditor, monkeypatch):
    """As the server does it, which would otherwise collect the whole export before its first byte."""
    record_session()
    monkeypatch.setattr(views, "CHUNK_LINES", 2)
    read = []

    def counted(rows):
        for row in stream(rows):
            read.append(row)
            yield row

    monkeypatch.setattr("audit.export.stream", counted)
    secret = key_of(auditor)

    async def export():
        response = await AsyncClient().get(EXPORT, headers={"Authorization": f"Bearer {secret}"})
        chunks = aiter(response.streaming_content)
        first = await anext(chunks)
        seen = len(read)
        rest = [chunk async for chunk in chunks]
        return first, seen, rest

    first, seen, rest = async_to_sync(export)()
    assert (first.count(b"\n"), seen < len(read) == AuditEvent.objects.count()) == (2, True)
    assert b"lqops-audit-export/1" in rest[-1]


def test_client_that_goes_away_ends_the_reading():
    ended = []

    def lines():
        try:
            while True:
                yield "{}\n"
        finally:
            ended.append(True)

    async def leave():
        chunks = views._async_chunks(lines())
        await anext(chunks)
        await chunks.aclose()

    async_to_sync(leave)()
    assert ended == [True]
