"""What the queue's workers are asked to do. Each takes one id; everything else stands in the rows."""

import os
import socket

from agents import runner
from agents.chat.engine import chat
from agents.ends import Engine
from agents.enums import Mode
from agents.models import AgentSession
from agents.walk.walk import walk

ENGINES: dict[str, Engine] = {Mode.PHASED: walk, Mode.CHAT: chat}


def run_session(session_pk: int) -> None:
    mode = AgentSession.objects.values_list("mode", flat=True).get(pk=session_pk)
    runner.run_session(session_pk, ENGINES[mode], owner=f"{socket.gethostname()}:{os.getpid()}"[-96:])
