from django.db import migrations

from agents.models import fulltext


def install(apps, schema_editor):
    fulltext.install(schema_editor.connection)


def remove(apps, schema_editor):
    fulltext.remove(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("agents", "0002_trigger_cost_caps")]
    operations = [migrations.RunPython(install, remove)]
