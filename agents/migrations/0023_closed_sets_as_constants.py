from typing import Any

from django.db import migrations

# Each as Django writes it, but with the values as one constant.
CHECKS = {
    "agents_agentsession": {
        "session_status": "status = ANY ('{queued,running,sleeping,waiting,completed,halted,failed}'::text[])",
        "session_halt_state": "halt_state = ANY ('{running,halt_requested,halted,idle}'::text[])",
        "session_mode": "mode = ANY ('{phased,loop,chat,heartbeat,sensor,index}'::text[])",
        "session_phase": "current_phase = ANY ('{intake,analysis,drafting,ethics_review,delivery,turn}'::text[])",
        "session_result": """run_result = ANY ('{"",ok,findings,empty,partial,failed}'::text[])""",
        "session_terminal_reason": """terminal_reason IS NULL OR terminal_reason = ANY ('{completed,agent_shutdown,
            external_halt,timed_out,max_steps,budget_exceeded,cost_cap_reached,idle_timeout,stuck_loop,provider_error,
            tool_not_granted,worker_error,worker_lost,opted_out,refused,unpriced_model}'::text[])""",
        "session_waiting_on": """CASE WHEN status = 'waiting'
            THEN waiting_on = ANY ('{approval,input,operator,model,resume}'::text[]) ELSE waiting_on = '' END""",
        "session_end": """CASE WHEN status = ANY ('{completed,failed,halted}'::text[])
            THEN completed_at IS NOT NULL AND terminal_reason IS NOT NULL ELSE completed_at IS NULL END""",
    },
    "agents_toolcall": {
        "tool_call_intent": """intent = ANY ('{retrieve_chunks,run_skill,run_playbook,propose_memory,propose_precedent,
            emit_finding,emit_artifact,notify}'::text[])""",
        "tool_call_outcome": """outcome = ANY ('{started,success,tool_not_granted,gateway_error,skipped,storage_error,
            rate_limited,denied,approval_pending,worker_lost,error,timeout,unknown}'::text[])""",
        "tool_call_settled": "(outcome = 'started') = (settled_at IS NULL)",
    },
}


def as_constants(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table, checks in CHECKS.items():
            changes = [f"DROP CONSTRAINT {name}, ADD CONSTRAINT {name} CHECK ({check})" for name, check in checks.items()]
            schema_editor.execute(f"ALTER TABLE {table} {', '.join(changes)}")


class Migration(migrations.Migration):
    """On PostgreSQL the checks of runs and calls hold their values as constants; they allow the same as before.

    The server reads and simplifies all checks of a table with every statement that writes to it. A list of values, as
    Django writes it, made that half of the time of an update of a run.
    """

    dependencies = [("agents", "0022_states")]

    operations = [migrations.RunPython(as_constants, migrations.RunPython.noop)]
