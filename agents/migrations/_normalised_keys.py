from collections import defaultdict

from django.utils import timezone

from agents.text.wording import label, text_key


def normalise_keys(apps, schema_editor):
    """Give memories and precedents their keys by normalised text, and merge open precedents that become equal."""
    alias = schema_editor.connection.alias
    memories = apps.get_model("agents", "Memory").objects.using(alias)
    for pk, content in memories.values_list("pk", "content").iterator():
        memories.filter(pk=pk).update(content_hash=text_key(content))
    precedents = apps.get_model("agents", "Precedent").objects.using(alias)
    precedents.filter(dismissed_at__isnull=False).update(ended_as="dismissed")
    same = defaultdict(list)
    for row in precedents.order_by("pk"):
        row.pattern_kind = label(row.pattern_kind, limit=64) or "pattern"
        row.summary_hash = text_key(row.summary)
        if row.dismissed_at is None:
            same[row.owner_id, row.pattern_kind, row.summary_hash].append(row)
        else:
            row.save(update_fields=["pattern_kind", "summary_hash"])
    for rows in same.values():
        _merge(*rows)


def _merge(kept, *others):
    """Add up the counts in the first row. The others are ended before it gets the key that all of them have."""
    for row in others:
        kept.observed_count += row.observed_count
        kept.first_seen_at = min(kept.first_seen_at, row.first_seen_at)
        kept.last_seen_at = max(kept.last_seen_at, row.last_seen_at)
        row.dismissed_at, row.ended_as, row.merged_into = timezone.now(), "merged", kept
        row.save()
    kept.save()
