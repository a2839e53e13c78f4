"""Replies of a scripted model in loops, and the text of its requests."""

import json
from datetime import UTC, datetime

from agents.providers.scripted import Step
from agents.types import RequestedCall, Usage

START = datetime(2026, 3, 16, 9, 0, tzinfo=UTC)  # a Monday
SMALL = "small-model"
USAGE = Usage(10, 10)
SHORT = Usage(10, 1)


def says(*calls, usage=USAGE, **more):
    """A reply with native calls: pairs of a name and its arguments."""
    asked = tuple(RequestedCall(str(place), name, json.dumps(given)) for place, (name, given) in enumerate(calls))
    return Step(more.pop("text", ""), stop_reason="tool_use", calls=asked, usage=usage, **more)


def yields(mode, sleep=None, *, wake=None, reason="", **more):
    given = {"mode": mode} | ({"sleep": sleep} if sleep is not None else {}) | ({"wake_early_if": wake} if wake else {})
    return says(("yield", {**given, "reason": reason}), **more)


def sleeps(seconds, **more):
    return yields("sleep", seconds, **more)


GO_ON = yields("continue")
SHUT_DOWN = yields("shutdown", reason="all is done")


def prompt(request):
    """The text of all messages in one request."""
    return "\n".join(message["content"] or "" for message in request.messages)
