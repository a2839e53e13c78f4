"""Full-text search over the person's own documents."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.api.fields import Body, CountField, OwnRow
from agents.api.schema import described
from agents.knowledge.search import search_chunks
from agents.models import Collection

QUERY_CHARS = 500
MOST_HITS = 100


class SearchQuery(Body):
    q = serializers.CharField(max_length=QUERY_CHARS, help_text="Words to look for.")
    collection = OwnRow(Collection, required=False, help_text="Only in this collection.")
    limit = CountField(min_value=1, max_value=MOST_HITS, default=20)


class HitShown(serializers.Serializer[Any]):
    document = serializers.UUIDField(source="document_public_id")
    name = serializers.CharField()
    start = serializers.IntegerField(help_text="Where the passage begins in the document's text.")
    end = serializers.IntegerField()
    snippet = serializers.CharField()


class SearchShown(serializers.Serializer[Any]):
    results = HitShown(many=True)


class Search(ApiView):
    serializer_class = SearchShown

    @described("search_retrieve", SearchShown, parameters=[SearchQuery])
    def get(self, request: Request) -> Response:
        """The passages that fit best, best first."""
        said = self.query(SearchQuery)
        within = said.get("collection")
        hits = search_chunks(
            owner_id=self.person.pk,
            query=said["q"],
            collection_ids=[within.pk] if within else None,
            limit=said["limit"],
        )
        return Response(SearchShown({"results": hits}).data)
