"""Skills for tests: one of each kind that the guard distinguishes."""

import asyncio
import atexit
import os
import shutil
import sqlite3
import ssl
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from agents.enums import Level
from agents.skills.skill import SkillContext, skill
from agents.types import ModelRequest

meeting = threading.Barrier(3, timeout=60)


@skill(level=Level.SAFE, side_effects=False, local=True)
def echo(text: str, times: int = 1) -> str:
    """Says a text again."""
    return text * times


@skill(level=Level.CONTROLLED, side_effects=False)
def look(place: str = "") -> dict[str, str]:
    """Looks somewhere."""
    return {"seen": place}


@skill(level=Level.PRIVILEGED, side_effects=False)
def reign(word: str = "") -> str:
    """Does something that few may."""
    return f"done {word}".strip()


@skill(level=Level.CONTROLLED, side_effects=False, timeout_seconds=0.2)
def dawdle(seconds: float) -> str:
    """Takes its time."""
    time.sleep(seconds)
    return "at last"


@skill(level=Level.CONTROLLED, timeout_seconds=0.2)
def dawdle_and_act(seconds: float) -> str:
    """Takes its time over something that changes the world."""
    time.sleep(seconds)
    return "at last"


@skill(level=Level.CONTROLLED, side_effects=False)
def fail(words: str) -> str:
    """Fails with these words."""
    raise ValueError(words)


ENDS = {
    "exit": SystemExit(3),
    "cancel": asyncio.CancelledError("over"),
    "interrupt": KeyboardInterrupt(),
}


@skill(level=Level.CONTROLLED)
def quit_beside(how: str) -> str:
    """Ends itself, in a thread."""
    raise ENDS[how]


@skill(level=Level.CONTROLLED, local=True)
def quit_inside(how: str) -> str:
    """Ends itself, in the worker."""
    raise ENDS[how]


@skill(level=Level.CONTROLLED, isolation="process", timeout_seconds=60)
def quit_apart(how: str) -> str:
    """Ends itself, in a process of its own."""
    raise ENDS[how]


@skill(level=Level.CONTROLLED, isolation="process", timeout_seconds=0.05)
def dawdle_apart() -> str:
    """Takes its time, in a process of its own."""
    return "at last"


@skill(level=Level.CONTROLLED, isolation="process", timeout_seconds=60, folders=(tempfile.gettempdir(),))
def die(path: str) -> str:
    """Writes, and is gone."""
    Path(path).write_text("written")
    os._exit(9)


@skill(level=Level.CONTROLLED, isolation="process", timeout_seconds=180, folders=(tempfile.gettempdir(),))
def linger(path: str) -> str:
    """Writes who it is, and works on."""
    Path(path).write_text(str(os.getpid()))
    threading.Event().wait(600)
    return "done"


@skill(level=Level.CONTROLLED, side_effects=False, isolation="process", timeout_seconds=60)
def die_looking() -> str:
    """Looks, and is gone."""
    os._exit(9)


@skill(level=Level.CONTROLLED, isolation="process", timeout_seconds=60)
def chatter() -> str:
    """Prints before, while and after it answers, and ends badly."""
    atexit.register(os._exit, 7)
    atexit.register(print, "goodbye")
    sys.stdout.buffer.write(b'{"output": "printed"}\n\xff\xfe unfinished')
    return "answered"


@skill(level=Level.SAFE, side_effects=False, isolation="process", timeout_seconds=60)
def work_as_usual() -> list[object]:
    """Uses what skills use: threads, a loop of events, files, an own database, time zones, certificates."""
    with (
        ThreadPoolExecutor(2) as pool,
        closing(sqlite3.connect("own.sqlite3")) as rows,
        tempfile.TemporaryFile() as file,
    ):
        file.write(b"text")
        done = list(pool.map(len, ["a", "bb"]))
        found = rows.execute("SELECT 3").fetchone()[0]
    zone = datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Vienna")).utcoffset()
    Path("before").write_text("x")
    Path("folder").mkdir()
    Path("before").rename("folder/after")
    return [*done, found, asyncio.run(asyncio.sleep(0, 4)), str(zone), bool(ssl.create_default_context())]


