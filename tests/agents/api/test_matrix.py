"""Who may do what through the API: every act, by every role, with every kind of key, on own and on others' rows.

What is allowed is worked out from the permissions of the roles and from the one that an act needs. Nothing outside of
it succeeds or leaves an audit event.
"""

from contextlib import contextmanager

import pytest
from django.contrib.auth.models import Group, Permission

from agents.accounts import ROLES, role_grants
from agents.models import Trigger
from agents.people.keys import Scope
from agents.roster.agents import agent_edit
from audit.models import AuditEvent
from tests.factories import NOW, make_user

from .conftest import client_of
from .contract import CheckedClient
from .test_access import ALSO_DECISIONS, DECISIONS
from .test_audit_trail import ACTS, CHANGING, public, staged
from .test_start_permission import STARTED
from .world import make_world, undone

pytestmark = pytest.mark.django_db

START, DECIDE, HALT, LOOSEN, RULES, SKILLS = (
    f"agents.{name}"
    for name in (
        "add_agentsession",
        "resolve_approval",
        "halt_everything",
        "loosen",
        "change_approvalrule",
        "change_skillsetting",
    )
)
WATCHED = {"document:create", "document:attach"}  # start a run only where a trigger watches the collection
# The permission that an act needs, also on one's own rows. What is not named needs none.
NEEDS = {
    **dict.fromkeys(STARTED - WATCHED, START),
    **{f"approval:{act}": DECIDE for act in ("approve", "approve_edited", "approve_for_session", "deny")},
    **dict.fromkeys(("delegation:create", "tool-call:resolve"), DECIDE),
    **dict.fromkeys(("halt:post", "release:post", "pause:post", "resume:post"), HALT),
    **{f"approval-rule:{act}": RULES for act in ("create", "partial_update", "try_past", "destroy")},
    "callable-skill:partial_update": SKILLS,
}
# Rows of others that the permission opens, and rows of nobody. All other rows are found by their owner alone.
OPEN = {
    **dict.fromkeys(("approval", "question", "tool-call"), DECIDE),
    "approval-rule": RULES,
    "callable-skill": SKILLS,
}
# Changes that loosen what binds an agent, all of which the owner may tighten.
LOOSER = {
    "mode": ("agent:partial_update", {"mode": "auto"}),
    "cap of an agent": ("agent:partial_update", {"max_cost_per_day_usd": None}),
    "definition": ("agent:define", {"definition": "mode: auto\n"}),
    "new agent": ("agent:import_yaml", {"definition": "name: bold\nmode: auto\n"}),
    "cap of a trigger": ("trigger:partial_update", {"max_cost_usd": "4"}),
    "review": ("trigger:partial_update", {"review_flagged": False}),
    "caps": ("trigger:set_cap", lambda world: {"triggers": [public(world.rows["trigger"])], "max_cost_usd": "4"}),
    "level of a skill": ("callable-skill:partial_update", {"level": "SAFE"}),
    "rule that allows": ("approval-rule:create", {"name": "R", "effect": "allow", "skill": "now", "enabled": True}),
}
EVERYBODY = ["", *ROLES]
BROWSER = "browser"
EVERY = tuple(Scope)


def all_but(scope):
    return tuple(one for one in Scope if one != scope)


def member(role):
    user = make_user()
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


def granted(role):
    rows = Permission.objects.values_list("content_type__app_label", "codename")
    return role_grants(role, [f"{app}.{codename}" for app, codename in rows])


def client_by(key, user):
    if key != BROWSER:
        return client_of(user, *key)
    client = CheckedClient(raise_request_exception=False)
    client.force_login(user)
    return client


def scope_of(name):
    is_decision = name.rpartition(":")[2] in DECISIONS or name in ALSO_DECISIONS
    return Scope.DECIDE if is_decision else Scope.WRITE


@contextmanager
def answered(client, stage, body):
    """The answer to a request, undone afterwards; one that does not succeed leaves no audit event."""
    data = body(stage.world) if callable(body) else body
    with undone():
        before = AuditEvent.objects.count()
        address = stage.route.address(stage.world)
        answer = getattr(client, stage.route.method)(address, data, format=stage.act.form)
        if answer.status_code >= 300:
            assert AuditEvent.objects.count() == before
        yield answer


def body_of(stage):
    body = stage.act.body
    return (lambda world: body(world, stage.row)) if callable(body) else body


@pytest.mark.parametrize("role", EVERYBODY)
def test_role_and_key_do_to_own_rows_what_they_may(role, some):
    user = member(role)
    world, has = make_world(user), granted(role)
    clients = {key: client_by(key, user) for key in (EVERY, all_but(Scope.WRITE), all_but(Scope.DECIDE))}
    for name in some(ACTS, 10, start=EVERYBODY.index(role)):
        with staged(name, world) as stage:
            for key in (EVERY, all_but(scope_of(name))):
                may = scope_of(name) in key and NEEDS.get(name) in {None, *has}
                with answered(clients[key], stage, body_of(stage)) as answer:
                    assert answer.status_code in ({200, 201, 202, 204} if may else {403}), (name, key, answer.content)


@pytest.mark.parametrize("role", EVERYBODY)
def test_role_does_nothing_to_others_rows_but_decide(role, some):
    user, world = member(role), make_world()
    has, client = granted(role), client_of(user)
    detailed = [name for name in ACTS if CHANGING[name].is_detail]
    for name in some(detailed, 10, start=EVERYBODY.index(role)):
        with staged(name, world) as stage:
            may = OPEN.get(stage.route.basename) in has
            with answered(client, stage, body_of(stage)) as answer:
                if may:
                    assert answer.status_code in {200, 201, 204}, (name, answer.content)
                else:
                    assert answer.status_code in {403, 404}, (name, answer.content)


def set_tight(world):
    """As an admin has set it."""
    agent_edit(agent=world.rows["agent"], by=None, now=NOW, mode="manual", max_cost_per_day_usd=1)
    Trigger.objects.update(max_cost_usd=1, max_cost_per_day_usd=1, review_flagged=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("four_eyes", [False, True])
@pytest.mark.parametrize("role", EVERYBODY)
def test_what_binds_the_owner_is_loosened_by_admins_with_the_scope_and_with_four_eyes_by_nobody_bound(
    role, four_eyes, settings
):
    settings.LQOPS_FOUR_EYES = four_eyes
    user = member(role)
    world, has = make_world(user), granted(role)
    keys = [BROWSER, EVERY, all_but(Scope.ADMIN)]
    clients = {key: client_by(key, user) for key in keys}
    for change, (name, body) in LOOSER.items():
        with staged(name, world) as stage:
            set_tight(stage.world)
            for key, client in clients.items():
                may = LOOSEN in has and (key == BROWSER or "admin" in key) and not four_eyes
                with answered(client, stage, body) as answer:
                    assert answer.status_code in ({200, 201} if may else {403}), (change, key, answer.content)
