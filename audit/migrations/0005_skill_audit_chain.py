from django.db import migrations, models

from audit import models as tables
from audit import recorder, utc_now
from audit.skill_audits import SEALED, sealed_skill_audits


def seal(apps, schema_editor):
    """Write the digest of the skill audits that have no event of their own into the chain `system`."""
    sealed = sealed_skill_audits()
    if sealed.rows:
        recorder.append("system", SEALED, now=utc_now(), details=sealed._asdict())


def install(apps, schema_editor):
    """The table was made anew on SQLite, without its triggers; and there is one more of them."""
    tables.install(schema_editor.connection)


def remove(apps, schema_editor):
    tables.remove(schema_editor.connection)


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0004_pending_event'),
    ]

    operations = [
        migrations.RunPython(migrations.RunPython.noop, install),
        migrations.AddField(
            model_name='skillaudit',
            name='chain',
            field=models.CharField(blank=True, default='', max_length=64),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='skillaudit',
            name='seq',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='skillaudit',
            index=models.Index(fields=['chain', 'seq'], name='audit_skill_place'),
        ),
        migrations.RunPython(seal, migrations.RunPython.noop),
        migrations.RunPython(install, remove),
    ]
