"""The OpenAPI description of the API: operation names, the error shape and the API key scheme."""

import inspect
from collections.abc import Callable
from typing import Any, Final, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.fields import empty

Decorator = Callable[[Any], Any]
Method = Literal["get", "post"]
# Names of operations that differ from the names of their methods.
OPERATIONS: Final = {
    "get": "retrieve",
    "patch": "edit",
    "partial_update": "edit",
    "destroy": "delete",
    "import_yaml": "import",
    "export_yaml": "export",
}


class ErrorSerializer(serializers.Serializer[Any]):
    """The body of every error response."""

    code = serializers.CharField(help_text="For programs: not_found, invalid, not_opted_in and so on.")
    message = serializers.CharField(help_text="For people: what went wrong.")
    detail = serializers.DictField(
        allow_null=True, help_text="With the code invalid: the errors of each field. Otherwise null."
    )
    request_id = serializers.CharField(help_text="Identifies the request in the log and in the audit log.")


class ApiSchema(AutoSchema):
    @property
    def _name(self) -> str:
        """The action of a viewset, or the HTTP method of a plain view."""
        return getattr(self.view, "action", None) or str(self.method).lower()

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular calls it
        """Describe an operation by its method's docstring, a list by its view's."""
        documented = type(self.view) if self._name == "list" else getattr(self.view, self._name)
        return inspect.cleandoc(documented.__doc__ or "")

    def get_operation_id(self) -> str:
        """`<resource>_<action>`, as in `agents_edit`, whatever the rest of the path."""
        resource = getattr(self.view, "resource", "") or self._tokenize_path()[0]
        return f"{resource}_{OPERATIONS.get(self._name, self._name)}".replace("-", "_")

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


def describe(answer: Any = empty, *, body: Any = None, **more: Any) -> Decorator:
    """Name the request body of an operation and, unless it is the view's row, its answer."""
    decorate: Decorator = extend_schema(request=body, responses=answer, **more)
    return decorate


def detail_action(answer: Any = empty, *, method: Method = "post", **more: Any) -> Decorator:
    """An operation on one row: `<row>/<path>`, where the path is the method's name unless given."""
    return _action(answer, options={"detail": True, "methods": [method]}, **more)


def detail_list(serializer: type[serializers.BaseSerializer[Any]]) -> Decorator:
    """A page of rows that belong to one row."""
    return detail_action(serializer(many=True), method="get", filters=False)


def list_action(answer: Any = empty, **more: Any) -> Decorator:
    """A POST on the list, with one answer instead of a page."""
    options = {"detail": False, "methods": ["post"], "pagination_class": None}
    return _action(answer, options=options, filters=False, **more)


def _action(answer: Any, *, options: dict[str, Any], path: str = "", parsers: Any = None, **more: Any) -> Decorator:
    if parsers:
        options["parser_classes"] = parsers

    def decorate(function: Any) -> Any:
        routed = action(**options, url_path=path or function.__name__.replace("_", "-"))(function)
        return describe(answer, **more)(routed)

    return decorate
