"""The ASGI application."""

import os
import warnings

from django.core.asgi import get_asgi_application

# Static files are small and read whole; the warning about it is meant for streams of unknown length.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
application = get_asgi_application()
