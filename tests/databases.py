"""Test databases of workers that run side by side: the first one is migrated, the others are copies of it."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection


class Shared:
    """Makes the test database of this worker, from the copy that another one has kept if there is one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._create, self._create_empty = connection.creation.create_test_db, connection.creation._create_test_db
        self._is_postgres = connection.vendor == "postgresql"
        name = connection.settings_dict["NAME"]
        self._kept = f"{name}_migrated" if self._is_postgres else folder / "migrated.sqlite3"
        self._has_kept = False

    def create(self, *arguments: Any, **options: Any) -> str:
        """In place of Django's function. With a copy there is nothing left to migrate."""
        with self._one_at_a_time(), (self._folder / "migrated").open("a+") as note:
            note.seek(0)
            if note.read():
                self._take_copy()
                return self._create(*arguments, **options)
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
            with connection.cursor() as cursor:
                cursor.execute("VACUUM INTO %s", [str(self._kept)])
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
