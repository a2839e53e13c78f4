"""models list and models test: what they print, what they cost, and what is remembered of a server."""

import json
import threading

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import override_settings

from agents.checks.model_test import QUESTIONS, model_test, run_test
from agents.conf import clock
from agents.enums import Status
from agents.exceptions import Invalid
from agents.models import AgentSession, DeclaredModel, InferenceLog, ModelOutage, ModelServer, QueryVector, ToolCall
from agents.providers import registry
from tests.agents.providers.hostile_servers import SSE_HEAD, Server, answer, delta, drip, events, raw, reply
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


GOOD = {
    "main": '{"findings": [{"title": "Late", "severity": "warn", "content": "90 days", "quote": "within 90 days"}]}',
    "small": "0.9",
    "judges": '{"supported": true, "why": "It says so."}',
    "console": "It snows.",
}


def role_of(request):
    """Which role the request asks, by its words."""
    text = json.dumps(request)
    words = {"small": "score readings", "judges": "You judge", "console": "Oslo"}
    return next((role for role, word in words.items() if word in text), "main")


def answering(connection, body):
    """Answers every role as a run could use it."""
    used = {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}}
    data = events(delta(GOOD[role_of(json.loads(body))]), delta(finish="stop"), used)
    return raw(SSE_HEAD, data)(connection, body)


def test_each_role_is_asked_one_question_and_its_answer_is_read(served, capsys):
    server = served(answering)
    [found] = json.loads(run(capsys, "test", "--json"))

    assert (found["ok"], [one["role"] for one in found["answers"]]) == (True, ["main", "small", "judges", "console"])
    assert [one["requests"] for one in found["answers"]] == [1] * 4
    assert [one["text"] for one in found["answers"]] == list(GOOD.values())
    assert [one["reading"] for one in found["answers"]] == [
        "Findings read: 1, of which 1 quote the contract.",
        "Score read: 0.9.",
        "Verdict read: supported.",
        "Answer of 2 words read.",
    ]
    assert {part["source"] for part in found["server"]["form"].values()} == {"usual"}
    assert (found["server"]["streams"], found["server"]["reports_usage"]) == (True, True)
    session = AgentSession.objects.get()
    assert (session.status, session.cost_actual_usd) == (
        Status.COMPLETED,
        InferenceLog.objects.first().cost_estimate * 4,
    )
    assert ToolCall.objects.filter(session=session, charged_usd__gt=0).count() == 4
    assert {log.purpose for log in InferenceLog.objects.all()} == {"test"}  # estimates of runs leave it out
    assert len(server.requests) == 4


def test_answers_that_a_run_could_not_use_fail_the_test(served, capsys):
    served(ServerOf())
    with pytest.raises(CommandError, match="The test failed for m"):
        call_command("models", "test", "m")
    out = capsys.readouterr().out
    assert "m: FAILED: not readable as main, small, judges" in out
    assert "No findings can be read" in out
    assert "No score from 0 to 1 can be read." in out
    assert "No verdict can be read." in out
    assert "console: What is the weather in Oslo?" in out


@pytest.mark.parametrize(
    ("role", "text", "says"),
    [
        ("main", '{"findings": []}', "the finding is missing: 90 days instead of 30"),
        ("judges", '{"supported": false}', "not supported"),
        ("console", "", "it cannot answer after a call"),
    ],
)
def test_reading_says_what_was_made_of_an_answer(role, text, says):
    assert says in QUESTIONS[role].read(text)[1]


def test_one_role_can_be_tested_of_any_model(served, capsys):
    server = served(answering)
    out = run(capsys, "test", "m", "--role", "judges")
    assert "m: fit for its roles" in out
    assert [role_of(request) for request in server.requests] == ["judges"]


def test_a_model_without_a_role_is_asked_what_the_main_one_is(served, capsys, settings):
    offline = settings.LQOPS_MODELS["offline"]
    server = served(answering)
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "offline": offline}
    settings.LQOPS_MODEL_ROLES = {"main": ["offline"], "small": ["offline"]}
    run(capsys, "test", "m")
    assert [role_of(request) for request in server.requests] == ["main"]


def test_what_the_server_does_not_take_is_found_out_once_and_remembered(served, capsys):
    server = served(ServerOf(HAS_SYSTEM, HAS_TOOLS, HAS_SCHEMA, OLD_LIMIT, whole=True, usage=False))
    with pytest.raises(CommandError, match="The test failed for m"):
        call_command("models", "test", "m")
    out = capsys.readouterr().out

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
    assert listed[0]["roles"] == ["main", "small", "judges", "console"]


