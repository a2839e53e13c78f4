"""Hostile YAML: nothing is executed, and each trick is refused within a second, with a reason."""

import pytest
import yaml

from agents.definitions.playbooks import read_playbook
from agents.exceptions import Invalid
from agents.text import strict_yaml
from agents.text.strict_yaml import MAX_BYTES, MAX_DEPTH, MAX_NODES
from tests.effort import takes_at_most
from tests.table import every_row

GOOD = "name: n\npositions: [{issue: i}]\n"


def canary(path):
    """Ways to make a file appear, for a reader that constructs objects."""
    return {
        "object/apply": f"name: !!python/object/apply:os.system ['touch {path}']",
        "object/new": f"name: !!python/object/new:os.system ['touch {path}']",
        "object/apply args": f"!!python/object/apply:subprocess.check_call\nargs: [[touch, {path}]]",
        "verbatim tag": f"name: !<tag:yaml.org,2002:python/object/apply:os.system> ['touch {path}']",
        "tag directive": f"%TAG ! tag:yaml.org,2002:python/object/apply:\n---\nname: !os.system ['touch {path}']",
        "tag in a position": f"name: n\npositions:\n- issue: !!python/object/apply:os.system ['touch {path}']",
        "tag on a key": f"? !!python/object/apply:os.system ['touch {path}']\n: n",
        "class with state": f"name: !!python/object:pathlib.Path {{_raw_paths: [{path}]}}",
        "eval by map": f"!!python/object/new:type\nargs: [z, !!python/tuple [], {{extend: !!python/name:exec }}]\n"
        f"listitems: \"open('{path}', 'w')\"",
    }


