"""Models that were changed or added in the admin: checked like the file, recorded, and in force in every process.

A row holds only the keys that were set. Removing it restores the file's declaration, or removes a model that the file
does not declare. Keys are named by their variable; a price is a row of its own (agents.ledger.prices).
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from agents.definitions.catalogue import Rows, file_models, read_rows
from agents.exceptions import Invalid, NotFound
from agents.ledger.outages import outage_try_now
from agents.models import DeclaredModel
from agents.net.urls import UrlRefused, check_url
from agents.policy.model_catalogue import GATED, Models, check_task_time, overridden
from audit import recorder
from audit.kinds import LABEL
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

_LISTS: Final = ("roles", "fallback")


def model_declare(*, model: str, values: Mapping[str, Any], actor: str, now: datetime) -> DeclaredModel:
    """Set what is given of a model, and nothing else; keys that are left out are as the file says.

    The address is looked up before the transaction, and again at every connection.
    """
    rows = read_rows()
    models = _checked(rows, {**rows, model: values}, model)
    _refuse_secrets(values)
    if models.declared[model].get(GATED):
        _require_allowed(values["url"])
    with transaction.atomic():
        rows = _rows_for_update()
        _checked(rows, {**rows, model: values}, model)
        changed = {"settings": dict(values), "changed_at": now}
        row, _ = DeclaredModel.objects.update_or_create(model=model, defaults=changed)
        recorder.append(SYSTEM_CHAIN, "model.declared", now=now, actor=actor, details=_details(model, values))
        outage_try_now(model, now=now)  # it may be served elsewhere now
        transaction.on_commit(read_rows)
    return row


@transaction.atomic
def model_restore(*, model: str, actor: str, now: datetime) -> None:
    """Remove what was set of a model: the file's declaration applies again, or there is no such model."""
    rows = _rows_for_update()
    if model not in rows:
        raise NotFound(f"Nothing is set here for {model[:128]}.")
    _checked(rows, {name: row for name, row in rows.items() if name != model}, model)
    DeclaredModel.objects.filter(model=model).delete()
    recorder.append(SYSTEM_CHAIN, "model.restored", now=now, actor=actor, details={"model": model})
    outage_try_now(model, now=now)
    transaction.on_commit(read_rows)


def _rows_for_update() -> Rows:
    return dict(DeclaredModel.objects.select_for_update().order_by("pk").values_list("model", "settings"))


def _checked(before: Rows, after: Rows, model: str) -> Models:
    """Return the models that would be in force; refuse a change that leaves a row unusable."""
    _, known = overridden(file_models(), before)
    models, problems = overridden(file_models(), after)
    for name, problem in problems.items():
        if name == model:
            raise Invalid(problem)
        if name not in known:
            raise Invalid(f"{name} needs it as it is. {problem}")
    task_seconds: Any = settings.Q_CLUSTER["timeout"]
    check_task_time(models.declared, slice_seconds=settings.LQOPS_SLICE_SECONDS, task_seconds=task_seconds)
    return models


def _refuse_secrets(values: Mapping[str, Any]) -> None:
    fields = {f"extra.{name}": {name: value} for name, value in values.get("extra", {}).items()}
    for key, value in {**fields, **values}.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if redact(text) != text:
            raise Invalid(f"{key} looks like a secret: put it into a variable, and name that in key_env.")


def _require_allowed(url: str) -> None:
    """Refuse an address inside a private network that the deployment neither declares nor allows."""
    try:
        check_url(url)
    except UrlRefused as error:
        raise Invalid(f"url: {error}") from None


def _details(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audit log says of a change: values that are labels or counts, of the address its host.

    Whether two changes were the same shows the digest of all values.
    """
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    named = {key: values[key] for key in ("name", "key_env", "context_window", *_LISTS) if key in values}
    named |= {"host": urlsplit(values["url"]).hostname} if "url" in values else {}
    plain = {key: value for key, value in named.items() if key in _LISTS or LABEL.fullmatch(str(value))}
    return {"model": model, "keys": sorted(values), "digest": digest, **plain}
