from django.db import migrations, models

from agents.migrations._repeated_indexes import DropRepeatedIndex
from agents.migrations._together import Together

REPEATED = {
    "agent": ["owner"],
    "agentevent": ["agent", "session"],
    "agentsession": ["owner", "trigger"],
    "approval": ["session"],
    "approvalvote": ["approval"],
    "attachment": ["collection"],
    "chunk": ["document"],
    "chunkvector": ["chunk", "owner"],
    "contextrevision": ["project"],
    "gateday": ["agent"],
    "hotfield": ["session"],
    "inboundevent": ["owner"],
    "memory": ["owner"],
    "message": ["session"],
    "outboxmessage": ["notification"],
    "queryvector": ["owner"],
    "question": ["session"],
    "savedview": ["owner"],
    "sensor": ["agent"],
    "toolcall": ["session"],
    "turn": ["session"],
}


class Migration(migrations.Migration):
    """Indexes for lists by state and result, which SQLite can use too; those that repeated others are dropped.

    With an index of the session alone PostgreSQL read all calls of a run to find one by its key.
    """

    dependencies = [("agents", "0021_budgets_of_months")]

    operations = [
        migrations.AddIndex(
            model_name="agentsession",
            index=models.Index(fields=["run_result", "-id"], name="session_by_result"),
        ),
        migrations.AddIndex(
            model_name="agentsession",
            index=models.Index(fields=["status", "-id"], name="session_by_status"),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(fields=["status", "created_at"], name="approval_by_status"),
        ),
        migrations.RemoveIndex(model_name="approval", name="approval_pending"),
        Together(*(DropRepeatedIndex(model, name) for model, names in REPEATED.items() for name in names)),
    ]
