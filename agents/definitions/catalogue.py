"""The models in force: those of the deployment's file, with what people have set in the admin over it (DeclaredModel).

Every process reads the rows again after a second at most, so a change needs no restart. Without rows the file's own
values are returned. A row that the file no longer fits is left out, and said so.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import DatabaseError
from django.dispatch import receiver

from agents.models import DeclaredModel
from agents.policy.model_catalogue import CONSOLE, EMBEDDINGS, JUDGES, MAIN, ROLES, SMALL, Models, overridden

logger = logging.getLogger(__name__)

KEPT_SECONDS = 1.0
_NONE: Mapping[str, str] = MappingProxyType({})
Rows = Mapping[str, Mapping[str, Any]]


class _Seen:
    """The rows and the merged models that this process read last."""

    rows: Rows = {}
    read_at = 0.0
    merged: tuple[Models, Rows, tuple[Models, dict[str, str]]] | None = None
    file: Models | None = None


_seen = _Seen()


def file_models() -> Models:
    """Return what the deployment declares, by its file and its variables."""
    if _seen.file is None:
        _seen.file = Models(settings.LQOPS_MODELS, settings.LQOPS_MODEL_ROLES)
    return _seen.file


@receiver(setting_changed)  # as tests do
def _forget_file(*, setting: str, **_: Any) -> None:
    if setting in {"LQOPS_MODELS", "LQOPS_MODEL_ROLES"}:
        _seen.file = None


def models_in_force() -> Models:
    return _in_force()[0]


def rows_left_out() -> Mapping[str, str]:
    """Return the rows that cannot be used, each with the reason."""
    return _in_force()[1]


def declaration_of(model: str) -> Mapping[str, Any]:
    """Return the declaration in force; empty for a model that is not declared."""
    return models_in_force().declared.get(model, {})


def fallbacks_of(model: str) -> list[str]:
    """The models to ask while this one is away or suspended, in order."""
    return list(declaration_of(model).get("fallback", []))


def model_for(role: str) -> str:
    """The model of a role. Chats without a model of their own (`console`) take the main one."""
    roles = models_in_force().roles
    names = roles.get(role) or roles[MAIN] if role == CONSOLE else roles[role]
    return str(names[0])


def roles_of(model: str) -> list[str]:
    """The roles in which a model is asked."""
    roles = [role for role in (MAIN, SMALL, CONSOLE) if model_for(role) == model]
    roles += [JUDGES] if model in judge_models() else []
    roles += [EMBEDDINGS] if model == embedding_model() else []
    return sorted(roles, key=ROLES.index)


def embedding_model() -> str:
    """The model that search by meaning goes by; empty: there is none."""
    return str(next(iter(models_in_force().roles.get(EMBEDDINGS, ())), ""))


def judge_models() -> list[str]:
    return list(models_in_force().roles.get(JUDGES, []))


def read_rows() -> Rows:
    """Read the rows now; every later look in this process sees them."""
    _seen.read_at = time.monotonic()
    _seen.rows = dict(DeclaredModel.objects.values_list("model", "settings"))
    return _seen.rows


def _in_force() -> tuple[Models, Mapping[str, str]]:
    if time.monotonic() - _seen.read_at >= KEPT_SECONDS and not _is_in_event_loop():
        try:
            read_rows()
        except DatabaseError as error:
            logger.warning("what is set of models could not be read (%s); it stays as it was", type(error).__name__)
        except ImproperlyConfigured:  # the process of a command that needs no data has no database
            logger.debug("without a database the models of the deployment's file are in force")
    base, rows, merged = _seen.file or file_models(), _seen.rows, _seen.merged
    if not rows:
        return base, _NONE
    if merged is None or merged[:2] != (base, rows):
        merged = _seen.merged = base, rows, overridden(base, rows)
    return merged[2]


def _is_in_event_loop() -> bool:
    """The database is not asked inside an event loop; the next look outside of it does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
