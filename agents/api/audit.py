"""The export of the audit log, for those who may read all of it."""

from django.core.exceptions import PermissionDenied
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from agents.api.fields import Body
from agents.api.schema import describe
from agents.api.sse import StreamView
from agents.exceptions import NotFound
from agents.people.access import actor_of
from audit.export import TYPES, Selection, UnknownChain, export_log
from audit.kinds import KINDS
from audit.views import READ_ALL, download


class NoCheckpoint(APIException):
    """An export without a fresh checkpoint would not show that its end was cut."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"


class ExportQuery(Body):
    type = serializers.ChoiceField(choices=sorted(TYPES), default="jsonl", help_text="JSON lines or CSV.")
    chain = serializers.CharField(
        max_length=64, default="", help_text="Only one run, by the id of its session, or `system`."
    )
    since = serializers.DateTimeField(default=None, help_text="Only events from this time on; leaves out their links.")
    kind = serializers.ChoiceField(
        choices=sorted(KINDS), default="", help_text="Only events of this kind; leaves out their links."
    )


class AuditExportView(StreamView):
    @describe(
        {(200, media.partition(";")[0]): OpenApiTypes.STR for media in TYPES.values()},
        parameters=[ExportQuery],
        operation_id="audit_export",
    )
    def get(self, request: Request) -> HttpResponseBase:
        """The audit log as a signed file: checkpoints, events and a manifest. Needs audit.view_auditevent.

        `docs/verify_export.py` verifies it with the public key alone. A file without a manifest at its end is not
        complete. The export is recorded in the audit log.
        """
        if not self.user.has_perm(READ_ALL):
            raise PermissionDenied
        chosen, now = self.query(ExportQuery), self.now
        form = chosen.pop("type")
        try:
            lines = export_log(Selection(**chosen), form=form, by=actor_of(self.user), now=now)
        except UnknownChain as error:
            raise NotFound(str(error)) from None
        except OSError as error:
            raise NoCheckpoint(f"No checkpoint can be written: {error.strerror}.") from None
        return download(request._request, lines, form=form, now=now)  # noqa: SLF001 Django's request, below DRF's
