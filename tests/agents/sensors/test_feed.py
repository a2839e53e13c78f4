"""Feed sensors: new items of RSS, Atom and JSON feeds, each once; hostile feeds do no harm."""

import json

import pytest
from httpx import Headers

from agents.net import SafeResponse
from agents.sensors.feed import read_feed
from agents.sensors.sensing import Failed
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.agents.sensors.sources import Web
from tests.effort import takes_at_most
from tests.flows.processes import until
from tests.table import every_row

RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>{}</channel></rss>"""
ITEM = (
    "<item><guid>g{0}</guid><title>Title {0}</title><link>https://a.example/{0}</link>"
    "<description>&lt;p&gt;Text &amp;amp; more {0}&lt;/p&gt;</description></item>"
)
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>urn:1</id><title>One</title>
<updated>2026-01-01T00:00:00Z</updated><content type="html">&lt;b&gt;bold&lt;/b&gt;</content></entry></feed>"""


def rss(*numbers):
    return RSS.format("".join(ITEM.format(number) for number in numbers)).encode()


def read(content, kind="application/rss+xml"):
    return read_feed(SafeResponse(200, Headers({"content-type": kind}), content, "https://a.example/"))


def test_items_of_rss_atom_and_json_are_read_oldest_first():
    assert read(rss(2, 1)) == [
        (f"g{n}", {"id": f"g{n}", "title": f"Title {n}", "link": f"https://a.example/{n}", "text": f"Text & more {n}"})
        for n in (1, 2)
    ]
    [(name, item)] = read(ATOM.encode(), "application/atom+xml")
    assert (name, item["title"], item["text"], item["published"]) == ("urn:1", "One", "bold", "2026-01-01T00:00:00Z")
    feed = {"version": "https://jsonfeed.org/version/1.1", "items": [{"id": "2", "cvss": 9.8}, {"id": "1"}]}
    assert read(json.dumps(feed).encode(), "application/feed+json") == [
        ("1", {"id": "1"}),
        ("2", {"id": "2", "cvss": 9.8}),
    ]


def test_encoding_is_that_of_the_declaration():
    text = RSS.replace('"1.0"', '"1.0" encoding="iso-8859-1"').format("<item><title>Grüße</title></item>")
    assert read(text.encode("iso-8859-1"), "text/xml")[0][1]["title"] == "Grüße"
    assert read(text.encode("utf-16"), "text/xml")[0][1]["title"] == "Grüße"


LAUGHS = "<!DOCTYPE rss [" + '<!ENTITY a0 "ha">' + "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)
)  # fmt: skip
BOMB = f'<?xml version="1.0"?>{LAUGHS}]><rss version="2.0"><channel><item><title>&a11;</title></item></channel></rss>'
QUADRATIC = (
    f'<!DOCTYPE rss [<!ENTITY a "{"x" * 100_000}">]><rss version="2.0"><channel><item><title>{"&a;" * 50_000}</title>'
    "</item></channel></rss>"
)
FILE = (
    '<!DOCTYPE rss [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss version="2.0"><channel><item><title>&a;</title>'
    "</item></channel></rss>"
)


def test_text_beside_names_may_be_long_and_several_names_stand_in_one_item():
    long = "a" * 100_000
    author = f"<author>{'b' * 1_500}</author>"
    items = f"<item><title>{long}</title>{author}<description>{long}</description>{author}</item>"
    [(_, found)] = read(f'<rss version="2.0"><channel>{items}</channel></rss>'.encode(), "text/plain")
    assert found["author"] == "b" * 1_500
    assert found["text"] == "a" * 4_000


@every_row(
    ("content", "problem"),
    [
        (BOMB.encode(), "entities"),
        (BOMB.encode("utf-16"), "entities"),
        (QUADRATIC.encode(), "entities"),
        (FILE.encode(), "entities"),
        (BOMB.replace('"1.0"?', '"1.0" encoding="utf-7"?', 1).replace("<!", "+ADwAIQ-").encode(), "well-formed"),
        (b"<rss><channel>" + b"<a>" * 200_000, "nested too deeply"),
        (b"<rss><channel>" + b"<a/>" * 60_000, "too many elements"),
        (b"<rss><channel><item " + b" ".join(b'a%d=""' % n for n in range(101)) + b">", "or attributes of one"),
        (b"<rss><channel><item><author>" + b"a" * 2_100, "a name in it is too long"),
        (b"<rss><channel><item><dc:Creator>a<b>" + b"a." * 1_100, "a name in it is too long"),
        (b"<" * 500_000, "well-formed"),
        (b"<rss><channel><item>", "well-formed"),
        (b"<html><body>Sign in</body></html>", "no RSS"),
        (b"", "well-formed"),
        (b"[" * 200_000, "JSON"),
        (b'{"a": 1}', "no list of items"),
    ],
)
def test_hostile_or_broken_feed_is_refused_quickly(content, problem):
    def refuse():
        with pytest.raises(Failed, match=problem):
            read(content, "text/plain")

    assert takes_at_most(1, refuse)


@pytest.mark.django_db(transaction=True)
def test_every_new_item_alerts_once_and_those_there_at_first_do_not(serving):
    now = [2, 1]
    source = serving(Web, lambda request: (200, {"Content-Type": "application/rss+xml"}, rss(*now)))
    signal = {"name": "news", "when": {"path": "title", "matches": "Title"}}
    given = poll(items=source.url, updates=["items"], signals=[signal])
    scene = Scene(given, fields={"items": {"type": "array", "max_items": 9}})
    with running_slice(time_scale=0.05):
        until(lambda: scene.value("items"))
        now[:] = [4, 3, 2]
        until(scene.alerts)
        now[:] = []  # a feed that is empty for a moment
        until(lambda: "g4" in str(scene.value("items")) and len(source.times) > 5)
    with running_slice(time_scale=0.05):
        now[:] = [5, 4, 3, 2, 1]
        until(lambda: len(scene.alerts()) == 2)
        seen = len(source.times)
        until(lambda: len(source.times) > seen + 3)

    assert [item["id"] for item in scene.value("items")] == ["g1", "g2", "g3", "g4", "g5"]
    assert ["judged together" in alert.text for alert in scene.alerts()] == [True, False]
    assert scene.sensor().signals["news"]["fired"] == 3
