"""POST /hooks/<id>: signed messages to event triggers. Also the YAML download, which admin and API share.

A webhook needs no sign-in and no CSRF token: it is authenticated by its signature over the raw bytes.
"""

from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.http import content_disposition_header
from django.utils.log import log_response
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from agents.conf import clock
from agents.sessions.reads import as_uuid
from agents.triggers.events import EventAnswer, webhook_receive
from agents.triggers.signing import MAX_BODY_BYTES

SERVER_ERROR = 500


@csrf_exempt
@require_POST
def receive_webhook(request: HttpRequest, public_id: str) -> JsonResponse:
    body = request.read(MAX_BODY_BYTES + 1)  # one byte more than allowed shows that the body is too long
    trigger_id = as_uuid(public_id) or UUID(int=0)  # an invalid id is answered like one of no trigger
    answer = webhook_receive(trigger_public_id=trigger_id, headers=request.headers, body=body, now=clock())
    response = JsonResponse(_response_data(answer, request), status=answer.status)
    if answer.retry_after:
        response["Retry-After"] = str(answer.retry_after)
    if answer.status >= SERVER_ERROR:  # a halt, which is intended: a warning instead of Django's error
        log_response(
            "Postponed, %s: %s", answer.code, request.path, response=response, request=request, level="warning"
        )
    return response


def _response_data(answer: EventAnswer, request: HttpRequest) -> dict[str, str | None]:
    ids = {"event_id": answer.event_id, "session_id": answer.session_id}
    return {
        "code": answer.code,
        "message": answer.message,
        "request_id": request.headers.get("X-Request-ID", ""),
        **{name: str(value) if value else None for name, value in ids.items()},
    }


def yaml_download(name: str, text: str) -> HttpResponse:
    """Return a text as a file that a browser saves."""
    disposition = content_disposition_header(as_attachment=True, filename=f"{name}.yaml")
    headers = {"Content-Disposition": disposition or "attachment"}
    return HttpResponse(text, content_type="application/yaml; charset=utf-8", headers=headers)
