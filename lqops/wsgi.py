"""The WSGI application, with a bound on what a request may bring."""

import os

from django.core.wsgi import get_wsgi_application

from lqops.private_files import private_process

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
private_process()
_django = get_wsgi_application()

from lqops.web import wsgi_bodies  # noqa: E402 what it bounds is read from settings, which are there only now

application = wsgi_bodies(_django)
