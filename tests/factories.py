"""Rows with sensible defaults, written straight to the database."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from agents.enums import Phase, Status, TriggerKind
from agents.models import Agent, AgentSession, Channel, ModelOutage, ModelPrice, Profile, Project, Trigger, UnreadInput
from agents.people.channels import seal
from agents.policy.run_spec import RunSpec
from agents.triggers.firing import run_now

NOW = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
_number = count(1)


def make_user(*, opted_in=True, **fields):
    user = get_user_model().objects.create(**{"username": f"user-{next(_number)}", **fields})
    Profile.objects.create(user=user, opted_in=opted_in)
    return user


def make_starter(**fields):
    """A user who may start sessions."""
    user = make_user(**fields)
    user.user_permissions.add(Permission.objects.get(codename="add_agentsession"))
    return user


def make_agent(**fields):
    return Agent.objects.create(
        **{"owner": fields.pop("owner", None) or make_user(), "name": f"agent-{next(_number)}", **fields}
    )


def make_project(owner=None, **fields):
    return Project.objects.create(owner=owner or make_user(), **{"name": f"project-{next(_number)}", **fields})


def make_channel(owner=None, *, kind="webhook", address="http://127.0.0.1:9/hook", **fields):
    """A channel; by default its address is refused when something is sent there."""
    given = {"owner": owner or make_user(), "kind": kind, "name": "Hook", "sealed_address": seal(address)}
    return Channel.objects.create(**{**given, "created_at": NOW, **fields})


def make_trigger(**fields):
    owner = fields.pop("owner", None) or make_user()
    return Trigger.objects.create(**{"owner": owner, "name": "trigger", "kind": TriggerKind.MANUAL, **fields})


def make_price(model="test-model", *, input_usd="1", output_usd="1", overhead_tokens=0):
    return ModelPrice.objects.create(
        model=model, input_usd=Decimal(input_usd), output_usd=Decimal(output_usd), overhead_tokens=overhead_tokens
    )


def make_session(status=Status.RUNNING, **fields):
    """A session that the caller holds: the object in hand carries the fencing number of its row."""
    defaults = {
        "owner": fields.pop("owner", None) or make_user(),
        "status": status,
        "current_phase": Phase.TURN,
        "max_cost_usd": Decimal(5),
        "created_at": NOW,
        "last_activity_at": NOW,
    }
    return AgentSession.objects.create(**{**defaults, **fields})


def start_run(*, owner, by, now, **what):
    """Run now, with rows and values by name, as the surfaces have them."""
    bound = {
        name: what.pop(name) for name in ("trigger", "agent", "project", "restarted_from", "actor") if name in what
    }
    return run_now(RunSpec.of(**what), owner=owner, by=by, now=now, **bound)


def make_unread_input(owner=None, *, trigger=None, **fields):
    """What a trigger's run did not read, given up."""
    trigger = trigger or make_trigger(owner=owner, name="Leases")
    defaults = {"state": "given_up", "reason": "cost_cap_reached", "tries": 1, "failed_at": NOW}
    if "session" not in fields:
        ended = {"terminal_reason": "cost_cap_reached", "completed_at": NOW}
        fields["session"] = make_session(Status.HALTED, owner=trigger.owner, trigger=trigger, slot="attach:1", **ended)
    return UnreadInput.objects.create(owner=trigger.owner, trigger=trigger, **{**defaults, **fields})


def make_waiting_for_model(model="test-model", **fields):
    """A run that waits for a model that does not answer."""
    ModelOutage.objects.get_or_create(model=model, defaults={"since": NOW, "next_try_at": NOW + timedelta(hours=1)})
    wait = {"model": model, "outage": NOW.isoformat(), "since": NOW.isoformat()}
    later = NOW + timedelta(days=1)
    return make_session(Status.WAITING, waiting_on="model", metadata={"model_wait": wait}, next_wake_at=later, **fields)
