"""The ASGI application, with a bound on what a request may bring."""

import os
import warnings

from django.core.asgi import get_asgi_application

from lqops.private_files import private_process

# Static files are small and read whole; the warning about it is meant for streams of unknown length.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
private_process()
_django = get_asgi_application()

from lqops.web import AsgiBodies  # noqa: E402 what it bounds is read from settings, which are there only now

application = AsgiBodies(_django)
