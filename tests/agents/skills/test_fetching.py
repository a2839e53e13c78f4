"""`context.fetch` of skills, in front of a real server: through the gate, and only to hosts that the call names."""

import json
import socket
from dataclasses import replace

import pytest

from agents.enums import Level
from agents.exceptions import Invalid, OutcomeUnknown
from agents.net import FetchFailed, UrlRefused
from agents.skills import fetching
from agents.skills.fetching import MOST_FETCHES, Fetcher
from agents.skills.isolated import NotFetched, Web
from agents.skills.isolation import SkillFailed
from agents.skills.risk import level_for
from agents.skills.running import perform
from agents.skills.skill import BadSkill, SkillContext, skill
from agents.types import Fetched
from tests.agents.net.world import Server, answer, redirect
from tests.agents.skills import hostile, samples
from tests.agents.skills.contexts import make_context

OK = answer(200, b'{"a": 1}', "Content-Type: application/json")
BROKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"


@pytest.fixture
def serve(settings):
    """A server that answers as it is told, and its address."""
    settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.1/32"]
    settings.LQOPS_NET_ALLOW_HOSTS = ["localhost"]
    servers = []

    def start(behave=OK):
        servers.append(Server(behave))
        return servers[-1], f"http://127.0.0.1:{servers[-1].port}/"

    yield start
    for server in servers:
        server.close()


@skill(level=Level.SAFE, addresses=("url",))
def read(context: SkillContext, url: str) -> str:
    """Reads an address."""
    return context.fetch(url).text


def fetcher(url="", declared=read, **changes):
    return Fetcher(replace(declared, **changes), {"url": url})


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_skill_fetches_from_the_address_that_it_was_given(serve, isolation):
    server, url = serve()
    found = perform(
        replace(hostile.send_apart, isolation=isolation), make_context(), {"url": url, "method": "POST", "body": "hi"}
    )
    assert found == [200, url, "application/json", '{"a": 1}', {"a": 1}]
    [request] = server.requests
    assert request.startswith(b"POST / HTTP/1.1\r\n")
    assert b"x-kind: test" in request.lower()
    assert request.endswith(b"\r\n\r\nhi")


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_skill_does_not_fetch_from_elsewhere(serve, isolation):
    _, url = serve()
    other, _ = serve()
    elsewhere = f"http://localhost:{other.port}/"
    says = "may fetch from hosts of its address arguments and from those that it declares .* in this call: 127.0.0.1"
    with pytest.raises((Invalid, SkillFailed), match=says):
        perform(replace(hostile.send_apart, isolation=isolation), make_context(), {"url": url, "also": elsewhere})
    assert not other.requests


def test_declared_host_is_reached_and_the_gate_holds(serve):
    server, _ = serve()
    url = f"http://localhost:{server.port}/"
    with pytest.raises(Invalid, match="in this call: none"):
        fetcher()(url)
    # What `hosts=` takes are public names; the gate decides on top of it.
    assert fetcher(hosts=("localhost",))(url).status == 200
    with pytest.raises(UrlRefused):
        fetcher(hosts=("10.0.0.1",))("http://10.0.0.1/")


def test_redirect_to_another_host_is_refused(serve):
    other, _ = serve()
    _, url = serve(redirect(f"http://localhost:{other.port}/"))
    with pytest.raises(UrlRefused, match="redirect_host"):
        fetcher(url)(url)


def test_skill_without_side_effects_only_reads(serve):
    _, url = serve()
    with pytest.raises(Invalid, match="may not send POST"):
        fetcher(url, side_effects=False)(url, method="POST")
    with pytest.raises(Invalid, match="may not send TRACE"):
        fetcher(url)(url, method="TRACE")
    assert fetcher(url, side_effects=False)(url).json() == {"a": 1}


def test_number_of_requests_and_their_headers_are_limited(serve, monkeypatch):
    _, url = serve()
    monkeypatch.setattr(fetching, "MOST_FETCHES", 2)
    fetch = fetcher(url)
    with pytest.raises(Invalid, match="The header Host is set by lqops"):
        fetch(url, headers={"Host": "x"})
    fetch(url)
    with pytest.raises(Invalid, match="that is the limit"):
        fetch(url)
    assert MOST_FETCHES > 2


