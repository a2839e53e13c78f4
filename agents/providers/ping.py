"""Asks a model server whether it is there, without asking the model: for its list of models, which costs nothing.

It goes where model requests go: by the same transport, proxy and URL gate, with the same key. Nothing of a run is sent.
"""

import logging
from typing import Final

from agents.definitions.catalogue import declaration_of
from agents.providers.base import ProviderError
from agents.providers.endpoints import KEY_HEADERS, endpoint_of
from agents.providers.http import answers
from agents.providers.transport import Timeouts
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

TIMEOUTS: Final = Timeouts(connect=5.0, first_token=10.0, between_tokens=10.0, total=10.0)
PATH: Final = "models"  # below the URL of the model, in each of the protocols


def has_server(model: str) -> bool:
    return declaration_of(model).get("provider") in KEY_HEADERS


def is_there(model: str) -> bool:
    """Return whether the model's server answers. One without such a list answers, too: that it has none."""
    try:
        return answers(endpoint_of(model, declaration_of(model)), PATH, TIMEOUTS)
    except (ProviderError, OSError) as error:  # its proxy, or the file of its key
        logger.info("the server of model %s cannot be asked: %s", model, redact_exception(error))
        return False
