"""What leaves the process: names hidden on the way out, put back on the way in, secrets masked in between."""

import pytest

from agents.enums import Level, ToolIntent
from agents.guard import guarded_tool_call
from agents.guard.intents import override, request_of
from agents.guard.tools import BadParams, Tool
from agents.models import InferenceLog, Project, ToolCall
from agents.providers.base import Chunk, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.types import Capability, RequestedCall, Usage
from tests.agents.conftest import MODEL, ask, script
from tests.factories import NOW, make_price, make_session, make_user

pytestmark = pytest.mark.django_db

NAME, MAIL = "Maria Ines Kowalczyk", "maria.k@example.org"
PROMPT = f"{NAME} ({MAIL}) asks for a discount."


class Echo(ScriptedProvider):
    """Answers with what it was sent, so that the way back can be seen."""

    def __init__(self, calls=(), chunk_chars=3):
        super().__init__([Step()])
        self._calls, self._chunk_chars = calls, chunk_chars

    def _next(self, request):
        self.requests.append(request)
        text = request.messages[0]["content"]
        calls = tuple(RequestedCall("c", "f", f'{{"who": "{text}"}}') for _ in self._calls)
        return Step(f"You said: {text}", calls=calls, chunk_chars=self._chunk_chars, usage=Usage(1, 1))


def bound_session():
    owner = make_user()
    return make_session(owner=owner, project=Project.objects.create(owner=owner, name="p", parties=f"{NAME}\n"))


def served(provider):
    from tests.serving import serving

    make_price(MODEL, overhead_tokens=1_000)
    return serving(MODEL, provider)


def test_no_name_leaves_and_every_name_comes_back():
    with served(Echo()) as model:
        result = guarded_tool_call(bound_session(), ToolIntent.RUN_SKILL, ask(prompt=PROMPT))
    sent = str(model.requests[0].messages)
    assert NAME not in sent
    assert MAIL not in sent
    assert "asks for a discount" in sent
    assert result.data["text"] == f"You said: {PROMPT}"


def test_a_call_that_says_so_is_sent_as_it_is():
    with served(Echo()) as model:
        guarded_tool_call(bound_session(), ToolIntent.RUN_SKILL, ask(prompt=PROMPT, anonymize=False))
    assert NAME in str(model.requests[0].messages)


def test_nothing_is_hidden_from_the_analyst_inside_the_process(settings):
    settings.LQOPS_MODELS = {"offline": {"provider": "offline", "input_usd": "1", "output_usd": "1"}}
    result = guarded_tool_call(bound_session(), ToolIntent.RUN_SKILL, ask(model="offline", prompt=PROMPT))
    assert result.ok
    assert InferenceLog.objects.get().provider == "offline"


def test_the_worst_case_is_held_for_what_is_really_sent():
    with served(Echo()) as model:
        guarded_tool_call(bound_session(), ToolIntent.RUN_SKILL, ask(prompt=PROMPT * 20))
    from agents.policy.costs import input_bound, worst_case
    from agents.types import Price

    [sent] = model.requests
    price = Price(MODEL, 1, 1, 1_000)
    assert ToolCall.objects.get().held_usd == worst_case(price, input_bound(sent, price), sent.max_tokens)


def listening(on_chunk):
    """A prompt skill that streams its answer to a listener."""

    def handler(context, params):
        reply = context.infer(on_chunk)
        return {"text": reply.text, "calls": [call.arguments for call in reply.calls]}

    tool = Tool(handler, Capability("chat", level=Level.SAFE, side_effects=False), remote=True, request=request_of)
    return override({ToolIntent.RUN_SKILL: tool})


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
def test_a_listener_hears_names_and_no_secret_however_the_stream_is_cut(size):
    secret = "ghp_" + "a1B2" * 9
    heard = []
    with served(Echo(calls=(1,), chunk_chars=size)), listening(heard.append):
        result = guarded_tool_call(bound_session(), ToolIntent.RUN_SKILL, ask(prompt=f"{PROMPT} Key: {secret} ."))
    text = "".join(chunk.text for chunk in heard)
    assert NAME in text
    assert MAIL in text
    assert secret not in text
    assert text == result.data["text"]
    assert [chunk for chunk in heard if chunk.finished] == [Chunk(finished=True)]
    assert NAME in result.data["calls"][0]
    assert secret not in result.data["calls"][0]


def test_a_listener_hears_one_end_for_each_attempt():
    heard = []
    make_price(MODEL)
    broken = Step("half of it", break_after=4, usage=Usage(1, 1))
    from unittest.mock import patch

    with (
        script(broken, Step("whole")),
        listening(heard.append),
        patch("agents.guard.metering.next_wait", return_value=0.0),
    ):
        result = guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, ask())
    assert result.data["text"] == "whole"
    assert [chunk.text for chunk in heard] == ["half", "", "whole", ""]
    assert sum(chunk.finished for chunk in heard) == 2
    assert issubclass(ProviderError, Exception)


@pytest.mark.parametrize("parties", ["Anna", [1], {"Anna": 1}])
def test_parties_of_a_request_that_are_no_names_are_refused(parties):
    with pytest.raises(BadParams, match="'parties' must be a list of names"):
        guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, {**ask(), "parties": parties}, now=NOW)
