"""Test databases of workers that run side by side: the first one is migrated, the others are copies of it.

For SQLite the copy outlives the run: until the source changes, the next run migrates nothing.
"""

import copy
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.models import Field

ROOT = Path(__file__).resolve().parents[1]
worker = ""  # such as gw0, if this process is one of those that run side by side


class Shared:
    """Makes the test database of this worker, from the copy that another one has kept if there is one."""

    def __init__(self, folder: Path, *, kept_in: Path) -> None:
        self._folder, self._kept_in = folder, kept_in
        self._create, self._create_empty = connection.creation.create_test_db, connection.creation._create_test_db
        self._is_postgres = connection.vendor == "postgresql"
        name = connection.settings_dict["NAME"]
        self._kept = f"{name}_migrated" if self._is_postgres else str(kept_in / f"{_state_of_source()}.sqlite3")
        self._has_kept = False

    @classmethod
    def of(cls, config: Any) -> "Shared":
        """Return that of a run of pytest, which its workers share."""
        folder = config._tmp_path_factory.getbasetemp()
        return cls(
            folder.parent if hasattr(config, "workerinput") else folder,
            kept_in=config.rootpath / ".pytest_cache" / "migrated",
        )

    def migrate_ahead(self) -> None:
        """Keep a copy for the workers before they ask for it, if there is none yet and they can copy a file."""
        if not self._is_postgres:
            connection.settings_dict["TEST"]["NAME"] = str(self._folder / "ahead.sqlite3")
            self.create(verbosity=0, autoclobber=True)

    def create(self, *arguments: Any, **options: Any) -> str:
        """In place of Django's function. With a copy there is nothing left to migrate."""
        if options.get("keepdb"):
            return self._create(*arguments, **options)
        with self._one_at_a_time(), (self._folder / "migrated").open("a+") as note:
            note.seek(0)
            if note.read() if self._is_postgres else Path(self._kept).exists():
                self._take_copy()
                return self._create(*arguments, **options)
            with quick_migrations():
                name = self._create(*arguments, **options)
            self._keep_copy()
            note.write(name)
            self._has_kept = True
            return name

    def remove_copy(self) -> None:
        """By the worker that kept it; whoever comes later migrates again."""
        if self._has_kept and self._is_postgres:
            with self._one_at_a_time(), connection.creation._nodb_cursor() as cursor:
                (self._folder / "migrated").write_text("")
                cursor.execute(f'DROP DATABASE IF EXISTS "{self._kept}"')

    def _keep_copy(self) -> None:
        if not self._is_postgres:
            made = self._folder / "made.sqlite3"
            with connection.cursor() as cursor:
                cursor.execute("VACUUM INTO %s", [str(made)])
            self._kept_in.mkdir(parents=True, exist_ok=True)
            for old in self._kept_in.glob("*.sqlite3"):
                old.unlink(missing_ok=True)
            Path(shutil.copy(made, self._kept_in / f"made.{os.getpid()}")).replace(self._kept)
            return
        made = connection.settings_dict["NAME"]
        connection.close()
        with connection.creation._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{self._kept}"')
            cursor.execute(f'CREATE DATABASE "{self._kept}" TEMPLATE "{made}"')

    def _take_copy(self) -> None:
        if self._is_postgres:
            connection.settings_dict["TEST"]["TEMPLATE"] = self._kept
            return

        def copied(*arguments: Any, **options: Any) -> str:
            name = self._create_empty(*arguments, **options)
            shutil.copy(self._kept, name)
            return name

        connection.creation._create_test_db = copied

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        with (self._folder / "migrating").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def quick_migrations() -> Iterator[None]:
    """Inside the block a third of the work of migrating is left out: Django makes fields anew from their arguments."""

    def copy_field(field: Field) -> Field:
        copied = copy.deepcopy(field)
        copied.creation_counter, Field.creation_counter = Field.creation_counter, Field.creation_counter + 1
        return copied

    with patch.object(Field, "clone", copy_field):
        yield


def own_files(name: str) -> None:
    """Give a worker a copy of the folder of the installation, and name the copy wherever the folder was named."""
    global worker
    worker, old = name, str(settings.VAR_DIR)
    new = f"{old}-{name}"
    shutil.copytree(old, new)

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            value.update({key: renamed(one) for key, one in value.items()})  # other modules hold the same one
        elif isinstance(value, list):
            value[:] = map(renamed, value)
        elif isinstance(value, str | Path) and old in str(value):
            return type(value)(str(value).replace(old, new))
        return value

    for setting in filter(str.isupper, dir(settings)):
        if (value := getattr(settings, setting)) is not (own := renamed(value)):
            setattr(settings, setting, own)
    os.environ |= {variable: renamed(value) for variable, value in os.environ.items()}


def _state_of_source() -> str:
    """Stands for everything that a migrated database depends on: our source, and the migrations of other packages."""
    digest = hashlib.sha256(repr(sorted(MigrationLoader(None).disk_migrations)).encode())
    for file in sorted(file for folder in ("agents", "audit", "lqops") for file in (ROOT / folder).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
