"""What a new installation has to show: agents with something to do, and one walk that proves the whole way.

The agents stand in samples/agents, as files that people can read, change and load again. Rows are made by the same
services that people use. Nothing is made twice, and nothing in an installation that people have begun to use.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from agents.conf import clock, sensor_roots
from agents.enums import Status
from agents.exceptions import LqopsError
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.playbooks import playbook_import
from agents.knowledge.projects import project_create
from agents.management.commands.sample_metrics import PLACE_IN_SAMPLE, place
from agents.models import AgentSession, Document, Playbook, Trigger
from agents.policy.run_spec import RunSpec
from agents.policy.transitions import TERMINAL
from agents.roster.files import agent_import
from agents.triggers.firing import run_now
from audit.verify import verify_chain

WALK_SECONDS = 120
CHECKED = "supplier-contract-brightline.md"
CONTEXT = "We buy software and services. English law and New York law are both fine; liability must be capped."


def samples_folder() -> Path:
    return Path(settings.BASE_DIR) / "samples"


def samples_install(owner: User, *, now: datetime) -> str:
    """Agents, playbooks, triggers and documents for a newcomer; says what was made."""
    folder = samples_folder()
    if not (folder / "playbooks").is_dir():
        return "Samples: none in this installation"
    made: dict[str, Any] = {"owner": owner, "by": owner, "now": now}
    project_create(name="Supplier contracts", context_md=CONTEXT, **made)
    contracts = collection_create(name="Contracts", **made)
    reports = collection_create(name="Weekly reports", **made)
    playbooks = [_playbook(path, made) for path in sorted((folder / "playbooks").glob("*.yaml"))]
    agents, left_out = _agents(folder / "agents", made)
    added = 0
    for beginning, home in {"supplier": contracts, "policy": contracts, "weekly": reports}.items():
        for path in sorted((folder / "documents").glob(f"{beginning}*")):
            document_add(name=path.name, data=path.read_bytes(), collection=home, **made)
            added += 1
    inbox = sensor_roots()[0] / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    triggers = Trigger.objects.filter(owner=owner).count()
    counts = f"{agents} agents, {triggers} triggers, {len(playbooks)} playbooks, {added} documents"
    return "\n".join([f"Samples: {counts}, and a folder to watch: {inbox}", *left_out])


def _agents(folder: Path, made: dict[str, Any]) -> tuple[int, list[str]]:
    """Every file of the folder, by name. One that this installation cannot take keeps no other from being loaded."""
    left_out = []
    paths = sorted(folder.glob("*.yaml"))
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8").replace(PLACE_IN_SAMPLE, place())
            agent_import(text=text, file=path.name, **made)
        except LqopsError as error:
            left_out.append(f"Sample left out: {error}")
    return len(paths) - len(left_out), left_out


def _playbook(path: Path, made: dict[str, Any]) -> Playbook:
    return playbook_import(text=path.read_text(encoding="utf-8"), **made)


def walk_once(*, now: datetime, look: Callable[[], None]) -> dict[str, Any]:
    """One run over the queue, from asking for it to its receipt, with its chain verified."""
    owner = User.objects.filter(is_superuser=True, lqops_profile__opted_in=True).order_by("pk").first()
    if owner is None:
        return {"ok": False, "error": "No superuser has opted in: run `manage.py opt_in <user>`."}
    made: dict[str, Any] = {"owner": owner, "by": owner, "now": now}
    folder = samples_folder()
    playbook = _playbook(folder / "playbooks" / "contract-review.yaml", made)
    text = (folder / "documents" / CHECKED).read_bytes()
    document: Document = document_add(name=CHECKED, data=text, **made)[0]
    session = run_now(RunSpec.of(playbook=playbook, document=document), **made)
    started = time.monotonic()
    while session.status not in TERMINAL and time.monotonic() - started < WALK_SECONDS:
        look()
        time.sleep(0.1)
        session.refresh_from_db()
    return _told(session, clock() - now)


def _told(session: AgentSession, took: timedelta) -> dict[str, Any]:
    verified = verify_chain(session.chain).verified
    findings = session.findings.count()
    connection.close()
    return {
        "ok": session.status == Status.COMPLETED and verified and findings > 1,
        "session": str(session.public_id),
        "status": session.status,
        "terminal_reason": session.terminal_reason,
        "findings": findings,
        "cost_usd": str(session.cost_total_usd),
        "chain_verified": verified,
        "seconds": round(took.total_seconds(), 1),
    }
