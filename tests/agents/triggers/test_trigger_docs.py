"""The page about triggers: its signing example works as it stands there."""

import re
from pathlib import Path

import pytest

from agents.triggers.triggers import trigger_secret
from tests.factories import NOW

from .messages import BODY, make_hook, receive

PAGE = Path(__file__).resolve().parents[3] / "docs/triggers.md"


@pytest.mark.django_db
def test_what_the_example_signs_is_taken():
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(example, names)
    trigger = make_hook()
    headers = names["headers_for"](trigger_secret(trigger), "msg_1", BODY, int(NOW.timestamp()))
    assert receive(trigger, headers).code == "spawned"
