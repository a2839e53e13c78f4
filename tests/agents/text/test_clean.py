"""Values that a database or JSON cannot hold."""

import pytest

from agents.enums import Phase, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import Finding, ToolCall
from agents.text.clean import json_safe
from audit.redaction import redact_data
from tests.agents.conftest import Probe, tool
from tests.factories import make_session

RUBBISH = {"nul": "a\x00b", "half": "a\ud83d", "list": [float("nan"), ("x\x00",)], 1: "one", "deep": {"ok": 1.5}}
CLEAN = {"nul": "a\ufffdb", "half": "a\ufffd", "list": ["nan", ["x\ufffd"]], "1": "one", "deep": {"ok": 1.5}}


def test_unstorable_characters_are_replaced_visibly():
    assert json_safe(RUBBISH) == CLEAN
    assert json_safe(CLEAN) == CLEAN


def test_a_value_that_is_nested_too_deep_is_refused():
    deep = ["kept"]
    for _ in range(63):
        deep = [deep]
    assert redact_data(json_safe(deep)) == deep
    with pytest.raises(ValueError, match="64 levels"):
        json_safe([deep])


@pytest.mark.django_db
def test_unstorable_arguments_and_results_break_no_call():
    session = make_session(current_phase=Phase.TURN)
    assert guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "a\x00b\ud83d"}).ok
    assert Finding.objects.get().title == "a\ufffdb\ufffd"
    with tool(probe=Probe(RUBBISH)):
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, {"x": RUBBISH}).data == CLEAN
    with tool(probe=Probe(error=RuntimeError("bad \x00 byte"))):
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, {}).error == "RuntimeError: bad \ufffd byte"
    assert ToolCall.objects.count() == 3


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["x" * 97, "with space", "line\nbreak"])
def test_a_key_that_is_not_a_label_is_refused(key):
    with pytest.raises(ValueError, match="label"):
        guarded_tool_call(make_session(), ToolIntent.EMIT_FINDING, {}, key=key)
