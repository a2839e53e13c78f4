"""Turns at a model whose `concurrency` is declared, counted for the whole installation.

A turn is a row with a lease by the database's clock: its holder renews it while the request is out, and the turn of a
process that died is free when the lease has run out. So is one that could not be given back: an error of the database
delays a request that waits for a turn, and ends none that is out.
"""

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.db.models import DateTimeField, ExpressionWrapper
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from agents.models import ModelTurn

logger = logging.getLogger(__name__)

RENEWED_AFTER: Final = 8.0  # seconds


def lease_end(lease: timedelta) -> "ExpressionWrapper[CombinedExpression]":
    """The end of a lease that begins now, by the database's clock."""
    return ExpressionWrapper(Now() + lease, output_field=DateTimeField())


LEASE_END: Final = lease_end(timedelta(seconds=30))


class Turn:
    """One request's turn: taken, renewed and given back by the thread that makes the request."""

    def __init__(self, model: str, *, most: int) -> None:
        self._model = model
        self._most = most
        self._holder = uuid.uuid4().hex
        self._renew_at = 0.0

    def take(self) -> bool:
        """Take a free turn. False: as many requests as are allowed are out now, or the database does not answer."""
        with _tolerant("taken"):
            return self._take()
        return False

    def _take(self) -> bool:
        rows = ModelTurn.objects.filter(model=self._model)
        held = set(rows.filter(held_until__gt=Now()).values_list("number", flat=True))
        free = next((number for number in range(self._most) if number not in held), None)
        if free is None:
            return False
        taken = rows.filter(number=free, held_until__lte=Now()).update(holder=self._holder, held_until=LEASE_END)
        if not taken and not self._insert(free):
            return False  # another request was faster; the caller asks again
        self._renew_at = time.monotonic() + RENEWED_AFTER
        return True

    def _insert(self, number: int) -> bool:
        try:
            with transaction.atomic():
                ModelTurn.objects.create(model=self._model, number=number, holder=self._holder, held_until=LEASE_END)
        except IntegrityError:
            return False
        return True

    def renew(self) -> None:
        """Keep the turn for a while longer, if it is time to."""
        if time.monotonic() >= self._renew_at:
            with _tolerant("renewed"):
                ModelTurn.objects.filter(holder=self._holder).update(held_until=LEASE_END)
            self._renew_at = time.monotonic() + RENEWED_AFTER

    def give_back(self) -> None:
        with _tolerant("given back"):
            ModelTurn.objects.filter(holder=self._holder).delete()


@contextmanager
def _tolerant(done: str) -> Iterator[None]:
    """Log an error of the database and drop the broken connection, instead of raising: the reply may be paid for."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        logger.warning("a turn at a model could not be %s (%s)", done, type(error).__name__)
        connection.close()
