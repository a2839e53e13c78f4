"""Many writers, one chain: real threads with their own connections, on SQLite and on PostgreSQL."""

import sys
import threading
import time

import pytest
from django.db import connection, transaction

from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append
from audit.verify import verify_log
from tests.audit.samples import NOW, RUN

pytestmark = pytest.mark.django_db(transaction=True)


def write_together(writers, rows, chain_of, add=append):
    """Each writer appends its rows; returns rows per second."""
    errors = []
    gate = threading.Barrier(writers + 1)

    def write(number):
        try:
            gate.wait()
            for turn in range(rows):
                add(chain_of(number), "autonomous_session.resumed", now=NOW, details={"recoveries": turn})
        except Exception as error:  # noqa: BLE001 the test reports whatever a thread met
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    gate.wait()
    begun = time.monotonic()
    for thread in threads:
        thread.join()
    assert errors == []
    return writers * rows / (time.monotonic() - begun)


def numbers(chain):
    return list(AuditEvent.objects.filter(chain=chain).order_by("seq").values_list("seq", flat=True))


def test_eight_writers_keep_one_chain_without_a_gap():
    write_together(8, 50, lambda number: RUN)
    assert numbers(RUN) == list(range(1, 401))
    assert numbers(SYSTEM_CHAIN) == [1]
    assert verify_log().verified


def test_writers_in_transactions_of_their_own_keep_one_chain():
    """As services write: more than one row, in a transaction that is open for longer."""

    def append_thrice(chain, kind, **facts):
        with transaction.atomic():
            stale = append(chain, kind, **facts)
            append(chain, kind, **facts)
            append(chain, kind, **facts, after=stale)

    write_together(8, 10, lambda number: RUN, append_thrice)
    assert numbers(RUN) == list(range(1, 241))
    assert verify_log().verified


def test_writers_that_open_their_own_chains_share_system():
    write_together(8, 5, lambda number: f"run-{number}")
    assert numbers(SYSTEM_CHAIN) == list(range(1, 9))
    assert verify_log().chains == 9
    assert verify_log().verified


@pytest.mark.stress
def test_32_writers_of_1000_rows_keep_one_chain(capsys):
    """300 rows/s on SQLite, or, on a disk too slow for one writer to reach it by far, half of what that one does."""
    alone = write_together(1, 500, lambda number: "alone")
    speed = write_together(32, 1_000, lambda number: RUN)
    with capsys.disabled():
        sys.stdout.write(f"\n{connection.vendor}: 32 writers on one chain {speed:.0f} rows/s, one alone {alone:.0f}\n")
    assert numbers(RUN) == list(range(1, 32_001))
    assert verify_log().verified
    assert speed >= min(300, alone / 2) or connection.vendor != "sqlite"