def test_request_that_broke_off_is_unknown_unless_it_only_read(serve):
    _, url = serve(BROKEN)
    with pytest.raises(OutcomeUnknown, match="The POST was sent and may have taken effect"):
        fetcher(url)(url, method="POST")
    with pytest.raises(FetchFailed):
        fetcher(url)(url)
    server, url = serve()
    server.close()
    with pytest.raises(FetchFailed):
        fetcher(url)(url, method="POST")


def test_isolated_skill_that_fails_after_such_a_request_leaves_an_unknown_outcome(serve):
    _, url = serve(BROKEN)
    with pytest.raises(OutcomeUnknown, match=r"may have taken effect.* Then send_apart failed: NotFetched"):
        perform(hostile.send_apart, make_context(), {"url": url, "method": "POST"})
    assert perform(hostile.survive_a_refusal, make_context(), {"url": url}).startswith("NotFetched: The POST was sent")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("what", "answered"),
    [
        ("nonsense", ""),
        ("[1]", ""),
        ("{}", "this cannot be fetched (KeyError)"),
        (json.dumps({"url": 1, "method": "GET", "headers": {}, "content": ""}), "may fetch from hosts"),
        (json.dumps({"url": "x", "method": [], "headers": {}, "content": ""}), "cannot be fetched (TypeError)"),
        (json.dumps({"url": "x", "method": "GET", "headers": {}, "content": "%"}), "cannot be fetched (Error)"),
        ("x" * fetching.MAX_REQUEST_BYTES, ""),
    ],
    ids=["no JSON", "no request", "empty", "number", "list", "no content", "too long"],
)
def test_nonsense_of_a_process_is_refused(serve, what, answered):
    _, url = serve()
    found = perform(hostile.talk_nonsense, make_context(), {"url": url, "what": what})
    assert answered in found
    assert bool(answered) == bool(found)


def test_long_request_of_a_process_fails(serve):
    _, url = serve()
    long = "x" * fetching.MAX_REQUEST_BYTES
    with pytest.raises(SkillFailed, match="at most 1 MB"):
        perform(hostile.send_apart, make_context(), {"url": url, "method": "POST", "body": long})


def test_local_skill_cannot_fetch():
    with pytest.raises(RuntimeError, match="a local skill cannot fetch"):
        perform(replace(read, local=True), make_context(), {"url": "https://example.org/"})
    with pytest.raises(BadSkill, match="a local skill cannot fetch"):
        skill(local=True, hosts=("example.org",))(samples.look.function)


@pytest.mark.parametrize("host", ["localhost", "https://example.org", "Example.org", "*", "a b.org"])
def test_declared_hosts_are_names(host):
    with pytest.raises(BadSkill, match="hosts are names such as"):
        skill(hosts=(host,))(samples.look.function)


def test_declared_host_that_the_operator_has_not_allowed_has_its_calls_asked_about():
    reads = replace(samples.look, hosts=("api.example.org", "*.example.com"))
    allowed = ["*.example.org", "*.example.com"]
    assert level_for(reads, Level.SAFE, {}, allowed) == Level.SAFE
    assert level_for(reads, Level.SAFE, {}, allowed[:1]) == Level.RESTRICTED
    assert level_for(reads, Level.SAFE, {}, []) == Level.RESTRICTED


# --- The two ends of the connection ---


@pytest.fixture
def ends():
    """The end of a process, and a desk that serves it."""

    def fetch(url, *, method, headers, content):
        return Fetched(200, url, {"x": method.upper(), **headers}, content)

    with fetching.fetch_desk(fetch) as (_, connection):
        yield Web(connection)


def test_answer_comes_back_through_the_worker(ends):
    found = ends.fetch("https://example.org/", method="POST", content="ä")
    assert (found.status, found.url, found.headers, found.text) == (200, "https://example.org/", {"x": "POST"}, "ä")


def test_refusal_and_silence_come_back_as_errors(ends):
    with pytest.raises(NotFetched, match="cannot be fetched"):
        ends.fetch("https://example.org/", method=None)
    with pytest.raises(NotFetched, match="the worker does not answer"):
        ends.fetch("https://example.org/", content=b"x" * fetching.MAX_REQUEST_BYTES)


def test_process_that_ends_before_its_answer_disturbs_nobody():
    here, there = socket.socketpair()
    there.sendall(b'{"url": "x", "method": "GET", "headers": {}, "content": ""}\n')

    def fetch(url, **_):
        there.close()
        return Fetched(200, url, {}, b"x" * 1_000_000)

    fetching.Desk(fetch).serve(here)
    assert here.fileno() == -1