def test_what_is_declared_wins_and_another_server_is_asked_anew(served, capsys, settings):
    served(ServerOf(HAS_TOOLS), system="first_user", token_limit="max_completion_tokens")
    run(capsys, "test", "m", "--role", "console")
    [listed] = json.loads(run(capsys, "--json"))
    form = listed["server"]["form"]
    assert form["system"] == {"value": "first_user", "source": "declared"}
    assert form["tools"] == {"value": "text", "source": "found"}
    assert ModelServer.objects.get().form == {"tools": "text"}

    settings.LQOPS_MODELS = {"m": {**settings.LQOPS_MODELS["m"], "name": "another"}}
    assert "not asked yet" in run(capsys)


def test_a_server_that_does_not_answer_is_reported_and_away(served, capsys):
    served(answer(503, {"error": "loading model"}))
    with pytest.raises(CommandError, match="The test failed for m"):
        call_command("models", "test", "m")
    assert "m: FAILED: 503 from 127.0.0.1" in capsys.readouterr().out
    assert ModelOutage.objects.get().model == "m"
    assert AgentSession.objects.get().terminal_reason == "provider_error"
    assert "away 2" in (listed := run(capsys, "list"))
    assert "UTC: 503 from 127.0.0.1" in listed
    assert "/v1" not in listed


def test_a_refused_key_is_reported_with_the_variable_that_holds_it(served, capsys, monkeypatch):
    monkeypatch.setenv("THE_KEY", SECRET)
    served(answer(401, {"error": {"message": "no"}}), key_env="THE_KEY")
    with pytest.raises(CommandError, match="The test failed for m"):
        call_command("models", "test", "m")
    out = capsys.readouterr().out
    assert "m: FAILED: 401 from 127.0.0.1" in out
    assert "the server refused the key in THE_KEY: set the right one, with access to m, and start lqops again" in out
    assert not ModelOutage.objects.exists()
    assert json.loads(run(capsys, "list", "--json"))[0]["state"] == "key refused"


def test_a_fallback_that_answers_does_not_hide_why_it_was_asked(served, capsys, settings):
    offline = settings.LQOPS_MODELS["offline"]
    served(answer(503, {"error": "loading model"}), fallback=["offline"])
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "offline": offline}
    with pytest.raises(CommandError, match="The test failed for m"):
        call_command("models", "test", "m")
    out = capsys.readouterr().out
    assert "m did not answer: 503 from 127.0.0.1" in out
    assert "offline answered instead." in out


def silent(connection, body):
    """Takes the request and says nothing until the client gives up."""
    connection.settimeout(30)
    connection.recv(1)


def test_a_test_that_somebody_waits_for_ends_in_time_and_makes_no_outage(served, monkeypatch):
    served(silent, total_seconds=5)
    monkeypatch.setattr("agents.checks.model_test.TEST_SECONDS", 0.4)
    found = model_test(model="m", by=User.objects.get(), now=clock())
    [answer_] = found["answers"]
    assert (found["ok"], answer_["answered"], answer_["took_ms"] < 4_000) == (False, False, True)
    assert answer_["error"].startswith("No answer within 0.")
    assert not ModelOutage.objects.exists()


def test_questions_beyond_the_time_of_a_test_are_not_asked(served, monkeypatch):
    server = served(answering)
    monkeypatch.setattr("agents.checks.model_test.TEST_SECONDS", 0)
    [answer_] = model_test(model="m", by=User.objects.get(), now=clock())["answers"]
    assert (answer_["error"], server.requests) == ("Not asked: 0 seconds are over.", [])


def test_unknown_role_is_refused_before_a_run_begins(served):
    served(answering)
    with pytest.raises(Invalid, match="There is no role 'chief'; known: main, small, judges, console"):
        model_test(model="m", by=User.objects.get(), now=clock(), role="chief")
    assert not AgentSession.objects.exists()


def test_changed_model_and_row_that_cannot_be_used_are_listed(served, capsys):
    served(answering)
    DeclaredModel.objects.create(model="m", settings={"context_window": 9_000}, changed_at=clock())
    assert "file, changed here: context_window" in run(capsys)
    DeclaredModel.objects.update(settings={"fallback": ["gone"]})
    assert "not in force, the file applies: fallback: 'gone' is not another model" in run(capsys)


