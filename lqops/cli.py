"""The `lqops` console script: manage.py under another name.

A wrong setting or an unusable database is reported in one line without a traceback. `up --check` then still prints its
line of JSON. A command that needs no data makes none: no folder, no keys and no database.
"""

import gc
import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, DataError, IntegrityError

from agents.management import summary_line
from lqops.database import configured_database
from lqops.env import Env, private_process

# Objects made before Python looks for garbage, which are 700 otherwise. Most that a start makes stays, and the looking
# was a sixth of its time.
OBJECTS_BETWEEN_LOOKS = 10_000

# Commands without a database. Any other command needs no data either when it only prints its help.
WITHOUT_DATA: Final = frozenset(
    {
        *("--help", "--version", "-h", "help", "version"),
        *("check", "check_agents", "countersign_audit", "diffsettings", "findstatic", "makemigrations"),
        *("sample_metrics", "sendtestemail", "spectacular"),
    }
)


def main() -> None:
    gc.set_threshold(OBJECTS_BETWEEN_LOOKS)
    private_process()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")
    if not_text := [argument for argument in sys.argv if not _is_text(argument)]:
        sys.exit(f"Error: the argument {not_text[0]!a} is not valid UTF-8.")
    if sys.argv[1:2] == ["halt"] and _has_halted(sys.argv[2:]):
        return
    Env.uses_data = needs_data(sys.argv[1:])
    from django.core.management import execute_from_command_line  # takes longer to load than a halt to write

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        if sys.argv[1:2] == ["up"] and "--check" in sys.argv:
            print(summary_line(error=str(error)), flush=True)  # noqa: T201 the command has not started
        sys.exit(f"Error: {error}")
    except (IntegrityError, DataError) as error:
        first = str(error).strip().partition("\n")[0]
        sys.exit(f"Error: the database refused a row, so the command was stopped: {first}. Run it again.")
    except DatabaseError as error:
        first = str(error).strip().partition("\n")[0]
        sys.exit(f"Error: the database cannot be used: {first}. Does it exist? Run `manage.py migrate`.")
    finally:
        gc.freeze()  # the process ends faster when nothing is searched for garbage


def _has_halted(arguments: Sequence[str]) -> bool:
    """Halt all work without loading lqops, if that is what the arguments say, and return whether that was done.

    A process of its own tries it, so that this one can load everything if the command has to look at it.
    """
    from agents.management.quick_halt import halt_quickly, wanted

    halt = wanted(arguments)
    if halt is None or os.environ["DJANGO_SETTINGS_MODULE"] != "lqops.settings":
        return False
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = 1
    try:
        env = Env()
        folder = env.data_folder(code=Path(__file__).resolve().parent.parent).path
        settings.configure(USE_TZ=True, DATABASES={"default": configured_database(env, folder)})
        apps.populate(())  # none: that is what takes long
        if text := halt_quickly(halt):
            code = 0
            print(text, flush=True)  # noqa: T201 there is no command to print it
    except (ImproperlyConfigured, DatabaseError, OSError):
        pass  # the command says what is wrong
    finally:
        os._exit(code)


def needs_data(arguments: Sequence[str]) -> bool:
    """Return whether a command line needs the data of the installation; without a command there is only help."""
    options = set(takewhile(lambda argument: argument != "--", arguments))
    if not arguments or options & {"-h", "--help"}:
        return False
    return arguments[0] not in WITHOUT_DATA or any(option.startswith("--database") for option in options)


def _is_text(argument: str) -> bool:
    """False for bytes that are not UTF-8: databases refuse them."""
    return argument == argument.encode(errors="ignore").decode()
