"""A small OpenID Connect provider on loopback: discovery, keys, and tokens that it signs."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from agents.conf import clock

CLIENT_ID, CLIENT_SECRET = "lqops-client", "a-secret-of-the-client"


@cache
def _own_key() -> rsa.RSAPrivateKey:
    """Return one key for all providers of a run: to make one takes longer than most tests."""
    return rsa.generate_private_key(65537, 2048)


@dataclass
class Provider:
    """What it says of whoever signs in next; tests change it."""

    address: str
    key: rsa.RSAPrivateKey = field(default_factory=_own_key)
    claims: dict = field(default_factory=dict)
    challenges: dict = field(default_factory=dict)  # of each code
    people: dict = field(default_factory=dict)  # who signed in, by the code
    signing_key: object = None
    algorithm: str = "RS256"
    issuer: str = ""
    sends_token: bool = True
    requests: list = field(default_factory=list)

    def discovery(self):
        paths = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        return {
            "issuer": self.issuer or self.address,
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        } | {name: self.address + path for name, path in paths.items()}

    def keys(self):
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": "one", "alg": "RS256", "use": "sig"}]}

    def authorize(self, address):
        """Let the person who was sent here sign in. Returns the address to which they are sent back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = asked["code_challenge"]
        self.people[code] = dict(self.claims)
        return f"{asked['redirect_uri']}?code={code}&state={asked['state']}"

    def token(self, form):
        verifier = form.get("code_verifier", [""])[0]
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        if form["client_secret"][0] != CLIENT_SECRET or self.challenges.pop(form["code"][0], "") != digest:
            return 400, {"error": "invalid_grant"}
        now = int(clock().timestamp())
        claims = {
            "iss": self.address,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 60,
            **self.people.pop(form["code"][0]),
        }
        key = None if self.algorithm == "none" else self.signing_key or self.key
        token = jwt.encode(claims, key, self.algorithm, headers={"kid": "one"})
        return 200, {"access_token": "x", "token_type": "Bearer"} | ({"id_token": token} if self.sends_token else {})


@contextmanager
def running_provider():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler())
    provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    server.provider = provider
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            provider = self.server.provider
            pages = {"/.well-known/openid-configuration": provider.discovery, "/keys": provider.keys}
            self.answer(200, pages[self.path]())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.answer(*self.server.provider.token(parse_qs(body)))

        def answer(self, status, body):
            self.server.provider.requests.append(self.path)
            sent = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_):
            """Print nothing."""

    return Handler
