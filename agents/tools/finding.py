"""emit_finding: writes down what the run found."""

from collections.abc import Mapping
from typing import Any

from agents.models import Finding
from agents.tools.context import CallContext
from agents.tools.params import text


def emit_finding(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    finding = Finding.objects.create(
        session_id=context.session_pk,
        severity=text(params, "severity", "info", limit=32),
        title=text(params, "title", "(untitled)", limit=300) or "(untitled)",
        content=text(params, "content", ""),
        created_at=context.now,
    )
    return {"finding_id": str(finding.public_id)}
