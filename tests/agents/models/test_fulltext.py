"""The index can be taken away and brought back with rows in the table: they are found again."""

import pytest
from django.db import connection

from agents.knowledge.search import search_chunks
from agents.models import Chunk, fulltext
from tests.agents.knowledge.samples import make_document
from tests.factories import make_user

pytestmark = pytest.mark.django_db(transaction=True)


def traces():
    """Whatever there is of the index in the database."""
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE name LIKE 'chunk_fts%%'",
        "postgresql": "SELECT column_name FROM information_schema.columns "
        "WHERE table_name = 'agents_chunk' AND column_name = 'words' "
        "UNION SELECT indexname FROM pg_indexes WHERE indexname = 'agents_chunk_words'",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(query)
        return {name for (name,) in cursor.fetchall()}


def test_the_index_comes_and_goes_while_chunks_stay():
    owner = make_user()
    make_document(owner, "About elephants.")
    there = traces()

    fulltext.remove(connection)
    left = traces()
    fulltext.install(connection)

    assert left == set()
    assert traces() == there != set()
    assert Chunk.objects.count() == 1
    assert len(search_chunks(owner_id=owner.pk, query="elephants")) == 1


def test_installing_the_index_twice_is_harmless():
    owner = make_user()
    make_document(owner, "About elephants.")
    there = traces()

    fulltext.install(connection)

    assert traces() == there
    assert len(search_chunks(owner_id=owner.pk, query="elephants")) == 1


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no such list")
def test_the_list_of_new_words_stays_short():
    """Every search reads through it, and whoever fills it enters all of it into the index."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'agents_chunk_words'")
        assert cursor.fetchone() == (["gin_pending_list_limit=64"],)
