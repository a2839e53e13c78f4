"""No file has unescaped output, notes to self, or paths of somebody's machine."""

import re
from pathlib import Path

import pytest

from .source import shown, text_files

FORBIDDEN = {
    "unescaped output": re.compile(r"mark_safe\b|\|\s*safe\b|autoescape\s+off|format_html\(\s*f[\"']"),
    "a note to self": re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
    "an unfinished merge": re.compile(r"^(?:<{7}|>{7}) "),
    "a path of somebody's machine": re.compile(r"(?<![\w.~-])/(?:home|root|work|Users)/"),
}
READ = [path for path in text_files() if path != Path(__file__)]


def findings(text: str) -> list[str]:
    lines = enumerate(text.splitlines(), 1)
    return [f"line {number}: {what}" for number, line in lines for what, seen in FORBIDDEN.items() if seen.search(line)]


def test_every_file_is_clean():
    found = {shown(path): findings(path.read_text(encoding="utf-8")) for path in READ}

    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "mark_safe(reply)",
        "{{ reply|safe }}",
        "{% autoescape off %}",
        "# TODO later",
        "open('/home/me/x')",
        "see /Users/me/x",
        "<<<<<<< HEAD",
    ],
)
def test_forbidden_line_is_found(line):
    assert len(findings(line)) == 1


def test_url_is_no_path():
    assert findings("https://example.org/home/ and docs/home/ and a safe word") == []
