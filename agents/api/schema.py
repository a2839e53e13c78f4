"""The OpenAPI description of the API: operation names, the error shape and the API key scheme."""

import inspect
from collections.abc import Callable
from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action

Decorator = Callable[[Any], Any]
Method = Literal["get", "post"]


class ErrorSerializer(serializers.Serializer[Any]):
    """The body of every error response."""

    code = serializers.CharField(help_text="For programs: not_found, invalid, not_opted_in and so on.")
    message = serializers.CharField(help_text="For people: what went wrong.")
    detail = serializers.DictField(
        allow_null=True, help_text="With the code invalid: the errors of each field. Otherwise null."
    )
    request_id = serializers.CharField(help_text="Identifies the request in the log and in the audit log.")


class ApiSchema(AutoSchema):
    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular calls it
        """Describe an operation by its method's docstring, a list by its view's."""
        name = getattr(self.view, "action", None) or self.method.lower()
        documented = type(self.view) if name == "list" else getattr(self.view, name)
        return inspect.cleandoc(documented.__doc__ or "")

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """Keep the component names that clients were generated from: `SessionShown`, `SessionDetail`."""
        name = str(super().get_serializer_name(serializer, direction))
        if not name.endswith("Serializer"):
            return name
        name = name.removesuffix("Serializer")
        return name if name.endswith("Detail") else f"{name}Shown"

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        error = self._get_response_for_code(  # type: ignore[no-untyped-call]
            ErrorSerializer, "default", ["application/json"], direction
        )
        return {**bodies, "default": {**error, "description": "Error."}}


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "agents.api.access.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "lqk_<prefix>_<secret>"}


def describe(operation_id: str, answer: Any = None, *, body: Any = None, **more: Any) -> Decorator:
    """Name an operation, its request body and its answer. Without an answer it returns 204."""
    responses = answer if isinstance(answer, dict) else ({204: None} if answer is None else {200: answer})
    decorate: Decorator = extend_schema(operation_id=operation_id, request=body, responses=responses, **more)
    return decorate


def detail_action(operation_id: str, answer: Any, *, method: Method = "post", **more: Any) -> Decorator:
    """An operation on one row: `<row>/<path>`, where the path is the method's name unless given."""
    return _action(operation_id, answer, options={"detail": True, "methods": [method]}, **more)


def detail_list(operation_id: str, serializer: type[serializers.BaseSerializer[Any]]) -> Decorator:
    """A page of rows that belong to one row."""
    return detail_action(operation_id, serializer(many=True), method="get", filters=False)


def list_action(operation_id: str, answer: Any, **more: Any) -> Decorator:
    """A POST beside the list, with one answer instead of a page."""
    options = {"detail": False, "methods": ["post"], "pagination_class": None}
    return _action(operation_id, answer, options=options, filters=False, **more)


def _action(
    operation_id: str, answer: Any, *, options: dict[str, Any], path: str = "", parsers: Any = None, **more: Any
) -> Decorator:
    if parsers:
        options["parser_classes"] = parsers

    def decorate(function: Any) -> Any:
        routed = action(**options, url_path=path or function.__name__.replace("_", "-"))(function)
        return describe(operation_id, answer, **more)(routed)

    return decorate
