"""Whether a history of messages is complete: every call with its result."""

from agents.policy.context_window import blocks


def is_paired(messages):
    """Return whether every call has exactly one result right behind it, and no result stands without its call."""
    return all(_is_whole(*block) for block in blocks(messages))


def _is_whole(first, *results):
    called = [call["id"] for call in first.get("tool_calls") or ()]
    answered = [result.get("tool_call_id") for result in results if result["role"] == "tool"]
    same = len(set(called)) == len(called) == len(answered) and set(called) == set(answered)
    return first["role"] != "tool" and same
