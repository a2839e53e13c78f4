"""Stands in for Django's database layer in processes without a database: isolated skills and readers of documents.

agents.enums takes its choices from that layer. Importing all of it would take a third of the time of such a process.
"""

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import django


def stand_in() -> None:
    """Put modules with the choices alone in the place of the layer. For a process that has imported none of it."""
    deprecation = ModuleType("django.utils.deprecation")  # the real one loads asyncio, for a name that is not used here
    vars(deprecation)["__getattr__"] = lambda _: DeprecationWarning
    sys.modules[deprecation.__name__] = deprecation
    file = Path(django.__file__).parent / "db" / "models" / "enums.py"
    spec = importlib.util.spec_from_file_location("django.db.models.enums", file)
    assert spec is not None  # noqa: S101 both are there for a Python file
    assert spec.loader is not None  # noqa: S101
    enums = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(enums)
    import_module("django.conf")
    del sys.modules[deprecation.__name__]
    models, database = ModuleType("django.db.models"), ModuleType("django.db")
    vars(models).update({name: getattr(enums, name) for name in ("TextChoices", "IntegerChoices")})
    vars(database)["models"] = models
    sys.modules.update({module.__name__: module for module in (models, database)})
