"""The `lqops` console script, which is manage.py under another name."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
    execute_from_command_line(sys.argv)
