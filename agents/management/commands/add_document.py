"""`add_document`: brings files into a collection. Watches of the collection hear of them."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.search import collection_named
from agents.management.base import acting_user, add_acting_user
from agents.models import Collection
from agents.text.formats import MAX_BYTES
from audit.management.base import ActingCommand, cut


class Command(ActingCommand):
    help = (
        "Adds files (text, Markdown, HTML, PDF, DOCX) to a collection. A file that its owner has already is not stored "
        "twice. A file that cannot be read is named, and the others are added."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="The files to add.")
        parser.add_argument("--collection", required=True, help="The name of the collection that they go into.")
        parser.add_argument("--owner", required=True, help="The username whose collection it is.")
        parser.add_argument("--create", action="store_true", help="Makes the collection if there is none of that name.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = acting_user(options["user"])
        owner = User.objects.filter(username=options["owner"]).first()
        if owner is None:
            raise CommandError(f"There is no user {options['owner']!r}.")
        try:
            collection = self._collection(owner, by, options)
        except LqopsError as error:
            raise CommandError(str(error)) from None
        found = [self._add(Path(file), owner, collection, by) for file in options["files"]]
        if options["json"]:
            self.stdout.write(json.dumps({"collection_id": str(collection.public_id), "files": found}))
        else:
            self.stdout.write("\n".join(_line(entry) for entry in found))
        refused = [entry["file"] for entry in found if entry["outcome"] == "refused"]
        if refused:
            raise CommandError(f"{len(refused)} of {len(found)} files were not added: {', '.join(refused)}.")

    def _collection(self, owner: User, by: User | None, options: dict[str, Any]) -> Collection:
        name = options["collection"]
        collection = collection_named(owner_id=owner.pk, name=name)
        if collection is None and options["create"]:
            collection = collection_create(owner=owner, name=name, by=by, now=clock())
        if collection is None:
            raise CommandError(f"{owner} has no collection {name!r}; --create makes one.")
        return collection

    def _add(self, file: Path, owner: User, collection: Collection, by: User | None) -> dict[str, str]:
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)  # one more than is taken: enough to see that it is too long
            document, is_new = document_add(
                owner=owner, name=file.name, data=data, collection=collection, by=by, now=clock()
            )
        except OSError as error:
            return {"file": str(file), "outcome": "refused", "why": error.strerror or type(error).__name__}
        except LqopsError as error:
            return {"file": str(file), "outcome": "refused", "why": str(error)}
        outcome = "added" if is_new else "known"
        return {"file": str(file), "outcome": outcome, "document_id": str(document.public_id), "name": document.name}


def _line(entry: dict[str, str]) -> str:
    return f"{cut(entry['file'])}: {entry['outcome']}. {entry.get('why') or entry['document_id']}"
