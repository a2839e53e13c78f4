"""How many of the labelled questions does a search answer among its first five hits?

    python -m tests.benchmarks.recall

Runs on a throw-away SQLite file, or on the test database of LQOPS_TEST_DATABASE_URL. The questions, and what their
kinds mean, are in tests/agents/knowledge/questions.toml.
"""

import os
import sys
import tempfile
from collections import Counter

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connection  # noqa: E402
from django.test import override_settings  # noqa: E402

from agents.knowledge.search import search_chunks  # noqa: E402
from tests.agents.knowledge.recall_at import FIRST, KINDS, answered, labelled_questions  # noqa: E402
from tests.agents.knowledge.samples import make_document  # noqa: E402
from tests.factories import make_user  # noqa: E402

QUESTIONS = labelled_questions()


def full_text() -> Counter[str]:
    owner = make_user()
    for one in QUESTIONS:
        make_document(owner, one.text, name=one.name)
    return answered(QUESTIONS, lambda text: [hit.name for hit in search_chunks(owner_id=owner.pk, query=text)])


def main() -> int:
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        with tempfile.TemporaryDirectory() as folder, override_settings(MEDIA_ROOT=folder):
            found = full_text()
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
    asked = Counter(one.kind for one in QUESTIONS)
    kinds = ", ".join(f"{kind} words {found[kind]} of {asked[kind]}" for kind in KINDS)
    recall = found.total() / asked.total()
    sys.stdout.write(f"{connection.vendor}: full text, recall@{FIRST} {recall:.0%}: {kinds}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
