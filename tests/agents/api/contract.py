"""Whether answers of the API are what its OpenAPI document declares: status, type and body.

Clients of the tests check every answer that they receive (`CheckedClient`). A property that is not declared counts as a
mistake, too: programs made from the document would not see it.
"""

import io
import json
import re
from collections import Counter
from functools import cache
from unittest.mock import patch

from django.core.management import call_command
from django.test import Client
from drf_spectacular.drainage import GENERATOR_STATS
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from rest_framework.test import APIClient

from agents.conf import clock

ROOT = "urn:lqops"
ERROR = 400
WORDS = FormatChecker(formats=["uuid", "date", "email"])


@WORDS.checks("date-time", raises=ValueError)
def _is_moment(text):
    return not isinstance(text, str) or clock().fromisoformat(text).tzinfo is not None


@WORDS.checks("decimal")
def _is_amount(text):
    return not isinstance(text, str) or re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


@cache
def document():
    """The OpenAPI document, as `manage.py spectacular` writes it."""
    out = io.StringIO()
    with patch.object(GENERATOR_STATS, "enable_trace_lineno"):  # numbers of lines beside a warning take half the time
        call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    return json.loads(out.getvalue())


def as_json_schema(value):
    """OpenAPI 3.0 in the words of JSON Schema, with closed objects."""
    if isinstance(value, list):
        return [as_json_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:  # what stands beside it does not count
        return {"$ref": ROOT + value["$ref"]}
    known = {name: as_json_schema(each) for name, each in value.items() if name not in {"nullable", "example"}}
    if "properties" in value:
        known.setdefault("additionalProperties", False)
        known["properties"] = {name: as_json_schema(each) for name, each in value["properties"].items()}
    return {"anyOf": [known, {"type": "null"}]} if value.get("nullable") else known


@cache
def _registry():
    schemas = {name: as_json_schema(shape) for name, shape in document()["components"]["schemas"].items()}
    return Registry().with_resource(ROOT, DRAFT202012.create_resource({"components": {"schemas": schemas}}))


@cache
def _validator(schema):
    return Draft202012Validator(as_json_schema(json.loads(schema)), registry=_registry(), format_checker=WORDS)


def mistakes_of(body, schema):
    """What is wrong with a body, as lines with the place of each."""
    found = _validator(json.dumps(schema, sort_keys=True)).iter_errors(body)
    return [f"{error.json_path}: {error.message[:300]}" for error in found]


def name_of_row(method, path):
    """The name of the schema of an operation's answer."""
    shape = document()["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
    return shape["$ref"].rpartition("/")[2]


# --- Answers ---

answers = Counter()  # of each operation, by (operation, status)


def operation_of(response):
    """The method and path of an answer as in the document; None for a path that it does not have."""
    match = response.resolver_match
    path = "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", match.route) if match else ""
    method = response.request["REQUEST_METHOD"].lower()
    return (method, path) if method in document()["paths"].get(path, {}) else None


def mistakes(response):
    """What an answer has that the document does not declare."""
    operation = operation_of(response)
    if operation is None:
        declared = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorShown"}}}
        return _mistakes_of_content(response, declared) if response.status_code >= ERROR else []
    method, path = operation
    answers[f"{method} {path}", response.status_code] += 1
    responses = document()["paths"][path][method]["responses"]
    shape = responses.get(str(response.status_code)) or (
        responses["default"] if response.status_code >= ERROR else None
    )
    if shape is None:
        return [f"status {response.status_code} is not declared, only {', '.join(responses)}"]
    return _mistakes_of_content(response, shape.get("content", {}))


def _mistakes_of_content(response, declared):
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    if not declared:
        has_body = not response.streaming and response.content
        return [f"a body of {kind} where none is declared"] if has_body else []
    if kind not in declared:
        return [f"Content-Type {kind!r} is not declared, only {', '.join(declared)}"]
    if kind != "application/json" or response.streaming:
        return []
    return mistakes_of(json.loads(response.content), declared[kind]["schema"])


class _Checked:
    def request(self, **request):
        response = super().request(**request)
        path = request.get("PATH_INFO", "")
        if path.startswith("/api/v1/") and request.get("REQUEST_METHOD") not in {"HEAD", "OPTIONS"}:
            wrong = mistakes(response)
            assert not wrong, "\n".join([f"{request['REQUEST_METHOD']} {path}: {response.status_code}", *wrong])
        return response


class CheckedClient(_Checked, APIClient):
    """With an API key."""


class CheckedBrowser(_Checked, Client):
    """With the session of a browser."""
