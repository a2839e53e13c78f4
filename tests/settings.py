"""Test settings: the product's own, on a throw-away database (or LQOPS_TEST_DATABASE_URL), with small time units."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def _made_for_this_run() -> str:
    """Return a new folder. It is removed at the end, with the copies of workers, and by this process alone."""
    made, maker = tempfile.mkdtemp(prefix="lqops-test-"), os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            for folder in (Path(made), *Path(made).parent.glob(f"{Path(made).name}-*")):
                shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return made


# The processes that a test starts share the folder of its run; workers that run side by side have one each.
_var = Path(os.environ.get("LQOPS_TEST_VAR_DIR") or _made_for_this_run())
os.environ["LQOPS_TEST_VAR_DIR"] = os.environ["LQOPS_VAR_DIR"] = str(_var)
os.environ["LQOPS_DATABASE_URL"] = os.environ.get("LQOPS_TEST_DATABASE_URL") or f"sqlite:///{_var / 'lqops.sqlite3'}"

from lqops.oidc_config import APPS as OIDC_APPS  # noqa: E402
from lqops.settings import *  # noqa: E402, F403
from lqops.settings import DATABASES, INSTALLED_APPS, VAR_DIR  # noqa: E402

INSTALLED_APPS += OIDC_APPS  # a test of single sign-on names its own provider

# The in-memory default of SQLite cannot be shared by the processes and threads of the race tests.
if not DATABASES:  # the process of a command that needs no data
    pass
elif DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": str(VAR_DIR / "test.sqlite3")}
    # Tests kill processes, not the power: a commit need not reach the disk before the next statement.
    _options = DATABASES["default"]["OPTIONS"]
    _options["init_command"] = _options["init_command"].replace("synchronous=FULL", "synchronous=NORMAL")
else:  # a test stands in the middle of a transaction from its beginning to its end, and the machine may be busy;
    # a commit need not reach the disk here either.
    _options = {
        "idle_in_transaction_session_timeout": "150s",
        "synchronous_commit": "off",
    }
    DATABASES["default"]["OPTIONS"]["options"] = " ".join(f"-c {name}={value}" for name, value in _options.items())

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True  # no test client lists all static files before it asks for its page
LQOPS_LEASE_SECONDS = float(os.environ.get("LQOPS_TEST_LEASE_SECONDS", "60"))
LQOPS_HEARTBEAT_SECONDS = 0.5
LQOPS_MAX_RUNNING_PER_USER = 10_000  # a test of the limit sets its own
