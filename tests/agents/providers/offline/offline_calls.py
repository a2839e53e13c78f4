"""Requests to the offline provider: blocks in one message, the reply as text or JSON."""

import json

from agents.definitions.playbooks import PlaybookText, render_playbook
from agents.enums import Purpose
from agents.providers.offline.provider import OfflineProvider
from agents.text.blocks import render_block
from agents.types import ModelRequest
from tests.agents.providers.listeners import ignore

NONCE = "7f3a9c0e51d2"


def request(*parts, purpose=Purpose.AUTONOMOUS_EXECUTOR, max_tokens=20_000, **more):
    message = {"role": "user", "content": "\n\n".join(parts)}
    return ModelRequest("offline", (message,), max_tokens=max_tokens, purpose=purpose, **more)


def document(text, name="d1"):
    return render_block("document", text, nonce=NONCE, id=name)


def playbook(*positions):
    return render_block("playbook", render_playbook(PlaybookText("Test", 1, positions)), nonce=NONCE)


def skill(text):
    return render_block("skill", text, nonce=NONCE)


def answer(*parts, **more):
    return OfflineProvider().stream(request(*parts, **more), ignore)


def analysis(*parts, **more):
    return json.loads(answer(*parts, **more).text)
