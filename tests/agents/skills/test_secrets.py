"""Secrets by handle: only the skill sees the value."""

import json
import logging

import pytest

from agents.builtin_skills.outside import http_request
from agents.engine.skills import SkillExecutor
from agents.enums import Outcome, Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import Approval, Message, ToolCall
from agents.sessions.approvals import approval_approve
from agents.skills.parsing import parse_skill_calls
from agents.skills.registry import installed_skills
from agents.skills.skill import BadArguments, BadSkill, has_handle, skill, with_handles
from agents.types import ModelRequest
from audit.models import AuditEvent, SkillAudit
from audit.redaction import register_known_secrets
from audit.redaction.redactor import _Known
from tests.agents.net.world import Server
from tests.factories import NOW, make_agent, make_session
from tests.table import every_row

pytestmark = pytest.mark.django_db

VALUE = "Bearer zq81-hhl-3f0pl-quine"
HANDLE = {"$secret": "shop"}


@pytest.fixture(autouse=True)
def _secrets(settings, monkeypatch):
    settings.LQOPS_SECRETS = {"shop": VALUE, "crm": "another-value-here"}
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    installed_skills.cache_clear()
    monkeypatch.setattr(_Known, "values", _Known.values)
    monkeypatch.setattr(_Known, "expression", _Known.expression)
    register_known_secrets([VALUE, VALUE.split()[1]])
    yield
    installed_skills.cache_clear()


@pytest.fixture
def session():
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="auto"))


def ask(session, name, key="a:1", **arguments):
    params = {"skill": name, "arguments": arguments}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key, now=NOW)


def everything(session):
    """All that was kept of the run, as text."""
    rows = [*ToolCall.objects.values(), *Approval.objects.values(), *AuditEvent.objects.values()]
    return str([*rows, *SkillAudit.objects.values(), *Message.objects.values()])


def test_skill_receives_the_secret_and_its_output_is_masked(session):
    result = ask(session, "sign", text="hello", key_="x", token=HANDLE)

    assert result.outcome == Outcome.SUCCESS
    assert result.data["length"] == len(VALUE)  # so it was the value
    assert "zq81" not in str(result.data)
    assert ToolCall.objects.get().arguments["arguments"]["token"] == HANDLE
    assert "zq81" not in everything(session)


def test_error_of_a_skill_does_not_show_the_secret(session, caplog):
    with caplog.at_level(logging.DEBUG):
        failed = ask(session, "sign", text="fail", token=HANDLE)
    assert (failed.outcome, failed.data) == (Outcome.ERROR, None)
    assert failed.error.startswith("ValueError: cannot sign with [redacted:")
    assert "zq81" not in failed.error + everything(session) + caplog.text


@pytest.mark.parametrize("isolated", ["sign_apart"])
def test_skill_with_process_isolation_receives_the_secret(session, isolated):
    result = ask(session, isolated, token=HANDLE)
    assert (result.outcome, result.data) == (Outcome.SUCCESS, len(VALUE))


@every_row(
    ("name", "arguments", "words"),
    [
        ("sign", {"text": "x", "token": {"$secret": "nothing"}}, "there is no secret 'nothing'"),
        ("sign", {"text": "x", "token": {"$secret": "shop", "more": 1}}, "there is no secret 'shop'; a handle is"),
        ("sign", {"text": "x", "token": {"$secret": 5}}, "there is no secret '5'"),
        ("sign", {"text": HANDLE, "token": HANDLE}, "text takes no secret; a handle is allowed in headers, token"),
        ("echo", {"text": HANDLE}, "text takes no secret; no argument of this skill does"),
        ("http_request", {"method": "POST", "url": "https://shop.example/", "data": {"a": [HANDLE]}}, "data takes no"),
        ("http_request", {"method": "POST", "url": HANDLE}, "url takes no secret"),
    ],
)
def test_unknown_or_misplaced_handle_is_refused(session, name, arguments, words):
    with pytest.raises(BadArguments, match=words):
        installed_skills()[name].arguments(arguments)
    call = parse_skill_calls(f"<skill>{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})</skill>")[0]
    told = SkillExecutor(installed_skills(), session=session).execute_one("a:1", call)
    assert words.split(";")[0] in told.error
    assert not ToolCall.objects.exists()


