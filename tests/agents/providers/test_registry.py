"""Which provider serves a model, with its limits and its key."""

import threading
from dataclasses import replace

import pytest

from agents.providers import registry
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.types import ModelRequest
from tests.agents.providers.hostile_servers import answer, reply, serving
from tests.agents.providers.listeners import ignore
from tests.flows.processes import until
from tests.serving import serving as model_serving

REQUEST = ModelRequest("m", ({"role": "user", "content": "?"},))


@pytest.fixture(autouse=True)
def _nothing_made(monkeypatch):
    made = {}
    monkeypatch.setattr(registry, "_made", made)
    yield
    for provider in made.values():
        getattr(provider._inner, "close", lambda: None)()


def test_a_model_without_provider_is_refused_with_advice(settings):
    settings.LQOPS_MODELS = {}
    with pytest.raises(ProviderError, match="LQOPS_MODELS_FILE") as refused:
        registry.provider_for("m")
    assert (refused.value.fault, refused.value.contacted) == (Fault.NOT_SERVED, False)


def test_a_declared_model_is_made_once_and_asked_with_its_key(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_OF_M", "k-42")
    with serving(answer(200, reply("hello"))) as server:
        settings.LQOPS_MODELS = {
            "m": {"provider": "openai_compatible", "url": server.url, "key_env": "SECRET_OF_M", "total_seconds": 5}
        }
        provider = registry.provider_for("m")
        assert provider is registry.provider_for("m")
        assert provider.stream(REQUEST, ignore).text == "hello"
        assert "Authorization: Bearer k-42" in server.heads[0]
        monkeypatch.delenv("SECRET_OF_M")
        (tmp_path / "key").write_text("k-43\n")
        monkeypatch.setenv("SECRET_OF_M_FILE", str(tmp_path / "key"))
        provider.stream(REQUEST, ignore)
        assert "Bearer k-43" in server.heads[1]
        monkeypatch.delenv("SECRET_OF_M_FILE")
        provider.stream(REQUEST, ignore)
        assert "Authorization" not in server.heads[2]


def test_a_model_without_a_key_is_asked_without_one(settings):
    with serving(answer()) as server:
        settings.LQOPS_MODELS = {"m": {"provider": "openai_compatible", "url": server.url}}
        registry.provider_for("m").stream(REQUEST, ignore)
        assert "Authorization" not in server.heads[0]


def test_scripted_replies_come_from_the_declaration(settings):
    settings.LQOPS_MODELS = {"m": {"provider": "scripted", "replies": ["one", "two"]}}
    provider = registry.provider_for("m")
    chunks = []
    assert [provider.stream(REQUEST, ignore).text, provider.stream(REQUEST, chunks.append).text] == ["one", "one"]
    assert chunks[-1].finished


def test_scripted_replies_follow_the_conversation_in_any_process(settings):
    settings.LQOPS_MODELS = {"m": {"provider": "scripted", "replies": ["one", "two", "three"]}}
    spoken = [{"role": "assistant", "content": "one"}, {"role": "user", "content": "And then?"}]
    asked = [replace(REQUEST, messages=(*REQUEST.messages, *spoken * times)) for times in (3, 1, 0, 2, 1)]
    assert [registry.provider_for("m").stream(one, ignore).text for one in asked] == [
        "three",
        "two",
        "one",
        "three",
        "two",
    ]


def test_no_more_calls_at_once_than_declared():
    inside, most, gate = [], [], threading.Lock()

    def enter():
        with gate:
            inside.append(1)
            most.append(len(inside))
        threading.Event().wait(0.01)
        with gate:
            inside.pop()

    limited = registry.Limited(ScriptedProvider([Step("x", before_reply=enter)]), {"concurrency": 2})
    threads = [threading.Thread(target=limited.stream, args=(REQUEST, ignore)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 2


def test_worker_goes_on_only_when_the_call_has_its_turn(monkeypatch):
    """Else a worker would begin more and more runs that all wait for a model which answers one at a time."""
    free, waits, went_on = threading.Event(), threading.Event(), []
    monkeypatch.setattr(registry, "let_worker_go_on", lambda: went_on.append(threading.current_thread().name))
    limited = registry.Limited(ScriptedProvider([Step("x", before_reply=lambda: free.wait(60))]), {"concurrency": 1})
    first = threading.Thread(target=limited.stream, args=(REQUEST, ignore), name="first")
    first.start()
    until(lambda: went_on == ["first"])

    second = threading.Thread(
        target=limited.stream, args=(REQUEST, lambda chunk: chunk.is_before and waits.set()), name="second"
    )
    second.start()
    assert waits.wait(60)
    assert went_on == ["first"]

    free.set()
    for thread in (first, second):
        thread.join(60)
    assert went_on == ["first", "second"]


def test_a_provider_can_be_replaced_inside_a_block(settings):
    settings.LQOPS_MODELS = {}
    first, second = ScriptedProvider(), ScriptedProvider()
    with model_serving("m", first):
        with model_serving("m", second):
            assert registry.provider_for("m").inner is second
        assert registry.provider_for("m").inner is first
    with pytest.raises(ProviderError):
        registry.provider_for("m")
