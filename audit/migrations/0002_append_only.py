from django.db import migrations

from audit import models


def install(apps, schema_editor):
    models.install(schema_editor.connection)


def remove(apps, schema_editor):
    models.remove(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_audit_event_and_skill_audit")]
    operations = [migrations.RunPython(install, remove)]
