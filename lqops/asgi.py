"""The ASGI application, with a limit on request bodies."""

import os
import warnings

from django.core.asgi import get_asgi_application

from lqops.env import private_process

# Static files are small and read at once; the warning is meant for streams of unknown length.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
private_process()
_django = get_asgi_application()

from agents.ticker import StandIn  # noqa: E402 needs the settings, which are loaded above
from lqops.web import AsgiBodyLimit  # noqa: E402

application = AsgiBodyLimit(_django)
StandIn().start()
