"""`add_document`: add files to a collection. Watches of the collection fire."""

import stat
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.exceptions import Invalid, LqopsError
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.search import collection_named
from agents.management.base import RecordedCommand, named_user
from agents.models import Collection
from agents.text.formats.kinds import KINDS
from agents.text.formats.limits import MAX_BYTES


class Command(RecordedCommand):
    help = (
        f"Adds files ({KINDS}) to a collection. A file that its owner already has is not stored twice. Files that "
        "cannot be read are listed; the others are added."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="The files to add.")
        parser.add_argument("--collection", required=True, help="The name of the collection.")
        parser.add_argument("--owner", required=True, help="The username of the collection's owner.")
        parser.add_argument("--create", action="store_true", help="Creates the collection if it does not exist.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        common = {"owner": named_user(options["owner"], active=False), **self.actor(options)}
        collection = _collection(common, options)
        files = [_add(Path(file), collection, common) for file in options["files"]]
        text = "\n".join(_line(entry) for entry in files)
        self.print({"collection_id": str(collection.public_id), "files": files}, text, options)
        refused = [entry["file"] for entry in files if entry["outcome"] == "refused"]
        if refused:
            raise CommandError(f"{len(refused)} of {len(files)} files were not added: {', '.join(refused)}.")


def _collection(common: dict[str, Any], options: dict[str, Any]) -> Collection:
    name = options["collection"]
    collection = collection_named(owner_id=common["owner"].pk, name=name)
    if collection is None and options["create"]:
        return collection_create(name=name, **common)
    if collection is None:
        raise CommandError(f"{common['owner']} has no collection {name!r}. --create creates it.")
    return collection


def _add(path: Path, collection: Collection, common: dict[str, Any]) -> dict[str, str]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block
            raise Invalid("It is not a regular file.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # one more than allowed shows that it is too long
        document, is_new = document_add(name=path.name, data=data, collection=collection, **common)
    except (OSError, LqopsError) as error:
        return {"file": str(path), "outcome": "refused", "why": getattr(error, "strerror", None) or str(error)}
    outcome = "added" if is_new else "known"
    return {"file": str(path), "outcome": outcome, "document_id": str(document.public_id), "name": document.name}


def _line(entry: dict[str, str]) -> str:
    return f"{entry['file']}: {entry['outcome']}. {entry.get('why') or entry['document_id']}"
