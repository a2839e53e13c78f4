"""How many of the labelled questions does a search answer among its first five hits?

    python -m tests.benchmarks.recall
    python -m tests.benchmarks.recall --url http://127.0.0.1:11434/v1 --model nomic-embed-text [--key-env VARIABLE]
    python -m tests.benchmarks.recall --passages 100000 --dimensions 768

Without an address full text alone is measured; with one, vectors alone and both together, too. The server is asked as
in an installation: the passages by an index run, each question by a run of its own. With `--passages` the time of a
comparison is measured instead, with random vectors. Runs on a throw-away SQLite file, or on the test database of
LQOPS_TEST_DATABASE_URL. The questions, and what their kinds mean, are in tests/agents/knowledge/questions.toml.
"""

import argparse
import logging
import os
import sys
import tempfile
import time
from array import array
from collections import Counter
from random import Random
from unittest import mock

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import override_settings  # noqa: E402

from agents.conf import clock  # noqa: E402
from agents.engine.indexing import fetch_for_person, index_start, run_index  # noqa: E402
from agents.knowledge import vectors  # noqa: E402
from agents.knowledge.search import search_chunks  # noqa: E402
from agents.models import AgentSession, Chunk, ChunkVector  # noqa: E402
from agents.runner import run_session  # noqa: E402
from tests.agents.knowledge.recall_at import FIRST, KINDS, answered, labelled_questions  # noqa: E402
from tests.agents.knowledge.samples import make_document  # noqa: E402
from tests.factories import make_starter  # noqa: E402

logging.disable(logging.INFO)
QUESTIONS = labelled_questions()


def by_words(owner):
    return lambda text: [hit.name for hit in search_chunks(owner_id=owner.pk, query=text)]


def by_meaning(owner):
    names = dict(Chunk.objects.filter(document__owner=owner).values_list("pk", "document__name"))
    space = vectors.vector_space()

    def search(text):
        vector = vectors.query_vector(space, text, owner_id=owner.pk)
        return [names[pk] for pk in vectors.nearest(space, vector, owner_id=owner.pk, limit=FIRST)]

    return search


def measure_recall(options):
    owner = make_starter()
    for one in QUESTIONS:
        make_document(owner, one.text, name=one.name)
    report("full text", answered(QUESTIONS, by_words(owner)))
    if not options.url:
        return
    entry = {"provider": "openai_embeddings", "url": options.url, "input_usd": "1", "output_usd": "0"}
    entry |= {"name": options.model, "key_env": options.key_env}
    models = {**settings.LQOPS_MODELS, options.model: entry}
    roles = {**settings.LQOPS_MODEL_ROLES, "embeddings": [options.model]}
    with override_settings(LQOPS_MODELS=models, LQOPS_MODEL_ROLES=roles):
        session = index_start(owner=owner, by=None, now=clock())
        run_session(session.pk, run_index, owner="benchmark")
        ended = AgentSession.objects.get(pk=session.pk)
        for one in QUESTIONS:
            if reason := ended.error or fetch_for_person(query=one.question, by=owner, now=clock()):
                sys.exit(f"{options.model} could not be asked: {reason}")
        report(f"vectors of {options.model}", answered(QUESTIONS, by_meaning(owner)))
        report("both, ranks fused", answered(QUESTIONS, by_words(owner)))


def report(name, found):
    asked = Counter(one.kind for one in QUESTIONS)
    kinds = ", ".join(f"{kind} words {found[kind]} of {asked[kind]}" for kind in KINDS)
    recall = found.total() / asked.total()
    sys.stdout.write(f"{connection.vendor}: {name}, recall@{FIRST} {recall:.1%}, {found.total()}: {kinds}\n")


def measure_time(options):
    owner, numbers = make_starter(), Random(1)
    text = "x" * 1_000
    document = make_document(owner, text)
    chunks = [
        Chunk(document=document, number=2 + number, start=0, end=1, text="x") for number in range(options.passages)
    ]
    pks = [row.pk for row in Chunk.objects.bulk_create(chunks, batch_size=500)]

    def vector():
        return array("f", (numbers.gauss(0, 1) for _ in range(options.dimensions))).tobytes()

    some = [vector() for _ in range(997)]
    rows = (ChunkVector(chunk_id=pk, owner=owner, space="s", vector=some[pk % 997]) for pk in pks)
    for _ in range(-(-len(pks) // 5_000)):
        ChunkVector.objects.bulk_create([row for row, _ in zip(rows, range(5_000), strict=False)])
    query = vector()
    for name, most in (("kept in memory", vectors.MOST_BYTES), ("read in parts", 0)):
        size = options.passages * options.dimensions * 4
        if most and size > most:
            continue
        with mock.patch.object(vectors, "MOST_BYTES", most):
            times = []
            for _ in range(4):
                began = time.perf_counter()
                vectors.nearest("s", query, owner_id=owner.pk, limit=30)
                times.append(time.perf_counter() - began)
        sys.stdout.write(
            f"{connection.vendor}: {options.passages:,} passages of {options.dimensions} dimensions, {name}: "
            f"first {times[0]:.2f} s, then {min(times[1:]):.3f} s\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--model", default="embeddings")
    parser.add_argument("--key-env", default="")
    parser.add_argument("--passages", type=int)
    parser.add_argument("--dimensions", type=int, default=768)
    options = parser.parse_args()
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        with tempfile.TemporaryDirectory() as folder, override_settings(MEDIA_ROOT=folder):
            measure_time(options) if options.passages else measure_recall(options)
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
