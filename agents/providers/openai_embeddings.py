"""Any server that speaks the OpenAI embeddings protocol: one request with texts, one answer with a vector for each.

An answer is taken whole or not at all: a vector for every text, all of one length, of finite numbers that are not all
zero. Vectors are brought to length 1, so that the nearest one is the one with the largest product.
"""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.http import Assembly, HttpProvider, count_of
from agents.providers.openai_compat import usage_of
from agents.types import ModelReply, ModelRequest, Usage

MOST_DIMENSIONS: Final = 16_384


class OpenAIEmbeddings(HttpProvider):
    path = "embeddings"

    def payload(self, request: ModelRequest) -> dict[str, Any]:
        texts = [str(message["content"]) for message in request.messages]
        return {**self.endpoint.extra, "model": self.endpoint.model, "input": texts, "encoding_format": "float"}

    def assembly(self, request: ModelRequest) -> Assembly:
        return Vectors(len(request.messages))

    def explained(self, error: ProviderError, request: ModelRequest, sent: Mapping[str, Any]) -> ProviderError:
        return error


@dataclass
class Vectors:
    """The answer to a request with `texts` texts."""

    texts: int
    vectors: tuple[bytes, ...] = ()
    usage: Usage | None = None
    is_done: bool = False
    received_bytes: int = 0

    def add(self, event: dict[str, Any]) -> Chunk:
        raise _malformed("streams its answer; vectors come in one piece")

    def add_whole(self, answer: dict[str, Any]) -> Chunk:
        self.usage = usage_of(answer.get("usage"))
        self.vectors = _in_order(answer.get("data"), self.texts)
        self.is_done = True
        return Chunk()

    def close(self) -> Chunk:
        return Chunk()

    def reply(self) -> ModelReply:
        if not self.is_done:
            raise _malformed("did not answer with JSON")
        return ModelReply("", usage=self.usage, vectors=self.vectors)


def _in_order(data: object, texts: int) -> tuple[bytes, ...]:
    """Return the vectors in the order of the texts; servers may send them in any order."""
    entries = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    if len(entries) != texts:
        raise _malformed(f"sent {len(entries)} vectors for {texts} texts")
    found = {count_of(one.get("index")): one.get("embedding") for one in entries}
    if found.keys() != set(range(texts)):
        raise _malformed("did not number its vectors by their texts")
    vectors = [_unit(_numbers(found[number])) for number in range(texts)]
    if len({len(vector) for vector in vectors}) != 1:
        raise _malformed("sent vectors of different lengths")
    return tuple(vectors)


def _numbers(value: object) -> Sequence[float]:
    """Return the numbers of a vector: a list, or base64 of 32-bit numbers from servers that send nothing else."""
    if isinstance(value, str):
        try:
            value = [number for (number,) in struct.iter_unpack("<f", base64.b64decode(value, validate=True))]
        except (ValueError, struct.error):
            raise _malformed("sent a vector that is neither a list of numbers nor base64 of them") from None
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_DIMENSIONS:
        raise _malformed(f"sent a vector that is no list of 1 to {MOST_DIMENSIONS} numbers")
    if not all(type(one) in {int, float} for one in value):
        raise _malformed("sent a vector with something else than numbers")
    return value


def _unit(numbers: Sequence[float]) -> bytes:
    try:
        length = math.hypot(*numbers)
    except OverflowError:
        length = math.inf
    if not math.isfinite(length) or not length:
        raise _malformed("sent a vector that is infinite, no number, or all zeros")
    return struct.pack(f"<{len(numbers)}f", *(one / length for one in numbers))


def _malformed(fault: str) -> ProviderError:
    return ProviderError(f"The embedding server {fault}.", fault=Fault.MALFORMED)
