import agents.models.expressions
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Indexes for lists of a person with very many rows: chats, unread notifications, memories, documents of
    collections.
    """

    dependencies = [
        ('agents', '0024_calls_settled_in_place'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name='agentsession',
            index=models.Index(condition=models.Q(('mode', 'chat')), fields=['owner', '-id'], name='session_message'),
        ),
        migrations.AddIndex(
            model_name='agentsession',
            index=models.Index(models.F('owner'), agents.models.expressions.ChatOf(), models.F('id'), condition=models.Q(('mode', 'chat')), name='session_chat'),
        ),
        migrations.AddIndex(
            model_name='attachment',
            index=models.Index(condition=models.Q(('detached_at__isnull', True)), fields=['collection'], name='attachment_inside'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('read_at__isnull', True)), fields=['owner', 'id'], name='notification_unread'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['owner', '-id'], name='memory_owner'),
        ),
    ]
