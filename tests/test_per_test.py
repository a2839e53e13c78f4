"""A test begins with nothing of another, although few fixtures are made for it."""

import pytest
from django.core import mail
from django.core.mail import send_mail
from django.db import IntegrityError, connection, transaction

from agents.models import Lease
from tests import per_test


def test_every_fixture_that_is_left_out_exists(request):
    known = request.session._fixturemanager
    assert [name for name in per_test.LEFT_OUT if not known.getfixturedefs(name, request.node)] == []
    assert not per_test.LEFT_OUT & {*request.fixturenames}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.django_db
def test_rows_and_messages_of_another_test_are_gone(number):
    assert (Lease.objects.filter(name="of a test").count(), mail.outbox) == (0, [])
    Lease.objects.create(name="of a test")
    send_mail("Subject", "Text", "from@example.org", ["to@example.org"])


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.django_db(transaction=True)
def test_committed_rows_of_another_test_are_gone(number):
    assert not connection.in_atomic_block
    assert not Lease.objects.filter(name="of a test").exists()
    Lease.objects.create(name="of a test")


@pytest.mark.django_db
def test_transaction_of_the_test_is_not_one_of_the_product():
    with pytest.raises(IntegrityError), transaction.atomic(durable=True):
        Lease.objects.create(name="of a test")
        Lease.objects.create(name="of a test")
