"""secrets: lists secrets with their hosts, names hosts, and never shows a value."""

import json

import pytest
from django.core.management import CommandError, call_command

from agents.checks.doctor import diagnose, warnings
from agents.models import SecretBinding
from audit.models import AuditEvent
from tests.factories import make_agent, make_user

pytestmark = pytest.mark.django_db
VALUE = "a-value-of-the-shop"
SENSOR = (
    "name: Feed\nautonomy: {enabled: true}\nhot_state: {fields: {value: {type: object}}}\n"
    "sensors: [{name: feed, type: poll, interval: 5, updates: [{field: value}],"
    " source: {url: 'https://shop.example.org/', headers: {X-Key: {$secret: shop}}}}]\n"
)


@pytest.fixture(autouse=True)
def _secrets(settings):
    settings.LQOPS_SECRETS = {"shop": VALUE, "crm": "another-value-here"}
    settings.LQOPS_SECRET_HOSTS = {"crm": ["crm.example.org"]}


def run(capsys, *given):
    call_command("secrets", *given)
    return capsys.readouterr().out


def test_secrets_are_listed_with_their_hosts(capsys):
    assert run(capsys) == "crm  crm.example.org (environment)\nshop  no host: sent nowhere\n"
    SecretBinding.objects.create(name="bygone", hosts=["a.example.org"])
    facts = json.loads(run(capsys, "--json"))
    assert facts["secrets"][2] == {
        "name": "bygone",
        "is_set": False,
        "hosts": ["a.example.org"],
        "hosts_of_environment": [],
    }
    assert "bygone  not set here  a.example.org" in run(capsys)
    assert VALUE not in json.dumps(facts)


def test_hosts_are_added_and_removed_on_record(capsys):
    ada = make_user(username="ada", is_superuser=True)
    assert run(capsys, "bind", "shop", "Shop.example.org", "*.eu.example.org", "--user", "ada") == (
        "shop  shop.example.org, *.eu.example.org\n"
    )
    assert run(capsys, "unbind", "shop", "shop.example.org", "--json").count("eu.example.org") == 1
    assert SecretBinding.objects.get().hosts == ["*.eu.example.org"]
    events = AuditEvent.objects.filter(kind="secret.bound").order_by("pk")
    assert [event.actor for event in events] == [f"user:{ada.pk}", "system"]


def test_who_may_not_loosen_and_what_is_no_host_are_refused():
    make_user(username="bob")
    for given in (("bind", "shop", "a.example.org", "--user", "bob"), ("bind", "shop", "a/b"), ("bind", "no", "a.org")):
        with pytest.raises(CommandError):
            call_command("secrets", *given)
    assert not SecretBinding.objects.exists()


def test_doctor_and_the_list_name_what_is_used_and_not_bound(capsys):
    make_agent(name="Feed", definition=SENSOR)
    make_agent(name="Broken", definition="name: [")
    make_agent(name="Mail", definition=SENSOR.replace("shop}", "crm}").replace("shop.example.org", "crm.example.org"))

    [check] = [check for check in diagnose() if check.name.startswith("secrets that sensors send")]
    assert not check.ok
    assert "not sent: shop for shop.example.org (sensor feed of Feed). Name the hosts" in check.found
    assert "NOT SENT, because the host is not named: shop for shop.example.org" in run(capsys)
    assert "No host is named for shop, so these secrets are sent nowhere." in " ".join(warnings())

    call_command("secrets", "bind", "shop", "shop.example.org")
    [check] = [check for check in diagnose() if check.name.startswith("secrets that sensors send")]
    assert check.ok
    assert "No host is named" not in " ".join(warnings())


def test_installation_without_secrets_says_how_to_set_one(capsys, settings):
    settings.LQOPS_SECRETS = {}
    assert "There are no secrets: LQOPS_SECRET_<NAME> sets one." in run(capsys)