KINDS_OF_TAG = {
    "python name": "name: !!python/name:os.system",
    "python module": "name: !!python/module:os",
    "python tuple": "name: !!python/tuple [a]",
    "binary": "name: !!binary aGVsbG8=",
    "set": "name: !!set {a, b}",
    "ordered map": "name: !!omap [a: b]",
    "own tag": "name: !custom x",
    "harmless tag": "name: !!str x",
    "non-specific tag": "name: ! x",
}
LAUGHS = "a: &a [x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)
EXPANDING = {
    "billion laughs": LAUGHS,
    "quadratic blow-up": "name: &a " + "x" * 100_000 + "\npositions: [" + "*a," * 1_000 + "]",
    "alias to itself": "name: &a [*a]",
    "lone anchor": "name: &a x",
    "undefined alias": "name: *a",
    "merge key": "base: {issue: i}\npositions:\n- <<: {issue: i}",
    "merge of aliases": "x: &x {issue: i}\npositions:\n- <<: [*x, *x]",
}
LARGE = {
    "too long": GOOD + "#" * MAX_BYTES,
    "too long in bytes": GOOD + "# " + "é" * (MAX_BYTES // 2),
    "deep lists": "[" * 200_000,
    "deep maps": "{a: " * 50_000,
    "deep blocks": "- " * 100_000,
    "deep keys": "? " * 100_000,
    "deep indentation": "\n".join(" " * n + "-" for n in range(600)),
    "deep enough": "positions: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH,
    "many values": "positions:\n" + "- a\n" * (MAX_NODES + 1),
    "many keys": "".join(f"k{n}: v\n" for n in range(MAX_NODES)),
    "huge scalar": "name: " + "x" * 250_000,
    "huge number": "name: " + "9" * 250_000,
    "huge sexagesimal": "name: " + "1:1" * 80_000,
    "huge key": "x" * 250_000 + ": y",
    "many short words": "name: " + "b " * 130_000,
    "many escapes": 'name: "' + "\\x41" * 65_000 + '"',
    "many blank lines": "\n" * 260_000,
    "many comments": "#\n" * 130_000,
    "many directives": "%A\n" * 80_000 + "---\nname: n",
    "directives on odd lines": "%A\x85" * 60_000 + "---\nname: n",
    "version of many digits": "%YAML 1." + "1" * 200_000 + "\n---\nname: n",
    "long tag": "!" + "a" * 250_000 + " x",
}
BROKEN = {
    "NUL": "name: a\0b",
    "escaped NUL": 'name: "a\\0b"',
    "control character": "name: a\x1bb",
    "escaped control character": 'name: "\\e[31m"',
    "half a character": "name: a\ud800",
    "escaped half": 'name: "\\ud800"',
    "escape beyond Unicode": 'name: "\\U00110000"',
    "escape beyond everything": 'name: "\\UFFFFFFFF"',
    "doubled key": "name: a\nname: b",
    "doubled key in a position": "name: n\npositions:\n- issue: a\n  issue: b",
    "two documents": GOOD + "---\n" + GOOD,
    "nothing": "",
    "only an end": "...",
    "tab for blanks": "name:\n\tx",
    "open quote": 'name: "x',
    "open list": "name: [x",
    "key that is a list": "[a]: b",
    "key that is a number": "1: b",
    "not text": "\x80\x81",
}
PAYLOADS = {**KINDS_OF_TAG, **EXPANDING, **LARGE, **BROKEN}


@pytest.fixture(params=[strict_yaml.LOADER, yaml.SafeLoader], ids=["usual parser", "parser in Python"])
def parser(request, monkeypatch):
    monkeypatch.setattr(strict_yaml, "LOADER", request.param)


def refused(text):
    with pytest.raises(Invalid) as refusal:
        read_playbook(text)
    assert len(str(refusal.value)) < 300
    return str(refusal.value)


@every_row("name", PAYLOADS)
def test_a_hostile_text_is_refused_at_once(name):
    assert takes_at_most(1, lambda: refused(PAYLOADS[name]))


@every_row("name", sorted(PAYLOADS.keys() - LARGE.keys()))
def test_a_hostile_text_is_refused_by_either_parser(name, monkeypatch):
    monkeypatch.setattr(strict_yaml, "LOADER", yaml.SafeLoader)

    assert refused(PAYLOADS[name])


@every_row("name", canary(""))
@pytest.mark.usefixtures("parser")
def test_nothing_in_a_text_is_executed(name, tmp_path):
    path = tmp_path / "ran"

    refused(canary(path)[name])

    assert not path.exists()


def test_there_are_enough_payloads():
    assert len(PAYLOADS) + len(canary("")) >= 30


@every_row(
    ("text", "says"),
    [
        (LAUGHS, "Anchors (&) and aliases (*) are not read (line 1)"),
        ("name: n\npositions: [*a]", "aliases (*) are not read (line 2)"),
        ("name: n\nb:\n  <<: {}", "Merge keys (<<) are not read (line 3)"),
        ("name: !x y", "Tags (!) are not read (line 1)"),
        ("name: a\nb: c\nname: d", "'name' stands twice (lines 1 and 3)"),
        ("name: n\n\npositions: " + "[" * 20, f"more than {MAX_DEPTH} levels deep (line 3)"),
        ("- a\n" * 10_001, f"more than {MAX_NODES} values (line {MAX_NODES})"),
        ("x" * (MAX_BYTES + 1), f"{MAX_BYTES + 1} bytes long; at most {MAX_BYTES}"),
        ("name: n\nx: 'a\0'", "U+0000 cannot be kept (line 2)"),
        ('name: n\nx: "\\x07"', "U+0007 cannot be kept (line 2)"),
        ("name: n\n--- \nname: m", "A second document begins (line 2)"),
        ("%YAML 1.1\n---\nname: n", "Directives (%) are not read (line 1)"),
        ("name: n\n1: b", "found number (line 2)"),
        ("name: n\n" + "k" * 101 + ": b", "found 101 characters (line 2)"),
        ("name: 'x", "This is not YAML: found unexpected end of stream (line 1, column 9)."),
        ('name: "\\U00110000"', "This is not YAML: "),
    ],
)
@pytest.mark.usefixtures("parser")
def test_a_refusal_names_the_problem_and_the_line(text, says):
    assert says in refused(text)
