"""models list and models test: what they print, what they cost, and what is remembered of a server."""

import json

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from agents.enums import Status
from agents.model_test import _has_number
from agents.models import AgentSession, InferenceLog, ModelOutage, ModelServer, QueryVector, ToolCall
from agents.providers import registry
from tests.agents.providers.hostile_servers import SSE_HEAD, Server, answer, delta, events, raw, reply
from tests.anthropic_wire import begins, ends, refused, streams, text
from tests.embeddings_wire import embedding
from tests.factories import make_session, make_user

pytestmark = pytest.mark.django_db
SECRET = "k-42"


class ServerOf:
    """A server that objects to some parts of requests, and answers everything else."""

    def __init__(self, *objections, whole=False, usage=True):
        self.objections, self.whole, self.usage = objections, whole, usage

    def __call__(self, connection, body):
        request = json.loads(body)
        for part, words in self.objections:
            if part(request):
                return answer(400, {"error": {"message": words}})(connection, body)
        if self.whole:
            return answer(200, reply("Hello.", usage=None if self.usage else {}))(connection, body)
        used = [{"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}}] if self.usage else []
        return raw(SSE_HEAD, events(delta("Hello."), delta(finish="stop"), *used))(connection, body)


HAS_SYSTEM = (lambda request: request["messages"][0]["role"] == "system", "System role not supported")
HAS_TOOLS = (lambda request: "tools" in request, "m does not support tools")
HAS_SCHEMA = (lambda request: "response_format" in request, "unknown field response_format")
OLD_LIMIT = (lambda request: "max_tokens" in request, "Use 'max_completion_tokens' instead of max_tokens.")


@pytest.fixture
def served(monkeypatch):
    """`served(server, **declared)` declares a model `m` that is served there."""
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)  # it would wait for the test's transaction
    made = {}
    monkeypatch.setattr(registry, "_made", made)
    make_user(username="root", is_superuser=True)
    opened = []

    def declare(script, **more):
        server = Server(script)
        server.__enter__()
        entry = {"provider": "openai_compatible", "url": server.url, "input_usd": "1", "output_usd": "1", **more}
        changed = override_settings(
            LQOPS_MODELS={"m": entry}, LQOPS_MODEL_ROLES={"main": ["m"], "small": ["m"], "judges": ["m"]}
        )
        changed.enable()
        opened.extend([lambda: server.__exit__(None, None, None), changed.disable])
        return server

    yield declare
    for provider in made.values():
        if hasattr(provider._inner, "close"):  # not those of this process
            provider._inner.close()
    for close in reversed(opened):
        close()


def run(capsys, *arguments):
    call_command("models", *arguments)
    return capsys.readouterr().out


def test_a_server_that_takes_everything_is_tested_in_three_requests(served, capsys):
    server = served(ServerOf())
    [found] = json.loads(run(capsys, "test", "--json"))

    assert (found["ok"], [one["question"] for one in found["answers"]]) == (True, ["answer", "schema", "tools"])
    assert [one["requests"] for one in found["answers"]] == [1, 1, 1]
    assert (found["answers"][0]["text"], found["answers"][0]["output_tokens"]) == ("Hello.", 5)
    assert [one["follows_schema"] for one in found["answers"]] == [None, False, None]
    assert {part["source"] for part in found["server"]["form"].values()} == {"usual"}
    assert (found["server"]["streams"], found["server"]["reports_usage"]) == (True, True)
    session = AgentSession.objects.get()
    assert (session.status, session.cost_actual_usd) == (
        Status.COMPLETED,
        InferenceLog.objects.first().cost_estimate * 3,
    )
    assert ToolCall.objects.filter(session=session, charged_usd__gt=0).count() == 3
    assert len(server.requests) == 3


def test_what_the_server_does_not_take_is_found_out_once_and_remembered(served, capsys):
    server = served(ServerOf(HAS_SYSTEM, HAS_TOOLS, HAS_SCHEMA, OLD_LIMIT, whole=True, usage=False))
    out = run(capsys, "test", "m")

    assert "m: answers" in out
    assert "schema: “{}”  (does not follow the schema)" in out.replace("Hello.", "{}")
    for words in ("system first_user (found)", "tools text (found)", "schema_style off (found)"):
        assert words in out
    assert "sends replies in one piece, reports no usage: calls cost their worst case; found 2" in out
    row = ModelServer.objects.get()
    assert row.form == {
        "system": "first_user", "tools": "text", "schema_style": "off", "token_limit": "max_completion_tokens"
    }  # fmt: skip
    last = server.requests[-1]
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]

    asked = len(server.requests)
    listed = json.loads(run(capsys, "list", "--json"))
    assert len(server.requests) == asked
    assert listed[0]["server"]["form"]["system"] == {"value": "first_user", "source": "found"}
    assert listed[0]["roles"] == ["main", "small", "judges"]


def test_what_is_declared_wins_and_another_server_is_asked_anew(served, capsys, settings):
    served(ServerOf(HAS_TOOLS), system="first_user", token_limit="max_completion_tokens")
    run(capsys, "test", "m")
    [listed] = json.loads(run(capsys, "--json"))
    form = listed["server"]["form"]
    assert form["system"] == {"value": "first_user", "source": "declared"}
    assert form["tools"] == {"value": "text", "source": "found"}
    assert ModelServer.objects.get().form == {"tools": "text"}

    settings.LQOPS_MODELS = {"m": {**settings.LQOPS_MODELS["m"], "name": "another"}}
    assert "not asked yet" in run(capsys)


