"""Words are cut as FTS5 cuts them: what its index has under one word is counted as that word."""

import re
import sqlite3
from pathlib import Path

from agents.text.stems import stem
from tests.table import every_row

DOCS = Path(__file__).parents[3] / "docs"
RARE = {
    "caresses", "ponies", "ties", "cats", "agreed", "plastered", "motoring", "sing", "conflated", "troubled", "sized",
    "hopping", "falling", "hissing", "fizzed", "failing", "filing", "happy", "sky", "relational", "conditional",
    "rational", "digitizer", "analogically", "possibly", "radically", "differently", "vilely", "analogously",
    "vietnamization", "predication", "operator", "feudalism", "decisiveness", "hopefulness", "callousness", "formality",
    "sensitivity", "sensibility", "triplicate", "formative", "formalize", "electricity", "electrical", "hopeful",
    "goodness", "revival", "allowance", "inference", "airliner", "gyroscopic", "adjustable", "defensible", "irritant",
    "replacement", "adjustment", "dependent", "adoption", "homologou", "communism", "activate", "angularity",
    "effective", "bowdlerize", "probate", "rate", "cease", "controll", "roll", "eed", "ies", "sses", "ing", "ed", "yy",
    "aye", "x" * 70, "a" * 60 + "able", "2026", "12th",
}  # fmt: skip


@every_row(("word", "found"), [("terminating", "termin"), ("invoices", "invoic"), ("is", "is"), ("fees", "fee")])
def test_word_loses_its_ending(word, found):
    assert stem(word) == found


def test_stems_are_those_of_the_index():
    text = " ".join(path.read_text() for path in sorted(DOCS.rglob("*.md"))).lower()
    words = sorted(RARE | set(re.findall("[a-z]+", text)))
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE kept USING fts5(word, tokenize='porter unicode61 remove_diacritics 2')")
    index.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(kept, 'instance')")
    index.executemany("INSERT INTO kept (rowid, word) VALUES (?, ?)", enumerate(words))
    theirs = dict(index.execute("SELECT doc, term FROM terms"))
    index.close()

    assert len(words) > 3_000
    assert {word: stem(word) for word in words} == {word: theirs[number] for number, word in enumerate(words)}
