"""Permissions as a table: every page, verb and row action, for the four roles."""

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, Group, Permission
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.test import RequestFactory

from agents.accounts import role_grants, roles_sync
from agents.admin.base import DetailAdmin
from tests.agents.admin.rows import ROLES
from tests.factories import make_user

pytestmark = pytest.mark.django_db

EVERYBODY, NOBODY = "viewer operator approver admin", ""
OPERATORS, APPROVERS, ADMINS = "operator admin", "approver admin", "admin"

# page → verb or action → roles
TABLE = {
    "agents.agent": {
        "view": EVERYBODY, "add": ADMINS, "change": ADMINS, "delete": NOBODY, "act halt": OPERATORS,
        "act delete": ADMINS, "act start": OPERATORS, "act stop": OPERATORS, "act restart": OPERATORS,
        "act try": OPERATORS,
        "act archive": ADMINS, "act unarchive": ADMINS, "act pause": OPERATORS, "act resume": OPERATORS,
        "act caps": ADMINS,
    },
    "agents.agentevent": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY},
    "agents.agentsession": {
        "view": EVERYBODY, "add": OPERATORS, "change": NOBODY, "delete": NOBODY, "act halt": OPERATORS,
        "act restart": OPERATORS, "act try_now": OPERATORS, "act pause": OPERATORS, "act resume": OPERATORS,
    },
    "agents.apikey": {"view": EVERYBODY, "add": ADMINS, "change": NOBODY, "delete": NOBODY, "act revoke": ADMINS},
    "agents.approval": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act approve": APPROVERS,
        "act deny": APPROVERS,
    },
    "agents.budget": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act set_cap": ADMINS},
    "agents.channel": {
        "view": EVERYBODY, "add": EVERYBODY, "change": EVERYBODY, "delete": NOBODY, "act test": EVERYBODY,
        "act rotate_secret": EVERYBODY, "act delete": EVERYBODY,
    },
    "agents.outboxmessage": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act replay": EVERYBODY,
        "act discard": EVERYBODY,
    },
    "agents.collection": {
        "view": EVERYBODY, "add": OPERATORS, "change": OPERATORS, "delete": NOBODY, "act delete": OPERATORS,
    },
    "agents.contextproposal": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act accept": OPERATORS,
        "act edit": OPERATORS, "act reject": OPERATORS, "act retire": OPERATORS,
    },
    "agents.approvalrule": {
        "view": EVERYBODY, "add": OPERATORS, "change": OPERATORS, "delete": NOBODY, "act delete": OPERATORS,
    },
    "agents.declaredmodel": {
        "view": EVERYBODY, "add": ADMINS, "change": ADMINS, "delete": NOBODY, "act delete": ADMINS,
    },
    "agents.delegation": {
        "view": EVERYBODY, "add": APPROVERS, "change": NOBODY, "delete": NOBODY, "act end": EVERYBODY,
    },
    "agents.document": {
        "view": EVERYBODY, "add": OPERATORS, "change": NOBODY, "delete": NOBODY, "act attach": OPERATORS,
        "act detach": OPERATORS, "act delete": OPERATORS,
    },
    "agents.finding": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act acknowledge": OPERATORS,
        "act resolve": OPERATORS, "act dismiss": OPERATORS, "act reopen": OPERATORS, "act assign": OPERATORS,
        "act comment": OPERATORS,
    },
    "agents.halt": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY},
    "agents.inboundevent": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY},
    "agents.inferencelog": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY},
    "agents.installation": {"view": EVERYBODY, "add": NOBODY, "change": ADMINS, "delete": NOBODY},
    "agents.memory": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act keep": OPERATORS,
        "act dismiss": OPERATORS, "act delete": OPERATORS,
    },
    "agents.modelprice": {"view": EVERYBODY, "add": ADMINS, "change": ADMINS, "delete": NOBODY},
    "agents.notification": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act read": EVERYBODY,
    },
    "agents.playbook": {
        "view": EVERYBODY, "add": OPERATORS, "change": OPERATORS, "delete": NOBODY, "act delete": OPERATORS,
    },
    "agents.precedent": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act promote": OPERATORS,
        "act dismiss": OPERATORS, "act merge": OPERATORS,
    },
    "agents.project": {
        "view": EVERYBODY, "add": OPERATORS, "change": OPERATORS, "delete": NOBODY, "act delete": OPERATORS,
        "act caps": OPERATORS,
    },
    "agents.promptskill": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act accept": OPERATORS,
        "act enable": OPERATORS, "act disable": OPERATORS,
    },
    "agents.question": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY},
    "agents.secretbinding": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act set_hosts": ADMINS,
    },
    "agents.skillsetting": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act enable": OPERATORS,
        "act disable": OPERATORS, "act set_level": OPERATORS, "act set_limit": OPERATORS, "act clear_limit": OPERATORS,
    },
    "agents.suspendedmodel": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act accept": ADMINS,
    },
    "agents.toolcall": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act happened": APPROVERS,
        "act did_not_happen": APPROVERS,
    },
    "agents.unreadinput": {
        "view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY, "act retry": OPERATORS,
        "act dismiss": OPERATORS,
    },
    "agents.trigger": {
        "view": EVERYBODY, "add": OPERATORS, "change": OPERATORS, "delete": NOBODY, "act run_now": OPERATORS,
        "act set_cap": OPERATORS, "act pause": OPERATORS, "act resume": OPERATORS, "act rotate": OPERATORS,
        "act delete": OPERATORS, "act caps": OPERATORS,
    },
    "audit.auditevent": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY},
    "audit.skillaudit": {"view": EVERYBODY, "add": NOBODY, "change": NOBODY, "delete": NOBODY},
    "auth.group": {"view": ADMINS, "add": ADMINS, "change": ADMINS, "delete": ADMINS},
    "auth.user": {
        "view": ADMINS, "add": ADMINS, "change": ADMINS, "delete": NOBODY, "act opt_in": ADMINS, "act opt_out": ADMINS,
        "act sign_out": ADMINS, "act remove_factors": NOBODY, "act invite_again": ADMINS,
        "act allow_sso": ADMINS, "act ceilings": ADMINS, "act remove_sso": ADMINS,
        "act caps": ADMINS,
    },
}  # fmt: skip


