"""How long questions and answers may be: what is declared for a model and a purpose, and where nothing is."""

import pytest

from agents.enums import Purpose, ToolIntent
from agents.guard import guarded_tool_call
from agents.ledger.model_limits import answer_tokens, context_tokens, fitting_tokens, question_tokens
from agents.providers.scripted import Step
from tests.agents.conftest import MODEL, ask, script
from tests.factories import make_price, make_session


@pytest.fixture
def declare(settings):
    def declare(**keys):
        settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", **keys}}

    return declare


def test_nothing_declared_leaves_the_defaults():
    assert context_tokens(MODEL) == 0
    assert question_tokens(MODEL, answer=4_096) == 0
    assert answer_tokens(MODEL) == 4_096
    assert answer_tokens(MODEL, Purpose.CHAT, otherwise=1_024) == 1_024
    assert fitting_tokens(MODEL, Purpose.JUDGE, 256) == 256


def test_a_number_limits_long_answers_and_leaves_short_ones(declare):
    declare(max_tokens=8_192)
    assert answer_tokens(MODEL) == answer_tokens(MODEL, Purpose.CHAT, otherwise=1_024) == 8_192
    assert answer_tokens(MODEL, Purpose.JUDGE, otherwise=256) == 256
    assert fitting_tokens(MODEL, Purpose.CHAT, 20_000) == 8_192
    assert fitting_tokens(MODEL, Purpose.CHAT, 100) == 100
    assert fitting_tokens(MODEL, Purpose.JUDGE, 256) == 256


def test_a_table_names_purposes(declare):
    declare(max_tokens={"default": 8_192, "chat": 2_000, "judge": 900})
    assert answer_tokens(MODEL) == 8_192
    assert answer_tokens(MODEL, Purpose.CHAT) == 2_000
    assert fitting_tokens(MODEL, Purpose.JUDGE, 256) == 900, "a short answer gets what the table says"
    assert fitting_tokens(MODEL, Purpose.SIGNAL, 16) == 16


def test_a_question_leaves_room_for_its_answer(declare):
    declare(context_window=10_000)
    assert context_tokens(MODEL) == 10_000
    assert question_tokens(MODEL, answer=4_096) == 5_904
    assert question_tokens(MODEL, answer=9_000) == 5_000


def test_a_model_that_thinks_gets_room_for_it(declare):
    declare(reasoning=True)
    assert fitting_tokens(MODEL, Purpose.PRECHECK, 5) == 4_096
    assert fitting_tokens(MODEL, Purpose.CHAT, 9_000) == 9_000
    declare(reasoning="unopened", max_tokens={"default": 20_000, "judge": 2_000})
    assert fitting_tokens(MODEL, Purpose.PRECHECK, 5) == fitting_tokens(MODEL, Purpose.CHAT, 100) == 20_000
    assert fitting_tokens(MODEL, Purpose.JUDGE, 256) == 2_000
    declare(reasoning=False, max_tokens=20_000)
    assert fitting_tokens(MODEL, Purpose.PRECHECK, 5) == 5


@pytest.mark.django_db(transaction=True)
def test_no_request_asks_for_more_than_its_model_declares(declare):
    declare(max_tokens=300)
    make_price(MODEL, input_usd="1", output_usd="1")
    with script(Step("fine")) as model:
        for place, wanted in enumerate((200, 4_096)):
            params = {**ask(), "max_tokens": wanted}
            guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, params, key=f"turn:{place}")
    assert [request.max_tokens for request in model.requests] == [200, 300]


@pytest.mark.django_db(transaction=True)
def test_the_budget_still_limits_what_is_declared(declare):
    declare(max_tokens=100_000)
    make_price(MODEL, input_usd="1", output_usd="100")
    with script(Step("fine")) as model:
        session = make_session(max_cost_usd="0.10")
        params = {**ask(), "max_tokens": answer_tokens(MODEL)}
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key="turn:1").ok
    assert 256 <= model.requests[0].max_tokens < 1_000
