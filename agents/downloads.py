"""Answers that a browser saves as a file."""

from django.http import HttpResponse
from django.utils.http import content_disposition_header


def yaml_file(name: str, text: str) -> HttpResponse:
    disposition = content_disposition_header(as_attachment=True, filename=f"{name}.yaml")
    headers = {"Content-Disposition": disposition or "attachment"}
    return HttpResponse(text, content_type="application/yaml; charset=utf-8", headers=headers)