@skill(level=Level.SAFE, side_effects=False, isolation="process", timeout_seconds=60)
def copy_as_usual() -> list[object]:
    """Copies, packs and unpacks files, which the libraries do with modes and times."""
    first = Path("first")
    first.write_text("text")
    first.touch()
    first.chmod(0o640)
    Path("touched").touch()
    Path("touched").write_text("text" if Path("touched").exists() else "it was not made")
    Path("folder").mkdir()
    for copy, name in ((shutil.copy, "copied"), (shutil.copy2, "copied-with-times"), (shutil.move, "folder/moved")):
        shutil.copyfile(first, "source")
        copy("source", name)
    shutil.copytree("folder", "tree")
    with zipfile.ZipFile("packed.zip", "w") as packed:
        packed.write("copied")
    with zipfile.ZipFile("packed.zip") as packed:
        packed.extractall("unpacked")
    with tarfile.open("packed.tar.gz", "w:gz") as archive:
        archive.add("tree")
    with tarfile.open("packed.tar.gz") as archive:
        archive.extractall("untarred", filter="data")
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w+") as file:
        file.write(folder)
    shutil.make_archive("made", "zip", "tree")
    shutil.rmtree("tree")
    found = [path for path in Path().rglob("*") if path.is_file() and path.read_bytes() == b"text"]
    return sorted(map(str, found))


@skill(level=Level.SAFE, side_effects=False, addresses=("url",))
def visit(url: str) -> str:
    """Reads what is at an address."""
    return f"been to {url}"


@skill(level=Level.CONTROLLED, side_effects=False, isolation="process", timeout_seconds=60)
def alone(context: SkillContext, text: str) -> dict[str, str]:
    """Runs in a process of its own."""
    return {"text": text, "key": context.idempotency_key}


@skill(level=Level.RESTRICTED)
def act(what: str) -> str:
    """Changes the world."""
    return f"did {what}"


@skill(level=Level.RESTRICTED)
def shell(command: str) -> str:
    """Runs a command."""
    return f"ran {command}"


@skill(level=Level.RESTRICTED, addresses=("place",))
def deliver(place: str, text: str = "") -> str:
    """Takes a text to a place."""
    return f"{text} is at {place}"


@skill(level=Level.RESTRICTED)
def paint(colour: Literal["red", "blue"]) -> str:
    """Paints the wall."""
    return f"it is {colour}"


@skill(level=Level.CONTROLLED, side_effects=False, secret_arguments=("token", "headers"), hosts=("sign.example",))
def sign(text: str, token: str, key_: str = "", headers: dict[str, str] | None = None) -> dict[str, object]:
    """Signs a text, and is careless with what it signs with."""
    if text == "fail":
        raise ValueError(f"cannot sign with {token}")
    return {"length": len(token), "echo": f"signed with {token}", token: [token]}


@skill(
    level=Level.CONTROLLED,
    side_effects=False,
    isolation="process",
    timeout_seconds=60,
    secret_arguments=("token",),
    hosts=("sign.example",),
)
def sign_apart(token: str) -> int:
    """Signs in a process of its own."""
    return len(token)


@skill(level=Level.CONTROLLED, side_effects=False, secret_arguments=("token",))
def sign_somewhere(token: str) -> int:
    """Takes a secret, and does not say where it goes."""
    return len(token)


@skill(level=Level.CONTROLLED, addresses=("url",), secret_arguments=("headers",))
def post(url: str, headers: dict[str, str]) -> str:
    """Posts something."""
    return f"posted to {url}"


@skill(level=Level.SAFE, side_effects=False)
def meet(name: str) -> str:
    """Waits until three have come."""
    meeting.wait()
    return name


@skill(level=Level.SAFE, side_effects=False)
def wait_a_second(name: str) -> str:
    """Takes a second."""
    time.sleep(1)
    return name


@skill(
    level=Level.SAFE,
    side_effects=False,
    request=lambda arguments: ModelRequest(
        "test-model", ({"role": "user", "content": arguments["about"]},), max_tokens=256
    ),
)
def wonder(context: SkillContext, about: str) -> str:
    """Asks a model about something."""
    return context.infer().text
