"""A strict server of OpenAI's `/embeddings` on loopback, after its public documentation, and an installation with it.

It refuses what the documentation says is refused: unknown fields, an empty list, empty texts, more than 2,048 of them.
A vector counts words by what they mean, for the few words of MEANINGS: so tests know which passages are near.
"""

import base64
import hashlib
import json
import re
from array import array
from contextlib import ExitStack, contextmanager
from typing import Annotated, Literal
from unittest import mock

from django.conf import settings
from django.test import override_settings
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.knowledge import vectors
from agents.ledger.prices import invalidate_estimates
from agents.providers import registry
from tests.agents.providers.hostile_servers import Server, answer

MODEL = "embedder"
SECRET = "sk-wire-1"
DIMENSIONS = 16
MEANINGS = (
    {"car", "cars", "vehicle", "vehicles", "automobile"},
    {"terminate", "terminates", "quit", "leave", "cancel"},
    {"pay", "invoice", "invoices", "bill", "money"},
    {"secret", "confidential", "private"},
)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str, Field(min_length=1)]
    input: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=2_048)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


def vector_of(text, dimensions=DIMENSIONS):
    """Count words by their meaning; all others share the rest of the numbers."""
    numbers = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()):
        meaning = next((place for place, words in enumerate(MEANINGS) if word in words), None)
        if meaning is not None:
            numbers[meaning % dimensions] += 1.0
        else:
            rest = int(hashlib.sha256(word.encode()).hexdigest(), 16) % max(dimensions - len(MEANINGS), 1)
            numbers[-1 - rest] += 0.1
    return numbers if any(numbers) else [1.0, *numbers[1:]]


def answer_to(request, *, change=lambda data: data, usage=True):
    """Return the documented answer; `change` takes its `data`, in an order that is not that of the texts."""
    size = request.get("dimensions") or DIMENSIONS
    data = [
        {"object": "embedding", "index": place, "embedding": vector_of(text, size)}
        for place, text in enumerate(request["input"])
    ]
    tokens = sum(len(text.split()) for text in request["input"])
    used = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if usage else {}
    return {"object": "list", "data": change(data[::-1]), "model": request["model"], **used}


def as_base64(data):
    return [{**one, "embedding": base64.b64encode(array("f", one["embedding"]).tobytes()).decode()} for one in data]


class Embeddings:
    """Answers requests in their documented form; refuses all others as the real endpoint does."""

    def __init__(self, **more):
        self.more = more

    def __call__(self, connection, body):
        request = json.loads(body)
        try:
            Body.model_validate(request)
        except ValidationError as error:
            message = {"error": {"message": str(error)[:300], "type": "invalid_request_error"}}
            return answer(400, message)(connection, body)
        return answer(200, answer_to(request, **self.more))(connection, body)


@contextmanager
def embedding(*scripts, roles=True, **declared):
    """Have an installation whose embeddings come from a server that plays these scripts. Yields the server."""
    server = Server(*(scripts or (Embeddings(),)))
    entry = {
        "provider": "openai_embeddings",
        "url": server.url,
        "input_usd": "0.02",
        "output_usd": "0",
        "key_env": "LQOPS_TEST_EMBEDDINGS_KEY",
        **declared,
    }
    with ExitStack() as stack:
        stack.enter_context(server)
        given = {"embeddings": [MODEL]} if roles else {}
        changed = {"LQOPS_MODELS": {**settings.LQOPS_MODELS, MODEL: entry}}
        changed["LQOPS_MODEL_ROLES"] = {**settings.LQOPS_MODEL_ROLES, **given}
        stack.enter_context(override_settings(**changed))
        stack.enter_context(mock.patch.dict("os.environ", LQOPS_TEST_EMBEDDINGS_KEY=SECRET))
        made = stack.enter_context(mock.patch.dict(registry._made))
        made.pop(MODEL, None)
        stack.enter_context(mock.patch.dict(vectors._kept, clear=True))
        # A test's own transaction hides its session from the connection of the heartbeat.
        stack.enter_context(mock.patch("agents.runner.lease_renewal_seconds", return_value=60))
        invalidate_estimates()
        try:
            yield server
        finally:
            provider = made.pop(MODEL, None)
            if hasattr(provider, "_inner") and hasattr(provider._inner, "close"):
                provider._inner.close()
