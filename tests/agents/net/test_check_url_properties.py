"""Properties of check_url for any text: it decides quickly, and agrees with itself and with the client."""

import httpx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.net import UrlRefused, check_url
from agents.net.urls import MAX_URL_BYTES, is_public, read_address
from tests.agents.net.hostile import PUBLIC
from tests.effort import takes_at_most

PIECES = st.sampled_from(
    ["http", "https", "://", "//", "/", ":", "@", "#", "?", "%", "[", "]", ".", "..", "127.0.0.1", "localhost",
     "example.com",
     "xn--", "xn--mnchen-3ya", "ü", "。", "①", "::1", "0x7f", "\\", " ", "\t", "-", "_", "80", "8080", "a", "é",
     "ß", "\u200d"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(PIECES, max_size=15).map("".join),
    st.lists(PIECES, max_size=10).map(lambda pieces: "http://" + "".join(pieces)),
    st.text(max_size=40).map(lambda host: f"http://{host}/"),
    st.text(alphabet="abcdefx0123456789.:-_", min_size=1, max_size=40).map(lambda host: f"http://{host}"),
    st.ip_addresses().map(lambda ip: f"http://[{ip}]/" if ip.version == 6 else f"http://{ip}/"),
    st.text(max_size=60).map(lambda path: f"http://example.com/{path}"),
)


def checked(text):
    try:
        return check_url(text, resolve=lambda host: [PUBLIC])
    except UrlRefused:
        return None


@given(TEXTS)
@example("http://[::ffff:127.0.0.1]/")
@example("http://xn--a\u0300.com/")
@example("http://example.com/%\ud800")
def test_any_text_is_refused_or_has_one_stable_meaning(text):
    found = checked(text)

    if found is not None:
        assert checked(found.url) == found
        assert all(is_public(read_address(address)) for address in found.addresses)
        seen = httpx.URL(found.url)
        assert (seen.scheme, seen.raw_host.decode(), seen.port or found.port) == found.origin


@settings(max_examples=50, deadline=None)
@given(PIECES, PIECES)
def test_time_is_linear_in_the_length(first, second):
    for text in (
        first * MAX_URL_BYTES,
        "http://" + (first + second) * MAX_URL_BYTES,
        "http://a/" + first * MAX_URL_BYTES,
    ):
        assert takes_at_most(1, lambda text=text: checked(text[:MAX_URL_BYTES]))
        assert takes_at_most(1, lambda text=text: checked(text * 20))
