"""TLS: the certificate is checked for the name in the URL, not for the address of the connection."""

import contextlib
import ssl
import subprocess
import time

import pytest

from agents.net import FetchFailed, Limits
from agents.net.client import public_tls
from tests.agents.net.world import FIRST, OK, STALLED, Server, hang

SITE = "https://site.example.com/"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=site.example.com"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    names = ["-addext", "subjectAltName=DNS:site.example.com"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return folder


class SecureServer(Server):
    def __init__(self, behave, folder):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self.names = []
        self.context.sni_callback = lambda connection, name, context: self.names.append(name)
        super().__init__(behave)

    def _serve(self, connection):
        with contextlib.suppress(OSError):
            super()._serve(self.context.wrap_socket(connection, server_side=True))
        connection.close()


@pytest.fixture
def secure(world, certificate):
    world.names |= {"site.example.com": [FIRST], "other.example.com": [FIRST]}
    server = world.servers[FIRST, 443] = SecureServer(OK, certificate)
    return server


@pytest.fixture
def trusting(certificate):
    return {"tls": ssl.create_default_context(cafile=certificate / "cert.pem")}


def test_certificate_is_checked_for_the_name_in_the_url(fetch, world, secure, trusting):
    assert fetch(SITE, client=trusting).content == b"ok"
    assert secure.names == ["site.example.com"]
    assert world.dialled == [(FIRST, 443)]
    assert b"host: site.example.com\r\n" in secure.requests[0].lower()


def test_certificate_for_another_name_is_refused(fetch, secure, trusting):
    with pytest.raises(FetchFailed) as failed:
        fetch("https://other.example.com/", client=trusting)

    assert failed.value.reason == "tls"
    assert secure.requests == []


def test_untrusted_certificate_is_refused(fetch, secure, monkeypatch, certificate):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))

    with pytest.raises(FetchFailed) as failed:
        fetch(SITE)

    assert failed.value.reason == "tls"
    assert secure.requests == []


def test_certificates_and_names_are_checked_by_default():
    context = public_tls()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname is True
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_hanging_handshake_ends_at_the_deadline(fetch, world):
    world.names["site.example.com"] = [FIRST]
    server = world.servers[FIRST, 443] = Server(OK)
    server._request = lambda connection: hang() or b""
    began = time.monotonic()

    with pytest.raises(FetchFailed) as failed:
        fetch(SITE, limits=Limits(deadline=0.5))

    assert failed.value.reason == "deadline"
    assert time.monotonic() - began < STALLED


def test_slow_body_over_tls_ends_at_the_deadline(fetch, world, certificate, trusting):
    def drip(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(20 * STALLED):
            connection.sendall(b"x")
            time.sleep(0.05)

    world.names["site.example.com"] = [FIRST]
    world.servers[FIRST, 443] = SecureServer(drip, certificate)
    began = time.monotonic()

    with pytest.raises(FetchFailed) as failed:
        fetch(SITE, client=trusting, limits=Limits(deadline=0.6))

    assert failed.value.reason == "deadline"
    assert time.monotonic() - began < STALLED
