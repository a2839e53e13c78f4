"""Proxies of the environment, for model servers alone: a real proxy on loopback, by request and by tunnel."""

import socket
import ssl
import subprocess
import threading

import httpx
import pytest

from agents.net import SafeClient, UrlRefused
from agents.net.client import without_old_versions
from agents.providers import registry, transport
from agents.providers.base import Fault, ProviderError
from agents.providers.proxies import Proxy, proxy_for
from agents.types import ModelRequest
from tests.agents.providers.hostile_servers import answer, raw, reply, serving
from tests.agents.providers.listeners import ignore
from tests.table import every_row

REQUEST = ModelRequest("m", ({"role": "user", "content": "?"},))
SITE = "models.example.com"
VARIABLES = ["http_proxy", "https_proxy", "no_proxy", "all_proxy", "request_method"]


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def ask(settings, url):
    settings.LQOPS_MODELS = {"m": {"provider": "openai_compatible", "url": url, "total_seconds": 20}}
    provider = registry._openai_compatible("m", settings.LQOPS_MODELS["m"])
    try:
        return provider.stream(REQUEST, ignore)
    finally:
        provider.close()


def test_a_plain_request_goes_to_the_proxy_of_the_environment(settings, monkeypatch):
    with serving(answer(200, reply("by proxy"))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("http://", "http://me:pass%20word@").removesuffix("/v1"))
        assert ask(settings, f"http://{SITE}/v1").text == "by proxy"
    [head] = proxy.heads
    assert head.startswith(f"POST http://{SITE}/v1/chat/completions HTTP/1.1\r\n")
    assert httpx.BasicAuth("me", "pass word")._auth_header in head


class Tunnels:
    """A proxy that connects every CONNECT to one port of this machine, or answers something else."""

    def __init__(self, port, refusal=b""):
        self.port, self.refusal, self.heads = port, refusal, []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        connection, _ = self._listening.accept()
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4_096)
            self.heads.append(head.decode())
            if self.refusal:
                connection.sendall(self.refusal)
                return
            with socket.create_connection(("127.0.0.1", self.port)) as server:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(server, connection), daemon=True)
                back.start()
                _pass_on(connection, server)
                back.join(10)

    def close(self):
        self._listening.close()


def _pass_on(source, sink):
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture
def secure(tmp_path, monkeypatch):
    """A model server with a certificate for SITE that is trusted; yields its port and the heads of requests."""
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={SITE}", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:prime256v1", "-addext", f"subjectAltName=DNS:{SITE}"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run([*command, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    trusting = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    monkeypatch.setattr(transport, "_tls", lambda _: trusting)
    listening = socket.create_server(("127.0.0.1", 0))
    heads = []

    def serve():
        connection, _ = listening.accept()
        with context.wrap_socket(connection, server_side=True) as secured:
            data = b""
            while b'"stream_options"' not in data:
                data += secured.recv(65_536)
            heads.append(data.decode())
            answer(200, reply("by tunnel"))(secured, b"")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()[1], heads
    listening.close()


def test_old_versions_of_tls_are_refused():
    assert transport._tls("").minimum_version is ssl.TLSVersion.TLSv1_2


def test_system_that_demands_a_newer_version_of_tls_gets_it():
    tls = ssl.create_default_context()
    tls.minimum_version = ssl.TLSVersion.TLSv1_3

    assert without_old_versions(tls).minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_secure_request_goes_through_a_tunnel_that_the_proxy_cannot_read(settings, monkeypatch, secure):
    port, heads = secure
    proxy = Tunnels(port)
    monkeypatch.setenv("https_proxy", proxy.url)
    assert ask(settings, f"https://{SITE}/v1").text == "by tunnel"
    proxy.close()
    assert proxy.heads[0].startswith(f"CONNECT {SITE}:443 HTTP/1.1\r\n")
    assert "Authorization" not in proxy.heads[0]
    assert "POST /v1/chat/completions HTTP/1.1" in heads[0]


def test_a_proxy_that_refuses_is_an_outage_and_cost_nothing(settings, monkeypatch):
    proxy = Tunnels(0, refusal=b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http://", "http://me:secret@"))
    with pytest.raises(ProviderError, match=r"by the proxy of HTTPS_PROXY\): 407 Proxy Auth") as refused:
        ask(settings, f"https://{SITE}/v1")
    proxy.close()
    assert (refused.value.fault, refused.value.contacted) == (Fault.CONNECTION, False)
    assert "secret" not in str(refused.value)


def test_an_answer_that_is_no_http_breaks_the_call(settings, monkeypatch):
    with serving(raw(b"nonsense\r\n\r\n")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(ProviderError) as broken:
            ask(settings, f"http://{SITE}/v1")
    assert broken.value.fault == Fault.CONNECTION


@every_row(
    ("no_proxy", "url", "goes_by"),
    [
        ("", "http://models.example.com/v1", "p"),
        ("", "https://models.example.com/v1", None),  # HTTPS_PROXY is not set
        ("models.example.com", "http://models.example.com/v1", None),
        (".example.com", "http://models.example.com/v1", None),
        ("example.com", "http://models.example.com/v1", None),
        ("models.example.com:8000", "http://models.example.com:8000/v1", None),
        ("other.example.com, 10.0.0.5", "http://10.0.0.5:8000/v1", None),
        ("*", "http://models.example.com/v1", None),
        ("other.org", "http://models.example.com/v1", "p"),
        ("", "http://127.0.0.1:11434/v1", None),
        ("", "http://[::1]:11434/v1", None),
        ("", "http://localhost:11434/v1", None),
    ],
)
def test_no_proxy_and_this_machine_are_reached_directly(no_proxy, url, goes_by):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HTTP_PROXY", "p:3128")
        environment.setenv("NO_PROXY", no_proxy)
        found = proxy_for(url)
    assert found == (Proxy("p", 3128, "HTTP_PROXY") if goes_by else None)


@every_row("address", ["socks5://p:1080", "https://p:443", "http://", "http://p:port", "http://p:0x"])
def test_a_proxy_that_cannot_be_used_is_refused_with_advice(address):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HTTP_PROXY", address)
        with pytest.raises(ProviderError, match="HTTP_PROXY does not name a proxy") as refused:
            proxy_for("http://models.example.com/v1")
    assert not refused.value.contacted


def test_what_skills_and_sensors_fetch_knows_no_proxy(monkeypatch):
    with serving(answer()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(UrlRefused):
            SafeClient(resolve=lambda _: ["127.0.0.1"]).get(f"http://{SITE}/")
    assert not proxy.heads
