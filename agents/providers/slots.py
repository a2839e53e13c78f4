"""Turns at a model whose `concurrency` is declared, counted for the whole installation.

A turn is a row with a lease by the database's clock: its holder renews it while the request is out, and the turn of a
process that died is free when the lease has run out.
"""

import time
import uuid
from datetime import timedelta
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import DateTimeField, ExpressionWrapper
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from agents.models import ModelTurn

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
        """Take a free turn. False: as many requests as are allowed are out now."""
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
            ModelTurn.objects.filter(holder=self._holder).update(held_until=LEASE_END)
            self._renew_at = time.monotonic() + RENEWED_AFTER

    def give_back(self) -> None:
        ModelTurn.objects.filter(holder=self._holder).delete()
