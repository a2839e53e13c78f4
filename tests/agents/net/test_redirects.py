"""Redirects: each hop is checked again, and credentials and bodies stay with their origin."""

import pytest

from agents.net import FetchFailed, Limits, UrlRefused
from tests.agents.net.world import OK, SECOND, redirect

SITE = "http://site.example.com/"
SECRETS = {
    "Authorization": "Bearer hunter2",
    "Cookie": "session=hunter2",
    "Proxy-Authorization": "Basic hunter2",
    "X-Api-Key": "hunter2",
    "X-Vault-Thing": "hunter2",
}


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.1/", "address"),
        ("http://169.254.169.254/latest/meta-data/", "address"),
        ("//10.0.0.1/", "address"),
        ("http://[::ffff:127.0.0.1]/", "address"),
        ("http://inside.example.com/", "address"),
        ("http://2130706433/", "host_form"),
        ("http://localhost/", "host_local"),
        ("http://metadata.google.internal/", "host_local"),
        ("http://u:p@site.example.com/", "credentials"),
        ("http://site.example.com:22/", "port"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://site.example.com/", "scheme"),
        ("javascript:alert(1)", "malformed"),
        ("/\\127.0.0.1/", "characters"),
        ("/a b", "characters"),
        ("http://[::1", "malformed"),
        ("/" + "a" * 9000, "too_long"),
    ],
)
def test_redirect_to_a_refused_url_is_refused(fetch, world, location, reason):
    world.serve("site.example.com", redirect(location))
    world.names["inside.example.com"] = ["192.168.0.1"]

    with pytest.raises(UrlRefused) as refused:
        fetch(SITE)

    assert refused.value.reason == reason
    assert len(world.dialled) == 1


def test_redirect_is_followed(fetch, world):
    def steps(connection, request):
        target = request.split(b" ")[1]
        connection.sendall({b"/": redirect("next?a=1"), b"/next?a=1": redirect("/last")}.get(target, OK))

    world.serve("site.example.com", steps)

    found = fetch(SITE)

    assert found.url == f"{SITE}last"
    assert world.asked == ["site.example.com"] * 3


def test_redirect_loop_ends_after_five(fetch, world):
    server = world.serve("site.example.com", redirect("/"))

    with pytest.raises(FetchFailed) as failed:
        fetch(SITE)

    assert failed.value.reason == "redirects"
    assert len(server.requests) == 6


def test_five_redirects_are_allowed_and_fewer_can_be_set(fetch, world):
    def count_down(connection, request):
        left = int(request.split(b" ")[1].strip(b"/"))
        connection.sendall(redirect(f"/{left - 1}") if left else OK)

    world.serve("site.example.com", count_down)

    assert fetch(f"{SITE}5").content == b"ok"
    with pytest.raises(FetchFailed):
        fetch(f"{SITE}6")
    with pytest.raises(FetchFailed):
        fetch(f"{SITE}1", limits=Limits(max_redirects=0))


@pytest.mark.parametrize(
    ("name", "address", "port"),
    [("other.example.com", SECOND, 80), ("site.example.com", "93.184.216.34", 8080)],
)
def test_credentials_are_not_sent_to_another_origin(fetch, world, name, address, port):
    world.serve("site.example.com", redirect(f"http://{name}:{port}/"))
    other = world.serve(name, OK, address, port)

    fetch(SITE, headers={**SECRETS, "Accept": "text/html", "User-Agent": "me"})

    assert b"hunter2" not in other.requests[0]
    assert b"accept: text/html" in other.requests[0].lower()
    assert b"user-agent: me" in other.requests[0].lower()


def test_credentials_do_not_return_after_a_detour(fetch, world):
    def first_away(connection, request):
        connection.sendall(redirect("http://other.example.com/") if b"GET / " in request else OK)

    home = world.serve("site.example.com", first_away)
    world.serve("other.example.com", redirect(f"{SITE}back"), SECOND)

    fetch(SITE, headers=SECRETS)

    assert b"hunter2" in home.requests[0]
    assert b"hunter2" not in home.requests[1]


def test_credentials_are_kept_within_the_origin(fetch, world):
    def twice(connection, request):
        connection.sendall(redirect("/next") if b"GET / " in request else OK)

    server = world.serve("site.example.com", twice)

    fetch(SITE, headers=SECRETS)

    assert server.requests[1].count(b"hunter2") == len(SECRETS)


@pytest.mark.parametrize(
    ("method", "status", "then", "body"),
    [
        ("POST", 301, b"GET", b""),
        ("POST", 302, b"GET", b""),
        ("POST", 303, b"GET", b""),
        ("PUT", 303, b"GET", b""),
        ("HEAD", 303, b"HEAD", b""),
        ("PUT", 302, b"PUT", b"data"),
        ("POST", 307, b"POST", b"data"),
        ("POST", 308, b"POST", b"data"),
    ],
)
def test_status_decides_on_method_and_body(fetch, world, method, status, then, body):
    def once(connection, request):
        connection.sendall(redirect("/next", status) if b" / " in request else OK.partition(b"ok")[0] + b"ok")

    server = world.serve("site.example.com", once)

    fetch(SITE, method, content=b"" if method == "HEAD" else b"data", headers={"Content-Type": "text/plain"})

    assert server.requests[1].startswith(then + b" /next ")
    assert server.requests[1].partition(b"\r\n\r\n")[2] == body
    assert (b"content-type" in server.requests[1].lower()) == bool(body)


def test_body_is_not_sent_to_another_origin(fetch, world):
    world.serve("site.example.com", redirect("http://other.example.com/", 307))
    other = world.serve("other.example.com", OK, SECOND)

    with pytest.raises(UrlRefused) as refused:
        fetch(SITE, "POST", content=b"data")

    assert refused.value.reason == "redirect_body"
    assert other.requests == []


def test_client_can_be_limited_to_one_host(fetch, world):
    def away(connection, request):
        target = "http://site.example.com:8080/" if b"GET /port" in request else "http://other.example.com/"
        connection.sendall(redirect(target))

    world.serve("site.example.com", away)
    world.serve("site.example.com", OK, port=8080)
    world.names["other.example.com"] = [SECOND]

    with pytest.raises(UrlRefused) as refused:
        fetch(SITE, client={"cross_host": False})

    assert refused.value.reason == "redirect_host"
    assert fetch(f"{SITE}port", client={"cross_host": False}).content == b"ok"
