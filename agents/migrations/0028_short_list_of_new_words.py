from django.db import migrations

from agents.models.fulltext import PENDING


def shorten(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER INDEX agents_chunk_words SET ({PENDING})")
        schema_editor.execute("SELECT gin_clean_pending_list('agents_chunk_words')")


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0027_documents_counted"),
    ]

    operations = [migrations.RunPython(shorten, migrations.RunPython.noop)]
