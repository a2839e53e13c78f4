"""HTML: the visible text of a page, and nothing else."""

from html.parser import HTMLParser

import pytest

from agents.exceptions import Invalid
from agents.text import extraction
from agents.text.extraction import extract
from agents.text.formats.html import html_text
from tests.agents.text.reading import extract_here
from tests.effort import grows_too_fast
from tests.table import every_row

PAGE = b"""<!doctype html><html><head><title>Tab</title><style>p { color: red }</style>
<script>steal("this")</script></head>
<body><h1>Terms &amp; conditions</h1><p>One   <b>two</b>
three<br>four</p><noscript>on</noscript><template>later</template></body></html>"""


def test_html_text_of_a_page():
    found = extract(PAGE, name="page.html")

    assert found.text == "Terms & conditions\n\nOne two three\nfour"
    assert found.media_type == "text/html"


@every_row(
    "fields",
    [{"name": "page.htm"}, {"media_type": "text/html; charset=utf-8"}, {"name": "page"}, {"name": "page.xhtml"}],
)
def test_a_page_is_known_by_its_name_its_type_or_its_start(fields):
    assert extract_here(PAGE, **fields).media_type == "text/html"


def test_a_text_file_stays_text_although_it_holds_tags():
    assert extract(b"<b>bold</b> words", name="a.txt").text == "<b>bold</b> words"


@every_row(
    ("page", "text"),
    [
        ("<p hidden>orders</p>seen", "seen"),
        ("<div style='DISPLAY : none'><p>orders</p></div>seen", "seen"),
        ("<span style='visibility:hidden'>orders</span>seen", "seen"),
        ("<span style='font-size:0'>orders</span>seen", "seen"),
        ("<span style='opacity: 0.0'>orders</span>seen", "seen"),
        ("<span style='opacity: 0.5'>pale</span> seen", "pale seen"),
        ("<p hidden>orders<p>seen", "seen"),
        ("<ul><li>a<li hidden>orders<li>b</ul>", "a\nb"),
        ("<div hidden><div>orders</div>more</div>seen", "seen"),
        ("<script>if (a < b) { x() }</script>seen", "seen"),
        ("<svg><text>drawn</text></svg>seen", "seen"),
        ("<!-- orders -->seen", "seen"),
        ("<div hidden/>orders</div>seen", "seen"),
    ],
)
def test_hidden_text_is_left_out(page, text):
    assert html_text(page) == text


@every_row(
    ("page", "text"),
    [
        ("<table><tr><td>a<td>b<tr><th>c</th><td>d</td></tr></table>", "| a | b |\n| c | d |"),
        ("<dl><dt>word<dd>meaning<dt>other</dl>", "word\nmeaning\nother"),
        ("<pre>  one\n    two</pre>end", "one\n    two\n\nend"),
        ("a<div>b<div>c</div></div>d", "a\nb\nc\nd"),
        ("a</p>b", "a\n\nb"),
        ("</div>a</b>", "a"),
        ("a<hr>b<img alt='x'>c", "a\nbc"),
        ("caf&eacute; &#8364; &unknown;", "caf\xe9 \u20ac &unknown;"),
        ("one<br/>two</br>three", "one\ntwo\nthree"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_the_layout_becomes_lines(page, text):
    assert html_text(page) == text


def test_a_page_in_another_encoding():
    page = "<p>the caf\xe9 owes us money</p>".encode("cp1252")
    assert extract_here(page, name="a.html").text == "the caf\xe9 owes us money"


def test_a_page_of_scripts_alone_holds_no_text():
    with pytest.raises(Invalid, match="holds no text"):
        extract_here(b"<html><script>x()</script></html>", name="a.html")


def test_a_page_that_breaks_the_parser_is_refused(monkeypatch):
    """Some versions of Python break at `<![orders[`, others read on."""

    def break_off(*given, **named):
        raise AssertionError("unknown status keyword")

    monkeypatch.setattr(HTMLParser, "parse_html_declaration", break_off)
    with pytest.raises(Invalid, match="could not be read as HTML"):
        extract_here(b"<![orders[ x ]]> words", name="a.html")


def test_a_page_that_takes_too_long_is_refused(monkeypatch):
    monkeypatch.setitem(extraction.MAX_SECONDS, "html", 1)
    with pytest.raises(Invalid, match="longer than 1 seconds"):
        extract(b"<p a=b>x" * 1_000_000, name="a.html")


@every_row("piece", ["<a ", "<!--", "<![if ", "</a ", "<?a "])
def test_tags_that_never_end_take_no_longer_than_other_text(piece):
    assert not grows_too_fast(html_text, lambda size: f"<p>{piece * size}", 400)


@every_row(
    ("page", "text"),
    [
        ("<p>1 < 2 &lt; 3</p> 4 < 5 &amp; <six", "1 < 2 < 3\n\n4 < 5 & <six"),
        ("<p>seen<script>orders </script ", "seen"),
        ("<p hidden>orders <b", ""),
        ("no tag < at all", "no tag < at all"),
    ],
)
def test_what_looks_like_a_tag_and_never_ends_is_text(page, text):
    assert html_text(page) == text
