"""What listens to streams needs: keys, a place, and events read from the lines of an answer."""

import json
import time
from contextlib import contextmanager

from agents.conf import clock
from agents.people.keys import Scope, api_key_create


def key_of(user, *scopes):
    return api_key_create(user=user, name="k", scopes=scopes or list(Scope), expires_at=None, by=None, now=clock())[1]


@contextmanager
def let_in(http, address, *, within=60, **asked):
    """The answer to whoever asks for a stream until there is a place: those who left may still have theirs."""
    until = time.monotonic() + within
    while True:
        with http.stream("GET", address, **asked) as answer:
            if answer.status_code != 429 or time.monotonic() > until:
                yield answer
                return
        time.sleep(0.05)


def coming(lines):
    """(name, id, data) of every event as it comes, until the connection is closed."""
    name = number = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            number = value
        elif field == "data":
            yield name, number, json.loads(value)
            name = number = ""
