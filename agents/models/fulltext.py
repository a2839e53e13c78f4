"""The full-text index over the chunks, in each database's own words. It follows the rows of agents_chunk by itself.

SQLite: an FTS5 table without a copy of the text, kept by triggers. PostgreSQL: a generated column with a GIN index.
A migration that rebuilds agents_chunk on SQLite drops the triggers with the old table: it has to remove and install.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

# `chunk_fts` is not named agents_…: what has that prefix is the table of a model.
_FTS5 = "text, content='agents_chunk', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2'"
_ENTER = "INSERT INTO chunk_fts (rowid, text) VALUES (new.id, new.text)"
# FTS5 takes a row out of the index by the text that it was indexed under.
_LEAVE = "INSERT INTO chunk_fts (chunk_fts, rowid, text) VALUES ('delete', old.id, old.text)"
_SQLITE = {
    "install": [
        f"CREATE VIRTUAL TABLE IF NOT EXISTS chunk_fts USING fts5({_FTS5})",
        f"CREATE TRIGGER IF NOT EXISTS chunk_fts_insert AFTER INSERT ON agents_chunk BEGIN {_ENTER}; END",
        f"CREATE TRIGGER IF NOT EXISTS chunk_fts_delete AFTER DELETE ON agents_chunk BEGIN {_LEAVE}; END",
        f"CREATE TRIGGER IF NOT EXISTS chunk_fts_update AFTER UPDATE ON agents_chunk BEGIN {_LEAVE}; {_ENTER}; END",
        "INSERT INTO chunk_fts (chunk_fts) VALUES ('rebuild')",  # rows from before
    ],
    "remove": [
        "DROP TRIGGER IF EXISTS chunk_fts_insert",
        "DROP TRIGGER IF EXISTS chunk_fts_delete",
        "DROP TRIGGER IF EXISTS chunk_fts_update",
        "DROP TABLE IF EXISTS chunk_fts",
    ],
}
# New words wait in a list that every search reads through, and are entered into the index when the list is full. With
# PostgreSQL's own limit of 4 MB a search could take 42 ms instead of 13, and the upload that fills the list 298 ms.
PENDING = "gin_pending_list_limit = 64"  # kB
_WORDS = "words tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED"
_POSTGRESQL = {
    "install": [
        f"ALTER TABLE agents_chunk ADD COLUMN IF NOT EXISTS {_WORDS}",
        "CREATE INDEX IF NOT EXISTS agents_chunk_words ON agents_chunk USING gin (words)",
        f"ALTER INDEX agents_chunk_words SET ({PENDING})",
    ],
    "remove": ["ALTER TABLE agents_chunk DROP COLUMN IF EXISTS words"],  # its index goes with it
}
_DIALECTS = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}


def install(connection: BaseDatabaseWrapper) -> None:
    _run(connection, "install")


def remove(connection: BaseDatabaseWrapper) -> None:
    _run(connection, "remove")


def _run(connection: BaseDatabaseWrapper, what: str) -> None:
    with connection.cursor() as cursor:
        for statement in _DIALECTS[connection.vendor][what]:
            cursor.execute(statement)