@pytest.fixture
def requests_of():
    """A request of a member of each role."""
    found = {}
    for role in ROLES:
        user = make_user(is_staff=True)
        user.groups.add(Group.objects.get(name=role))
        found[role] = RequestFactory().get("/")
        found[role].user = user
    return found


def verbs(page, request):
    found = {verb: getattr(page, f"has_{verb}_permission")(request) for verb in ("view", "add", "change", "delete")}
    acts = page.row_actions if isinstance(page, DetailAdmin) else ()
    return found | {f"act {act.name}": page.may_run(request, act) for act in acts}


def test_each_page_lets_each_role_do_what_the_table_says(requests_of):
    as_table = {}
    for page in admin.site._registry.values():
        found = {role: verbs(page, request) for role, request in requests_of.items()}
        as_table[page.opts.label_lower] = {
            verb: " ".join(role for role in ROLES if found[role][verb]) for verb in found["viewer"]
        }

    assert as_table == TABLE


def test_staff_without_a_role_may_nothing():
    request = RequestFactory().get("/")
    request.user = make_user(is_staff=True)

    for page in admin.site._registry.values():
        assert not any(verbs(page, request).values()), page


def test_lists_offer_only_allowed_actions(requests_of):
    for page in admin.site._registry.values():
        table = TABLE[page.opts.label_lower]
        for role, request in requests_of.items():
            allowed = {verb.removeprefix("act ") for verb, roles in table.items() if role in roles.split()}
            assert page.get_actions(request).keys() <= allowed, (page, role)


def test_anonymous_visitor_is_refused():
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    page = next(page for page in admin.site._registry.values() if page.opts.label_lower == "agents.trigger")

    with pytest.raises(PermissionDenied):
        page.has_add_permission(request)


# --- Groups ---


def held(role):
    rows = Group.objects.get(name=role).permissions.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


def test_new_database_has_the_four_roles():
    assert set(ROLES) <= set(Group.objects.values_list("name", flat=True))


def test_viewer_has_only_view_permissions():
    assert {name.split(".")[1].split("_")[0] for name in held("viewer")} == {"view"}
    assert held("viewer") < held("operator")
    assert held("viewer") < held("approver")


def test_operators_do_not_approve_and_approvers_do_not_operate():
    assert "agents.resolve_approval" not in held("operator")
    assert held("approver") - held("viewer") == {"agents.resolve_approval"}
    assert "agents.halt_everything" in held("operator")
    assert "agents.change_agent" not in held("operator")


def test_making_roles_again_restores_them(django_assert_num_queries):
    before = {role: held(role) for role in ROLES}
    viewer = Group.objects.get(name="viewer")
    viewer.permissions.add(Permission.objects.get(codename="resolve_approval"))
    viewer.permissions.remove(Permission.objects.get(codename="view_agentsession"))
    own = Group.objects.create(name="night shift")
    own.permissions.add(Permission.objects.get(codename="resolve_approval"))

    call_command("migrate", verbosity=0)
    roles_sync(apps=apps, using="default")

    assert {role: held(role) for role in ROLES} == before
    assert own.permissions.count() == 1
    with django_assert_num_queries(6):  # two reads, and one for each role: nothing is written
        roles_sync(apps=apps, using="default")


def test_permissions_of_other_apps_are_in_no_role():
    names = ["django_q.view_task", "sessions.change_session", "admin.view_logentry", "auth.change_permission"]

    assert [role_grants(role, names) for role in ROLES] == [set()] * 4
