"""Asks a model server whether it is there, without asking the model: GET of its list of models, which costs nothing.

It goes where model requests go: by the same transport, proxy and URL gate, with the same key. Nothing of a run is sent.
"""

import logging
from typing import Final

import httpcore
import httpx

from agents.definitions.catalogue import declaration_of
from agents.net.urls import UrlRefused
from agents.providers.base import ProviderError
from agents.providers.endpoints import KEY_HEADERS, endpoint_of
from agents.providers.http import headers_of
from agents.providers.transport import BoundedTransport, Timeouts
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

TIMEOUTS: Final = Timeouts(connect=5.0, first_token=10.0, between_tokens=10.0, total=10.0)
_PATH: Final = "models"  # below the URL of the model, in each of the protocols
_NOT_READY: Final = frozenset({408, 425, 429})
_SERVER_ERRORS: Final = 500
_FAILURES: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpx.HTTPError,
    OSError,
    ProviderError,
    UrlRefused,
)


def has_server(model: str) -> bool:
    return declaration_of(model).get("provider") in KEY_HEADERS


def is_there(model: str) -> bool:
    """Return whether the model's server answers. A server without such a list answers too: with an error of ours."""
    try:
        endpoint = endpoint_of(model, declaration_of(model))
        transport = BoundedTransport(TIMEOUTS, connections=1, proxy=endpoint.proxy, gated=endpoint.gated)
        with (
            httpx.Client(transport=transport, trust_env=False, follow_redirects=False) as client,
            client.stream("GET", endpoint.address(_PATH), headers=headers_of(endpoint)) as answer,
        ):
            return answer.status_code < _SERVER_ERRORS and answer.status_code not in _NOT_READY
    except _FAILURES as error:
        logger.info("the server of model %s does not answer: %s", model, redact_exception(error))
        return False
