"""Helpers of stream tests: API keys, waiting for a place, and reading events."""

import json
import time
from contextlib import contextmanager

from agents.conf import clock
from agents.people.keys import Scope, api_key_create


def key_of(user, *scopes):
    return api_key_create(user=user, name="k", scopes=scopes or list(Scope), expires_at=None, by=None, now=clock())[1]


@contextmanager
def let_in(http, address, *, within=60, **asked):
    """Open a stream; retry while all places are taken: clients that left may still hold theirs."""
    until = time.monotonic() + within
    while True:
        with http.stream("GET", address, **asked) as answer:
            if answer.status_code != 429 or time.monotonic() > until:
                yield answer
                return
        time.sleep(0.05)


def coming(lines):
    """Yield (name, id, data) of every event until the connection is closed."""
    name = number = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            number = value
        elif field == "data":
            yield name, number, json.loads(value)
        elif not line:
            name = number = ""
