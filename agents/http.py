"""POST /hooks/<id>: signed messages to an event trigger. It reads the bytes, asks the service, and answers in JSON.

No sign-in and no CSRF token: the signature over the raw bytes is what counts.
"""

from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.http import content_disposition_header
from django.utils.log import log_response
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from agents.conf import clock
from agents.triggers.events import EventAnswer, webhook_receive
from agents.triggers.signing import MAX_BODY_BYTES

FAULTS_FROM = 500  # which Django would log as errors


@csrf_exempt
@require_POST
def receive(request: HttpRequest, public_id: str) -> JsonResponse:
    body = request.read(MAX_BODY_BYTES + 1)  # one byte more than is taken tells that there are too many
    trigger_id = _uuid(public_id)
    answer = webhook_receive(trigger_public_id=trigger_id, headers=request.headers, body=body, now=clock())
    response = JsonResponse(_shown(answer, request), status=answer.status)
    if answer.retry_after:
        response["Retry-After"] = str(answer.retry_after)
    if answer.status >= FAULTS_FROM:  # a halt: people have asked for it
        log_response("Put off, %s: %s", answer.code, request.path, response=response, request=request, level="warning")
    return response


def _uuid(text: str) -> UUID:
    """What is no id is answered like the id of no trigger."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


def _shown(answer: EventAnswer, request: HttpRequest) -> dict[str, str | None]:
    ids = {"event_id": answer.event_id, "session_id": answer.session_id}
    return {
        "code": answer.code,
        "message": answer.message,
        "request_id": request.headers.get("X-Request-ID", ""),
        **{name: str(value) if value else None for name, value in ids.items()},
    }


# --- Answers that a browser saves as a file ---


def yaml_file(name: str, text: str) -> HttpResponse:
    disposition = content_disposition_header(as_attachment=True, filename=f"{name}.yaml")
    headers = {"Content-Disposition": disposition or "attachment"}
    return HttpResponse(text, content_type="application/yaml; charset=utf-8", headers=headers)
