"""How the API describes itself: one shape of error on every operation, and keys as a way to sign in."""

import inspect
from collections.abc import Callable
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import extend_schema
from rest_framework import serializers


class ErrorShown(serializers.Serializer[Any]):
    """What every refusal and every fault looks like."""

    code = serializers.CharField(help_text="A word for programs, such as not_found, invalid or not_opted_in.")
    message = serializers.CharField(help_text="A sentence for people.")
    detail = serializers.DictField(
        allow_null=True, help_text="For invalid: what is wrong with which field. Otherwise null."
    )
    request_id = serializers.CharField(help_text="Finds the request in the log and in the record.")


class Described(AutoSchema):
    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular calls it
        """What the act itself says; a list is described by its view."""
        name = getattr(self.view, "action", None) or self.method.lower()
        told = type(self.view).__doc__ if name == "list" else getattr(self.view, name).__doc__
        return inspect.cleandoc(told or "")

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        error = self._get_response_for_code(  # type: ignore[no-untyped-call]
            ErrorShown, "default", ["application/json"], direction
        )
        return {**bodies, "default": {**error, "description": "Refused, or failed."}}


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "agents.api.access.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "lqk_<prefix>_<secret>"}


def described(operation_id: str, answer: Any = None, *, body: Any = None, **more: Any) -> Callable[[Any], Any]:
    """Names an operation, what it takes and what it answers. Without an answer it answers 204."""
    responses = answer if isinstance(answer, dict) else ({204: None} if answer is None else {200: answer})
    decorate: Callable[[Any], Any] = extend_schema(operation_id=operation_id, request=body, responses=responses, **more)
    return decorate
