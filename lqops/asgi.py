"""The ASGI application, with limits on request bodies and on requests at work."""

import logging
import os
import warnings

import django

from lqops.env import allow_open_files, private_process

# Static files are small and read at once; the warning is meant for streams of unknown length.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
os.environ["LQOPS_CONN_MAX_AGE"] = "0"  # threads of requests keep theirs for a while (lqops/web.py), and others none
private_process()
allow_open_files()
django.setup(set_prefix=False)

from django.conf import settings  # noqa: E402

from agents.ticker import StandIn  # noqa: E402 needs the settings, which are loaded above
from lqops.web import AsgiBodyLimit, LimitedHandler  # noqa: E402

logging.getLogger(__name__).info("data: %s", settings.VAR_DIR)
application = AsgiBodyLimit(LimitedHandler())
StandIn().start()
