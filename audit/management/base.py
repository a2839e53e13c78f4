"""What the commands of lqops have in common."""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand


class ActingCommand(BaseCommand):
    """Acts at once, whatever state the rest is in: `up`, `doctor` and `check` look at the installation as a whole."""

    requires_system_checks: list[str] = []

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Who reads no further (`| head -1`) is no error: what was done is done, and the rest is not said."""
        try:
            said: str | None = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        return said