def test_a_server_that_does_not_answer_is_reported_and_away(served, capsys):
    served(answer(503, {"error": "loading model"}))
    with pytest.raises(CommandError, match="No answer from m"):
        call_command("models", "test", "m")
    assert "m: FAILED: 503 from http" in capsys.readouterr().out
    assert ModelOutage.objects.get().model == "m"
    assert AgentSession.objects.get().terminal_reason == "provider_error"
    assert "AWAY" in run(capsys, "list")


def test_a_refused_key_is_reported_with_the_variable_that_holds_it(served, capsys, monkeypatch):
    monkeypatch.setenv("THE_KEY", SECRET)
    served(answer(401, {"error": {"message": "no"}}), key_env="THE_KEY")
    with pytest.raises(CommandError, match="No answer from m"):
        call_command("models", "test", "m")
    out = capsys.readouterr().out
    assert "m: FAILED: 401 from http" in out
    assert "the server refused the key in THE_KEY: set the right one, with access to m, and start lqops again" in out
    assert not ModelOutage.objects.exists()


def test_a_fallback_that_answers_does_not_hide_why_it_was_asked(served, capsys, settings):
    offline = settings.LQOPS_MODELS["offline"]
    served(answer(503, {"error": "loading model"}), fallback=["offline"])
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "offline": offline}
    with pytest.raises(CommandError, match="No answer from m"):
        call_command("models", "test", "m")
    out = capsys.readouterr().out
    assert "m did not answer: 503 from http" in out
    assert "offline answered instead." in out


THOUGHT = {"prompt_tokens": 20, "completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 80}}


def test_what_a_model_thinks_is_counted_and_not_shown(served, capsys):
    data = events(delta("<think>Hm</think>"), delta("Hello.", "stop"), {"choices": [], "usage": THOUGHT})
    served(raw(SSE_HEAD, data), reasoning=True)
    assert "answer: “Hello.”" in (out := run(capsys, "test", "m"))
    assert "90 out, 80 of them thinking" in out


def test_a_model_that_only_thinks_has_failed(served, capsys):
    data = events(delta("<think>Hm"), delta("", "length"), {"choices": [], "usage": THOUGHT})
    served(raw(SSE_HEAD, data))
    with pytest.raises(CommandError, match="No answer from m"):
        call_command("models", "test", "m")
    assert "used all its tokens before it answered; declare more of them (max_tokens)" in capsys.readouterr().out


def test_an_anthropic_model_is_tested_in_three_requests_and_what_it_refuses_is_remembered(served, capsys):
    def play(connection, body):
        request = json.loads(body)
        script = streams(begins(), *text(0, "Hello."), *ends())
        if "tool_choice" in request:
            script = refused("invalid_request_error", "tool_choice is not supported with this model")
        return script(connection, body)

    server = served(play, provider="anthropic", context_window=200_000, max_tokens=8_192)
    out = run(capsys, "test", "m")
    assert "m: answers" in out
    assert "tools native (usual), schema_style off (found)" in out
    assert "streams, reports usage" in out
    assert [request["max_tokens"] for request in server.requests] == [1_024] * 4
    listed = run(capsys, "list")
    assert "context_window 200000, max_tokens 8192\n" in listed
    assert "$1 in, $1 out per million tokens\n" in listed


def test_the_source_of_prices_is_shown(served, capsys):
    served(answer(), cache_read_usd="0.1", prices_from="genai-prices 0.2.1, data of 2026-10-20 or later")
    shown = (
        "$1 in, $1 out, $0.1 read from a cache per million tokens (by genai-prices 0.2.1, data of 2026-10-20 or later)"
    )
    assert shown in run(capsys)
    assert json.loads(run(capsys, "--json"))[0]["prices_from"].startswith("genai-prices")


def test_the_models_of_this_process_have_no_server(capsys, monkeypatch):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)
    make_user(username="root", is_superuser=True)
    assert "offline: offline" in run(capsys)
    [found] = json.loads(run(capsys, "test", "offline", "--json"))
    assert (found["ok"], found["server"]) == (True, None)


def test_a_reply_that_follows_the_schema_is_told_from_others():
    assert [_has_number(text) for text in ('{"number": 7}', '{"number": "7"}', "[7]", "7")] == [
        True,
        False,
        False,
        False,
    ]


def test_bad_arguments_are_refused(settings):
    with pytest.raises(CommandError, match="no active superuser: name a user with --owner"):
        call_command("models", "test")
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        call_command("models", "test", "--owner", "nobody")
    root = make_user(username="root", is_superuser=True)
    with pytest.raises(CommandError, match="no model 'x'; declared: offline"):
        call_command("models", "test", "x")
    settings.LQOPS_MAX_RUNNING_PER_USER = 1
    make_session(Status.RUNNING, owner=root)
    with pytest.raises(CommandError, match="root has as many active runs as allowed"):
        call_command("models", "test", "offline")
    assert AgentSession.objects.count() == 1


def test_a_model_for_embeddings_is_asked_for_a_vector(capsys):
    make_user(username="root", is_superuser=True)
    with embedding() as server:
        [found] = json.loads(run(capsys, "test", "embedder", "--json"))
        assert "embeddings" in run(capsys)
    assert (found["ok"], found["server"]) == (True, None)
    [answered] = found["answers"]
    assert (answered["text"], answered["output_tokens"]) == ("a vector of 16 dimensions", 0)
    assert len(server.requests) == 1
    assert not QueryVector.objects.exists()


def test_a_model_for_embeddings_that_fails_says_why(capsys):
    make_user(username="root", is_superuser=True)
    with embedding(answer(401)), pytest.raises(CommandError, match="No answer from embedder"):
        run(capsys, "test", "embedder")
    assert "LQOPS_TEST_EMBEDDINGS_KEY" in capsys.readouterr().out