def test_refusal_lists_secret_names_but_no_values():
    with pytest.raises(BadArguments, match="known names: crm, shop") as refused:
        installed_skills()["sign"].arguments({"text": "x", "token": {"$secret": "nothing"}})
    assert "zq81" not in str(refused.value)


def test_canonical_arguments_keep_handles():
    given = {"text": "x", "token": HANDLE, "headers": {"A": HANDLE, "B": "plain"}}
    taken = installed_skills()["sign"].arguments(given)
    assert taken == {**given, "key_": ""}
    assert has_handle(taken)
    assert not has_handle({"a": [1, "b", {"c": None}]})


def test_schema_shows_where_handles_are_allowed(settings):
    parts = http_request.parameters["properties"]
    assert "$secret" in json.dumps(parts["headers"])
    assert '"enum": ["crm", "shop"]' in json.dumps(parts["headers"])
    assert "$secret" not in json.dumps({name: part for name, part in parts.items() if name != "headers"})
    assert "zq81" not in json.dumps(http_request.offer)
    settings.LQOPS_SECRETS = {}
    assert "$secret" not in json.dumps(http_request.offer)


def test_schema_allows_handles_wherever_it_has_a_string():
    lists = {"type": "array", "items": {"type": "string"}}
    odd = {"type": "object", "additionalProperties": False}
    told = with_handles({"properties": {"a": lists, "b": odd, "c": {"type": "string"}}}, ("a", "b"))
    assert told["properties"]["a"]["items"]["anyOf"][0] == {"type": "string"}
    assert (told["properties"]["b"], told["properties"]["c"]) == (odd, {"type": "string"})


def test_secret_to_an_unlisted_host_needs_approval_even_in_auto(session, approver, settings):
    settings.LQOPS_SKILL_HOSTS = ["shop.example"]
    headers = {"Authorization": HANDLE}
    asked = ask(session, "post", url="https://evil.example/", headers=headers)

    assert asked.outcome == Outcome.APPROVAL_PENDING
    assert Approval.objects.get().arguments["arguments"]["headers"] == headers
    assert ask(session, "post", "a:2", url="https://shop.example/", headers=headers).ok
    assert ask(session, "post", "a:3", url="https://evil.example/", headers={"Accept": "*/*"}).ok
    assert "zq81" not in everything(session)


@pytest.mark.django_db(transaction=True)
def test_header_is_sent_with_the_secret_and_recorded_masked(session, approver, settings):
    settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.1/32"]
    server = Server(_echo)
    try:
        given = {"method": "POST", "url": f"http://127.0.0.1:{server.port}/", "headers": {"Authorization": HANDLE}}
        assert ask(session, "http_request", **given).outcome == Outcome.APPROVAL_PENDING
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        result = ask(session, "http_request", **given)
    finally:
        server.close()

    assert VALUE.encode() in server.requests[0]
    assert "authorization: [redacted:" in result.data["text"].lower()
    assert "zq81" not in str(result) + everything(session)


def _echo(connection, request):
    body = request.partition(b"\r\n\r\n")[0]
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)


def test_declaration_of_secret_arguments_is_checked():
    with pytest.raises(BadSkill, match="has no argument token"):

        @skill(secret_arguments=("token",))
        def one(text: str) -> str:
            """One."""
            return text

    with pytest.raises(BadSkill, match="cannot take secrets"):

        @skill(secret_arguments=("text",), request=lambda given: ModelRequest("m", ()))
        def two(text: str) -> str:
            """Two."""
            return text
