"""Who may do what, as four groups that every installation has: viewer, operator, approver, admin.

The groups are made with the tables and brought back to this table by every migrate; what an installation grants beyond
it goes into groups of its own.
"""

from collections.abc import Iterable
from typing import Any, Final

from django.apps.registry import Apps

VIEWED: Final = ("agents", "audit")
# What an operator looks after, by the names of the models: adding, changing and deleting.
OPERATED: Final = (
    "trigger",
    "project",
    "collection",
    "document",
    "attachment",
    "playbook",
    "playbookposition",
    "promptskill",
    "precedent",
    "contextproposal",
    "memory",
)
OPERATOR_ALSO: Final = (
    "agents.add_agentsession",
    "agents.change_agentsession",
    "agents.change_skillsetting",
    "agents.halt_everything",
)
APPROVER_ALSO: Final = ("agents.resolve_approval",)
PEOPLE: Final = ("user", "group")
ROLES: Final = ("viewer", "operator", "approver", "admin")


def role_grants(role: str, permissions: Iterable[str]) -> set[str]:
    """Which of the permissions, written app.codename, a role holds. Pure."""
    return {name for name in permissions if _holds(role, name)}


def _holds(role: str, name: str) -> bool:
    app, _, codename = name.partition(".")
    verb, _, model = codename.partition("_")
    if app in VIEWED and verb == "view":
        return True
    if role == "operator":
        return name in OPERATOR_ALSO or (app == "agents" and model in OPERATED)
    if role == "approver":
        return name in APPROVER_ALSO
    return role == "admin" and (app == "agents" or (app == "auth" and model in PEOPLE))


def roles_make(*, apps: Apps, using: str) -> None:
    """Makes the four groups, or gives them back what the table says. Said again, it changes nothing."""
    groups = apps.get_model("auth", "Group").objects.using(using)
    rows = apps.get_model("auth", "Permission").objects.using(using)
    pks = {
        f"{app}.{codename}": pk
        for pk, app, codename in rows.filter(content_type__app_label__in=(*VIEWED, "auth")).values_list(
            "pk", "content_type__app_label", "codename"
        )
    }
    links = groups.model.permissions.through.objects.using(using)
    known = {group.name: group for group in groups.filter(name__in=ROLES)}
    for role in ROLES:
        group = known.get(role) or groups.create(name=role)
        wanted = {pks[name] for name in role_grants(role, pks)}
        _hold_exactly(links, group.pk, wanted)


def _hold_exactly(links: Any, group_pk: int, wanted: set[int]) -> None:
    held = set(links.filter(group_id=group_pk).values_list("permission_id", flat=True))
    if held - wanted:
        links.filter(group_id=group_pk, permission_id__in=held - wanted).delete()
    if wanted - held:
        links.bulk_create([links.model(group_id=group_pk, permission_id=pk) for pk in sorted(wanted - held)])
