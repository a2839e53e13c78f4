"""A browser, installations for it to look at, and rooms in which people are signed in.

The browser is started and stopped by fixtures of this folder: Playwright's own for pytest would keep an event loop
running until the last test of the whole run, and Django refuses to touch its database where one runs.
"""

import fcntl
import os
import shutil

import pytest

from tests import databases
from tests.browser.product import printed_by, running
from tests.browser.room import PATIENCE_SECONDS, Room
from tests.browser.watch import Watch
from tests.flows.model_server import ModelServer
from tests.lqops.processes import environment, run

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str | None:
    named = os.environ.get("LQOPS_TEST_CHROMIUM", "")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="package")
def chromium():
    found = chromium_path()
    if found is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} was found; LQOPS_TEST_CHROMIUM names one")
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    with sync_api.sync_playwright() as playwright:
        # Chromium's sandbox needs rights that containers and root do not have; it opens pages of our own alone.
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="package")
def migrated(chromium, tmp_path_factory):
    """A var folder with an empty, up-to-date database: the installations of these tests begin as copies of it.

    Of the workers that run side by side the first one makes it, and the others wait for it.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if databases.worker else folder
    var, made = folder / "migrated-for-browser", folder / "migrated-for-browser.made"
    with (folder / "migrating-for-browser").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            var.mkdir(mode=0o700)
            done = run("migrate", "--verbosity=0", env=environment(var))
            assert done.returncode == 0, done.stderr
            made.touch()
    return var


@pytest.fixture(scope="package")
def product(migrated, tmp_path_factory):
    """Out of the box: the samples, and the offline analyst in place of a model."""
    var = shutil.copytree(migrated, tmp_path_factory.mktemp("product") / "var")
    with running(var) as started:
        yield started


@pytest.fixture(scope="package")
def furnished(migrated, tmp_path_factory):
    """The samples, a row for every page, and what came in last night."""
    var = shutil.copytree(migrated, tmp_path_factory.mktemp("product") / "var")
    with running(var) as started:
        printed_by(started, "from tests.browser.furniture import furnish; furnish()")
        yield started


@pytest.fixture(scope="module")
def model():
    with ModelServer() as started:
        yield started


@pytest.fixture(scope="module")
def product_with_model(migrated, model, tmp_path_factory):
    var = shutil.copytree(migrated, tmp_path_factory.mktemp("product") / "var")
    with running(var, **model.environment) as started:
        yield started


@pytest.fixture(scope="package")
def context_of(chromium):
    """The browser as one person has it in front of one installation: who signed in stays so, and its cache is kept."""
    opened = {}

    def find(product, name):
        whose = (product.address, name or object())  # somebody without a name is somebody else every time
        if whose not in opened:
            context = chromium.new_context(viewport={"width": 1440, "height": 900})
            context.set_default_timeout(PATIENCE_SECONDS * 1000)
            opened[whose] = context, Watch(context, product.address)
        return opened[whose]

    yield find
    for context, _ in opened.values():
        context.close()


@pytest.fixture
def enter(context_of):
    """`enter(product, name)`: a room with that person signed in; without a name, one in front of the door."""
    rooms = []

    def open_room(product, name=""):
        context, watch = context_of(product, name)
        room = Room(context.new_page(), product, watch)
        rooms.append(room)
        room.open("/admin/")
        if name and "/login/" in room.page.url:
            room.sign_in(name)
            room.page.wait_for_url("**/admin/")
        return room

    yield open_room
    for room in rooms:
        room.leave()
    assert [fault for room in rooms for fault in room.watch.take()] == []


@pytest.fixture
def admin(enter, product):
    return enter(product, "admin")
