"""Why the gate refused an address, or gave up on an answer: one stable code each, and what to do about it.

Texts name no path, query, header or body: those may hold secrets.
"""

from agents.exceptions import LqopsError

REFUSALS = {
    "too_long": "The address is longer than 8 KiB: shorten it, or send the data in the body.",
    "characters": "The address holds a space, a control character or a backslash: percent-encode it.",
    "malformed": "The address is not of the form scheme://host/path: write it out in full.",
    "scheme": "The scheme is not one that may be used here: use http or https (streams: ws or wss).",
    "credentials": "The address carries a user name or password: remove it and pass a header instead.",
    "port": "The port is not a plain number from 1 to 65535, or belongs to a service that is no web server: "
    "use the port of the web site.",
    "host_form": "The host is not in plain form: write a full domain name, or an IP address as usually written.",
    "host_idna": "The host is not a valid international name: write it as registered, or in its xn-- form.",
    "host_local": "The host names something inside a network: only an operator can allow it (LQOPS_NET_ALLOW_HOSTS).",
    "address": "The host is, or leads to, an address that is not plainly public: only an operator can allow it "
    "(LQOPS_NET_ALLOW_HOSTS or LQOPS_NET_ALLOW_NETWORKS).",
    "unresolved": "The host name has no address: check its spelling, or try again later.",
    "lookup_timeout": "Looking up the host name took too long: try again later.",
    "redirect_host": "The server redirects to another host, which is not allowed here: use the final address.",
    "redirect_body": "The server redirects a request with a body to another host: use the final address.",
}

FAILURES = {
    "deadline": "The answer was not complete in the time allowed: try again later, or allow more time.",
    "too_large": "The answer is larger than allowed: ask for less, or allow more bytes.",
    "ratio": "The answer unpacks to far more than was sent: it is not read.",
    "encoding": "The answer is packed in a way that was not asked for, or is damaged.",
    "headers": "The answer has too many or too large headers.",
    "redirects": "There are more redirects than allowed: use the final address.",
    "connect": "No connection could be made to the host.",
    "tls": "No secure connection could be made: the certificate or the handshake was not acceptable.",
    "connection": "The connection broke before the answer was complete.",
    "protocol": "The answer is not valid HTTP, or ended half-way.",
    "request": "The request could not be written as HTTP: check the method and the headers.",
    "json": "The answer is not JSON, or is nested too deeply.",
}


class UrlRefused(LqopsError):
    """The gate does not go there. `reason` is a key of REFUSALS."""

    code = "url_refused"
    http_status = 400

    def __init__(self, reason: str) -> None:
        super().__init__(f"{REFUSALS[reason]} [{reason}]")
        self.reason = reason


class FetchFailed(LqopsError):
    """The gate went there and got no usable answer. `reason` is a key of FAILURES."""

    code = "fetch_failed"
    http_status = 502

    def __init__(self, reason: str) -> None:
        super().__init__(f"{FAILURES[reason]} [{reason}]")
        self.reason = reason