THOUGHT = {"prompt_tokens": 20, "completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 80}}


def test_what_a_model_thinks_is_counted_and_not_shown(served, capsys):
    data = events(delta("<think>Hm</think>"), delta("Hello.", "stop"), {"choices": [], "usage": THOUGHT})
    served(raw(SSE_HEAD, data), reasoning=True)
    assert "“Hello.”" in (out := run(capsys, "test", "m", "--role", "console"))
    assert "90 out, 80 of them thinking" in out


def test_a_model_that_only_thinks_has_failed(served, capsys):
    data = events(delta("<think>Hm"), delta("", "length"), {"choices": [], "usage": THOUGHT})
    served(raw(SSE_HEAD, data))
    with pytest.raises(CommandError, match="The test failed for m"):
        call_command("models", "test", "m")
    assert "used all its tokens before it answered; declare more of them (max_tokens)" in capsys.readouterr().out


def test_answer_that_was_cut_off_says_what_to_raise(served, capsys):
    used = {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}}
    served(raw(SSE_HEAD, events(delta("It sno"), delta("", "length"), used)))
    out = run(capsys, "test", "m", "--role", "console")
    assert "Answer of 2 words read. The answer was cut off at its maximum of tokens: raise max_tokens" in out


@pytest.mark.parametrize(
    ("declared", "seconds", "says"),
    [
        ({}, 1, "not whole after 1 seconds, the limit of the test"),
        ({"total_seconds": 1}, 60, "not whole after 1 seconds, the limit of every call of this model (total_seconds)"),
    ],
)
def test_model_that_writes_too_slowly_for_the_test_is_not_ok_and_its_pace_is_named(served, declared, seconds, says):
    over = threading.Event()
    served(drip(SSE_HEAD, events(delta("snow "), done=False), 0.1, over.is_set), **declared)
    root = User.objects.get(username="root")
    found = run_test("m", root, by=root, now=clock(), role="console", seconds=seconds)
    over.set()
    [answer_] = found["answers"]
    assert (found["ok"], answer_["readable"]) == (False, False)
    assert says in answer_["reading"]
    assert "characters a second" in answer_["reading"]
    assert "raise max_tokens" not in answer_["reading"]
    assert ("Runs wait 290 seconds." in answer_["reading"]) == (seconds == 1)


def test_what_an_anthropic_model_refuses_is_remembered(served, capsys):
    def play(connection, body):
        request = json.loads(body)
        script = streams(begins(), *text(0, GOOD[role_of(request)]), *ends())
        if "tool_choice" in request:
            script = refused("invalid_request_error", "tool_choice is not supported with this model")
        return script(connection, body)

    server = served(play, provider="anthropic", context_window=200_000, max_tokens=8_192)
    out = run(capsys, "test", "m")
    assert "m: fit for its roles" in out
    assert "tools native (usual), schema_style off (found)" in out
    assert "streams, reports usage" in out
    assert [request["max_tokens"] for request in server.requests] == [1_024, 1_024, 16, 256, 1_024]
    listed = run(capsys, "list")
    assert "context_window 200000, max_tokens 8192\n" in listed
    assert "$1 in, $1 out per million tokens (declared)  answered 2" in listed


def test_the_source_of_prices_is_shown(served, capsys):
    served(answer(), cache_read_usd="0.1", prices_from="genai-prices 0.2.1, data of 2026-10-20 or later")
    shown = "$1 in, $1 out, $0.1 read from a cache per million tokens (genai-prices 0.2.1, data of 2026-10-20 or later)"
    assert shown in run(capsys)
    assert json.loads(run(capsys, "--json"))[0]["prices_from"].startswith("genai-prices")


def test_the_models_of_this_process_have_no_server(capsys, monkeypatch):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)
    make_user(username="root", is_superuser=True)
    assert "offline: offline" in run(capsys)
    [found] = json.loads(run(capsys, "test", "offline", "--json"))
    assert (found["ok"], found["server"]) == (True, None)


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
    assert (answered["role"], answered["output_tokens"]) == ("embeddings", 0)
    assert answered["reading"] == "Read: a vector of 16 dimensions."
    assert len(server.requests) == 1
    assert not QueryVector.objects.exists()


def test_a_model_for_embeddings_that_fails_says_why(capsys):
    make_user(username="root", is_superuser=True)
    with embedding(answer(401)), pytest.raises(CommandError, match="The test failed for embedder"):
        run(capsys, "test", "embedder")
    assert "LQOPS_TEST_EMBEDDINGS_KEY" in capsys.readouterr().out
