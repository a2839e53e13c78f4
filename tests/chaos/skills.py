"""The skill of the chaos runs: it acts outside of the database, and that cannot be taken back."""

import os
import time
from pathlib import Path

from agents.enums import Level
from agents.skills.skill import SkillContext, skill

ANSWER_SECONDS = 2  # a letter is gone before its answer comes: whoever is killed in between does not know it


@skill(level=Level.RESTRICTED)
def send_letter(context: SkillContext, what: str) -> str:
    """Sends a letter."""
    with Path(os.environ["LQOPS_CHAOS_EFFECTS"]).open("a") as out:
        out.write(f"{context.idempotency_key}\n")
        out.flush()
        os.fsync(out.fileno())
    time.sleep(ANSWER_SECONDS)
    return f"The letter was sent: {what}"
