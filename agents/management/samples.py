"""Sample content of a new installation, and the run of `up --check`.

The sample agents are files in samples/agents. Everything is created by the services that people use, once, and never in
an installation that is already in use.
"""

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
from agents.management.base import await_end
from agents.management.commands.sample_metrics import PLACE_IN_SAMPLE, place
from agents.models import AgentSession, Document, Playbook, Trigger
from agents.policy.run_spec import RunSpec
from agents.roster.files import agent_import
from agents.triggers.firing import run_now
from audit.verify import verify_chain

WALK_SECONDS = 120
CHECKED = "supplier-contract-brightline.md"
CONTEXT = "We buy software and services. English law and New York law are both fine; liability must be capped."


def samples_folder() -> Path:
    return Path(settings.SAMPLES_DIR)


def samples_install(owner: User, *, now: datetime) -> str:
    """Create sample agents, playbooks, triggers and documents. Returns a summary."""
    folder = samples_folder()
    if not (folder / "playbooks").is_dir():
        return "Samples: none in this installation"
    common: dict[str, Any] = {"owner": owner, "by": owner, "now": now}
    project_create(name="Supplier contracts", context_md=CONTEXT, **common)
    contracts = collection_create(name="Contracts", **common)
    reports = collection_create(name="Weekly reports", **common)
    playbooks = [_playbook(path, common) for path in sorted((folder / "playbooks").glob("*.yaml"))]
    agents, skipped = _agents(folder / "agents", common)
    added = 0
    for prefix, collection in {"supplier": contracts, "policy": contracts, "weekly": reports}.items():
        for path in sorted((folder / "documents").glob(f"{prefix}*")):
            document_add(name=path.name, data=path.read_bytes(), collection=collection, **common)
            added += 1
    inbox = sensor_roots()[0] / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    triggers = Trigger.objects.filter(owner=owner).count()
    counts = f"{agents} agents, {triggers} triggers, {len(playbooks)} playbooks, {added} documents"
    return "\n".join([f"Samples: {counts}, and a folder to watch: {inbox}", *skipped])


def _agents(folder: Path, common: dict[str, Any]) -> tuple[int, list[str]]:
    """Load every file of the folder. Returns the number of agents, and a line for each skipped file."""
    skipped = []
    paths = sorted(folder.glob("*.yaml"))
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8").replace(PLACE_IN_SAMPLE, place())
            agent_import(text=text, file=path.name, **common)
        except LqopsError as error:
            skipped.append(f"Sample skipped: {error}")
    return len(paths) - len(skipped), skipped


def _playbook(path: Path, common: dict[str, Any]) -> Playbook:
    return playbook_import(text=path.read_text(encoding="utf-8"), **common)


def walk_once(*, now: datetime, check: Callable[[], None]) -> dict[str, Any]:
    """Run one sample session through the queue and verify its audit chain."""
    owner = User.objects.filter(is_superuser=True, lqops_profile__opted_in=True).order_by("pk").first()
    if owner is None:
        return {"ok": False, "error": "No superuser has opted in: run `manage.py opt_in <user>`."}
    common: dict[str, Any] = {"owner": owner, "by": owner, "now": now}
    folder = samples_folder()
    playbook = _playbook(folder / "playbooks" / "contract-review.yaml", common)
    text = (folder / "documents" / CHECKED).read_bytes()
    document: Document = document_add(name=CHECKED, data=text, **common)[0]
    session = run_now(RunSpec.of(playbook=playbook, document=document), **common)
    await_end(session, WALK_SECONDS, between=check)
    return _facts(session, clock() - now)


def _facts(session: AgentSession, took: timedelta) -> dict[str, Any]:
    verified = verify_chain(session.chain).verified
    findings = session.findings.count()
    connection.close()
    return {
        "ok": session.status == Status.COMPLETED and verified and findings > 1,
        "session": str(session.public_id),
        "status": session.status,
        "terminal_reason": session.terminal_reason,
        "findings": findings,
        "spent_usd": str(session.spent_usd),
        "chain_verified": verified,
        "seconds": round(took.total_seconds(), 1),
    }
