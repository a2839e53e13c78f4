"""Reads what has a structure in a process of its own, with a bound on time and memory.

The parsers of PDF, DOCX and HTML were written for documents, not for attacks: some bytes make them loop, recurse or
grow without end, and no check beforehand sees them all. A process can be ended; a thread cannot. It is given the bytes
and nothing else: no settings, no secrets of the environment. Few of them run at once, so that many documents together
take no more memory than a few.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from agents.exceptions import Invalid
from agents.text.kinds import Kind
from agents.text.limits import MAX_READERS, MAX_SECONDS, MAX_WAIT_SECONDS

_ROOT = Path(__file__).resolve().parents[2]
_START = "from agents.text.reader import main; main()"
_turns = threading.BoundedSemaphore(MAX_READERS)


def read_apart(data: bytes, kind: Kind) -> str:
    if not _turns.acquire(timeout=MAX_WAIT_SECONDS):
        raise Invalid(f"Other documents are being read, for {MAX_WAIT_SECONDS} seconds now. Add this one again later.")
    try:
        return _read(data, kind)
    finally:
        _turns.release()


def _read(data: bytes, kind: Kind) -> str:
    seconds = MAX_SECONDS[kind]
    search_path = os.pathsep.join([str(_ROOT), *(place for place in sys.path if place)])
    try:
        done = subprocess.run(  # noqa: S603 our own interpreter and module; the bytes go in as input
            [sys.executable, "-P", "-B", "-c", _START, kind],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": search_path, "PATH": os.defpath},
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"Reading the document as {kind.name} took longer than {seconds} seconds. Split it, or save it as text."
        ) from None
    if done.returncode != 0:
        raise Invalid(
            f"The document could not be read as {kind.name}: it is damaged, or needs more time or memory than it is "
            "given. Save it anew, or as text."
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise Invalid(str(answer["refused"]))
    return str(answer["text"])
