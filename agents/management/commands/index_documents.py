"""`index_documents`: show how much is indexed for search by meaning and what the rest costs; start a run for it."""

from argparse import ArgumentParser
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.definitions.catalogue import embedding_model
from agents.engine.indexing import index_forget, index_start, index_state
from agents.knowledge.vectors import has_numpy
from agents.management.base import RecordedCommand, named_user
from agents.models import Document


class Command(RecordedCommand):
    help = (
        "Shows for each owner how many documents are indexed for search by meaning, and an estimate of what indexing "
        "the others costs. The ticker starts the runs; --start starts them now, --again indexes everything anew."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--owner", help="Only the documents of this user. Default: all users with documents.")
        parser.add_argument("--start", action="store_true", help="Starts a run for each owner who lacks vectors.")
        parser.add_argument("--again", action="store_true", help="Deletes the vectors first. Implies --start.")
        parser.add_argument("--cap", help="Maximum cost of each run, in USD. Default: the installation's cap of a run.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        if not embedding_model():
            raise CommandError("No model has the role embeddings: documents are searched by words. See docs/models.md.")
        if not has_numpy():
            raise CommandError("numpy is missing: install the extra `semantic`.")
        listed = [_indexed(owner, self.actor(options), options) for owner in _owners(options["owner"])]
        facts = {"model": embedding_model(), "owners": listed}
        self.print(facts, "\n".join(map(_line, listed)) or "There are no documents.", options)


def _owners(username: str | None) -> list[User]:
    if username is not None:
        return [named_user(username, active=False)]
    documents = Document.objects.filter(deleted_at__isnull=True)
    return list(User.objects.filter(pk__in=documents.values("owner_id")).order_by("username"))


def _indexed(owner: User, actor: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    if options["again"]:
        index_forget(owner=owner, **actor)
    state = index_state(owner)
    session = None
    if (options["start"] or options["again"]) and state.passages_left:
        session = index_start(owner=owner, max_cost_usd=_amount(options["cap"]), **actor)
    facts = {**asdict(state), "estimate_usd": str(state.estimate_usd)}
    return {"owner": owner.get_username(), **facts, "session": str(session.public_id) if session else None}


def _amount(text: str | None) -> Decimal | None:
    try:
        amount = Decimal(text) if text is not None else None
    except InvalidOperation:
        amount = Decimal(-1)
    if amount is not None and not (amount.is_finite() and amount > 0):
        raise CommandError(f"--cap {text!r} is not an amount of US dollars above 0.")
    return amount


def _line(facts: dict[str, Any]) -> str:
    done = f"{facts['owner']}: {facts['indexed']} of {facts['documents']} documents indexed by {facts['model']}"
    if not facts["passages_left"]:
        return f"{done}."
    left = f"{facts['passages_left']:,} passages left, about {facts['tokens_left']:,} tokens"
    run = f" Run {facts['session']} is started." if facts["session"] else ""
    return f"{done}; {left}, ${facts['estimate_usd']}.{run}"
