"""Collections, documents and their chunks; playbooks and prompt skills."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import DocumentOrigin


class Collection(models.Model):
    """A named set of documents of one owner. Watches look at collections; schedules and run-now read them."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_collections")
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    read_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Up to when schedules have read; what comes in later is later."
    )
    # Counted by whoever attaches, detaches or deletes one (knowledge/documents.py).
    documents = models.PositiveIntegerField(default=0, editable=False, help_text="Number of documents in it.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], condition=Q(deleted_at__isnull=True), name="collection_name_per_owner"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Document(models.Model):
    """One document: its bytes on disk under their digest, its text here. Neither ever changes.

    The same bytes under another name are another document, once they are put into a collection that has none with them.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_documents")
    name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=100)
    origin = models.CharField(max_length=12, choices=DocumentOrigin, default=DocumentOrigin.UPLOAD)
    session = models.ForeignKey(
        "agents.AgentSession", models.SET_NULL, null=True, blank=True, related_name="artifacts", editable=False
    )
    digest = models.CharField(max_length=64, help_text="SHA-256 of the bytes.")
    size = models.PositiveBigIntegerField(help_text="Bytes.")
    text = models.TextField(blank=True)
    marks = models.JSONField(
        default=list, blank=True, help_text="Pages, sheets or slides: offset in the text and label, in order."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    indexed_as = models.CharField(
        max_length=160, blank=True, editable=False, help_text="The vector space in which all its chunks have a vector."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "digest", "name"],
                condition=Q(deleted_at__isnull=True, origin=DocumentOrigin.UPLOAD),
                name="document_name_once",
            ),
            models.UniqueConstraint(
                fields=["owner", "digest"],
                condition=Q(deleted_at__isnull=True, origin=DocumentOrigin.ARTIFACT),
                name="document_artifact_once",
            ),
        ]
        indexes = [
            models.Index(fields=["owner", "indexed_as"], condition=Q(deleted_at__isnull=True), name="document_indexed")
        ]

    def __str__(self) -> str:
        return self.name


class Attachment(models.Model):
    """A document in a collection, from when to when. Attaching again after detaching is a new event, and a new row."""

    document = models.ForeignKey(Document, models.CASCADE, related_name="attachments")
    collection = models.ForeignKey(Collection, models.CASCADE, related_name="attachments", db_index=False)
    attached_at = models.DateTimeField(db_default=Now())
    attached_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    detached_at = models.DateTimeField(null=True, blank=True)
    watches_fired_at = models.DateTimeField(null=True, blank=True, help_text="Empty: watches have yet to be told.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["document", "collection"], condition=Q(detached_at__isnull=True), name="attachment_once"
            )
        ]
        indexes = [
            models.Index(fields=["id"], condition=Q(watches_fired_at__isnull=True), name="attachment_unfired"),
            models.Index(fields=["collection", "attached_at"], name="attachment_since"),
            models.Index(fields=["collection"], condition=Q(detached_at__isnull=True), name="attachment_inside"),
        ]

    def __str__(self) -> str:
        return f"{self.document} in {self.collection}"


class Chunk(models.Model):
    """A piece of a document: `document.text[start:end] == text`. Full-text search indexes this table."""

    document = models.ForeignKey(Document, models.CASCADE, related_name="chunks", db_index=False)
    number = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    text = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["document", "number"], name="chunk_number")]

    def __str__(self) -> str:
        return f"{self.document_id}[{self.start}:{self.end}]"


class ChunkVector(models.Model):
    """What a chunk means, as a model sees it: a vector of length 1, 32-bit numbers, lowest byte first.

    Vectors compare only within one space: one model with one set of request fields.
    """

    chunk = models.ForeignKey(Chunk, models.CASCADE, related_name="vectors", db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False)
    space = models.CharField(max_length=160)
    vector = models.BinaryField()

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["chunk", "space"], name="chunk_vector_once")]
        indexes = [models.Index(fields=["owner", "space", "id"], name="chunk_vector_owner")]

    def __str__(self) -> str:
        return f"{self.chunk_id} in {self.space}"


class QueryVector(models.Model):
    """The vector of a query that its owner has asked. The query itself is not kept."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False)
    space = models.CharField(max_length=160)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the query.")
    vector = models.BinaryField()

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["owner", "space", "digest"], name="query_vector_once")]

    def __str__(self) -> str:
        return f"{self.digest} in {self.space}"


# --- Playbooks, edited here, and prompt skills, loaded from folders ---


class Playbook(models.Model):
    """Ordered positions under a name. Each edit raises the version; a run records which one it used."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_playbooks")
    name = models.CharField(max_length=120)
    version = models.PositiveIntegerField(default=1, editable=False)
    digest = models.CharField(max_length=64, blank=True, editable=False, help_text="SHA-256 of the rendered text.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], condition=Q(deleted_at__isnull=True), name="playbook_name_per_owner"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} (version {self.version})"


class PlaybookPosition(models.Model):
    """The wanted language for one issue, and the fallbacks."""

    playbook = models.ForeignKey(Playbook, models.CASCADE, related_name="positions")
    order = models.PositiveIntegerField(default=0)
    issue = models.CharField(max_length=200)
    severity = models.CharField(max_length=32, default="warn", help_text="info, warn or critical.")
    standard = models.TextField(blank=True, help_text="The language that is wanted.")
    fallbacks = models.JSONField(default=list, blank=True, help_text="Wordings that would still do, best first.")
    guidance = models.TextField(blank=True)
    must_contain = models.JSONField(default=list, blank=True, help_text="Phrases that have to stand in the document.")
    must_not_contain = models.JSONField(default=list, blank=True, help_text="Phrases that must not.")

    class Meta:
        ordering = ["order", "id"]

    def __str__(self) -> str:
        return self.issue


class PromptSkill(models.Model):
    """A folder with a SKILL.md, as it was accepted. Files that changed since then are refused until accepted again."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=64, unique=True)
    description = models.TextField(blank=True)
    folder = models.CharField(max_length=500, help_text="Where it was loaded from.")
    front_matter = models.JSONField(default=dict, blank=True)
    body = models.TextField()
    digest = models.CharField(max_length=64, help_text="SHA-256 over the files that were accepted.")
    found_digest = models.CharField(max_length=64, blank=True, help_text="The same, of the files at the last load.")
    version = models.PositiveIntegerField(default=1)
    enabled = models.BooleanField(default=True)
    loaded_at = models.DateTimeField(db_default=Now())
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )

    class Meta:
        verbose_name = "skill"

    def __str__(self) -> str:
        return self.name

    @property
    def has_changed(self) -> bool:
        return self.found_digest != self.digest
