"""How often one user may ask. Counted in the memory of each web process: with N processes a user gets up to N times it.

This keeps a client that runs wild from crowding out others. It guards no money and no approval: those are decided in
the database.
"""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle


class PerUser(SimpleRateThrottle):
    """One rate for reading, one for everything else, and one for views that name their own in `throttle_kind`."""

    def __init__(self) -> None:
        """The rate depends on the request, so it is read when there is one."""

    def allow_request(self, request: Request, view: Any) -> bool:
        kind = getattr(view, "throttle_kind", "") if request.method == "POST" else ""
        self.scope = kind or ("read" if request.method in {"GET", "HEAD"} else "write")
        self.rate = settings.LQOPS_API_RATES[self.scope]
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: Any) -> str:
        return self.cache_format % {"scope": self.scope, "ident": request.user.pk}
