"""The WSGI application, with a limit on request bodies."""

import os

from django.core.wsgi import get_wsgi_application

from lqops.env import private_process

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
private_process()
_django = get_wsgi_application()

from lqops.web import wsgi_body_limit  # noqa: E402 needs the settings, which are loaded above

application = wsgi_body_limit(_django)
