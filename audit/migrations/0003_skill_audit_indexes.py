from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0002_append_only'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='skillaudit',
            index=models.Index(fields=['skill_name', '-created_at', '-id'], name='audit_skill_name'),
        ),
        migrations.AddIndex(
            model_name='skillaudit',
            index=models.Index(fields=['user_id', '-created_at', '-id'], name='audit_skill_user'),
        ),
        migrations.AddIndex(
            model_name='skillaudit',
            index=models.Index(fields=['session_id'], name='audit_skill_session'),
        ),
    ]
