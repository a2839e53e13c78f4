"""Whom outgoing TLS connections trust: the public authorities, and besides them those of LQOPS_CA_FILE.

Every client of lqops is given its trust here: fetches, streams, mail, model servers, and packages that use `requests`
(chat services, single sign-on, spans). Connections to PostgreSQL and Redis take theirs from their own addresses.
"""

import os
from functools import cache
from pathlib import Path
from ssl import SSLContext
from tempfile import NamedTemporaryFile
from typing import Final

from agents.conf import ca_file, data_folder

BUNDLE: Final = "ca_bundle.pem"
VARIABLE: Final = "REQUESTS_CA_BUNDLE"


def with_private_authorities(tls: SSLContext) -> SSLContext:
    """Let a context accept the certificates of LQOPS_CA_FILE too, if that is set. What it accepted it still does."""
    if file := ca_file():
        tls.load_verify_locations(cafile=file)
    return tls


def trust_in_requests() -> None:
    """Let `requests` accept the certificates of LQOPS_CA_FILE too, in this process, unless its own variable is set.

    It takes its authorities from one file, so one with the public and the private ones is kept in the data folder.
    """
    if (file := ca_file()) and not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = _bundle(file)


@cache
def _bundle(file: str) -> str:
    """Write the bundle anew, once in a process; another process that reads it sees the old one or the new one whole."""
    import certifi  # of httpx; a process without `requests` does not need it

    bundle = data_folder() / BUNDLE
    with NamedTemporaryFile("w", dir=bundle.parent, prefix=".ca-", delete=False, encoding="utf-8") as draft:
        draft.write(f"{certifi.contents()}\n{Path(file).read_text(encoding='utf-8')}")
    Path(draft.name).replace(bundle)
    return str(bundle)
