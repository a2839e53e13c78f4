"""The `lqops` console script, which is manage.py under another name.

What an operator can mend, a wrong setting or a database that cannot be used, is said in one line, without a
traceback. `up --check` ends with its line of JSON also then.
"""

import gc
import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError

from agents.management.summary import summary_line
from lqops.private_files import private_process


def main() -> None:
    private_process()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        if sys.argv[1:2] == ["up"] and "--check" in sys.argv:
            print(summary_line(error=str(error)), flush=True)  # noqa: T201 the command never began
        sys.exit(f"Error: {error}")
    except UnicodeEncodeError:
        odd = next((argument for argument in sys.argv if not _is_text(argument)), None)
        if odd is None:
            raise
        sys.exit(f"Error: {odd!a} is not text in UTF-8.")
    except DatabaseError as error:
        first = str(error).strip().partition("\n")[0]
        sys.exit(f"Error: the database cannot be used: {first}. Is it there, and has `manage.py migrate` been run?")
    finally:
        gc.freeze()  # what is loaded goes with the process: its end looks through nothing for garbage


def _is_text(argument: str) -> bool:
    """False for bytes of a command line that make no character; no database takes them."""
    return argument == argument.encode(errors="ignore").decode()
