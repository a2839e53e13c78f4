"""Loading skills: built-in ones, those of configured modules and of installed packages, and what is left out."""

import logging
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from agents.enums import Level
from agents.skills import registry
from agents.skills.registry import (
    GROUP,
    Source,
    default_isolation,
    installed_skills,
    skill_named,
    skills_left_out,
)
from agents.skills.running import perform
from tests.agents.admin.rows import sign_in, text_of
from tests.agents.skills.contexts import make_context
from tests.table import every_row

BUILT_IN = {
    "calculate", "extract_fields", "fetch_url", "http_request", "now", "read_document", "render_report",
    "search_documents", "send_email", "set_state", "instruct_loop", "start_run", "run_result",
}  # fmt: skip
DECLARED = '''
from agents.skills.skill import skill

@skill()
def {name}() -> None:
    """Does something."""
'''


@pytest.fixture(autouse=True)
def _fresh_registry():
    installed_skills.cache_clear()
    yield
    installed_skills.cache_clear()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def packages(monkeypatch):
    """What installed packages declare."""

    def declare(**modules):
        found = EntryPoints(EntryPoint(name, module, GROUP) for name, module in modules.items())
        monkeypatch.setattr(registry, "entry_points", lambda *, group: found.select(group=group))

    return declare


def test_builtin_skills_are_sorted_by_name():
    names = list(installed_skills())

    assert set(names) >= BUILT_IN
    assert names == sorted(names)


def test_builtin_skills_declare_their_levels():
    levels = {name: installed_skills()[name].level for name in BUILT_IN}

    assert levels == {
        "calculate": Level.SAFE,
        "extract_fields": Level.MONITORED,
        "fetch_url": Level.MONITORED,
        "http_request": Level.RESTRICTED,
        "now": Level.SAFE,
        "read_document": Level.SAFE,
        "render_report": Level.SAFE,
        "search_documents": Level.SAFE,
        "send_email": Level.RESTRICTED,
        "set_state": Level.CONTROLLED,
        "instruct_loop": Level.CONTROLLED,
        "start_run": Level.RESTRICTED,
        "run_result": Level.SAFE,
    }
    acting = {name for name in BUILT_IN if installed_skills()[name].side_effects}
    assert acting == {"http_request", "send_email", "set_state", "instruct_loop", "start_run"}


@every_row("name", sorted(BUILT_IN))
def test_builtin_skills_describe_their_unclear_arguments(name):
    found = installed_skills()[name]

    assert len(found.description.split()) > 4
    unclear = {"title", "sections"}
    for argument, part in found.parameters["properties"].items():
        assert "description" in part or "enum" in part or argument in unclear, argument


def test_skills_of_configured_modules_are_loaded(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]

    assert skill_named("echo").run(text="a", times=2) == "aa"
    assert skill_named("nothing") is None


def test_skills_of_installed_packages_are_loaded(module, packages):
    packages(some=module("some_package", DECLARED.format(name="outside")))

    assert "outside" in installed_skills()


SAID = DECLARED.replace("@skill()", "@skill({options})")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", ["", "isolation='thread'", "isolation='process'"])
def test_skills_of_packages_are_isolated_whatever_they_declare(module, packages, options):
    packages(some=module("some_package", SAID.format(name="outside", options=options)))

    found = installed_skills()["outside"]

    assert (found.isolation, found.module) == ("process", "some_package")
    assert perform(found, make_context(), {}) is None


@pytest.mark.parametrize("options", ["", "local=True", "folders=('/srv',)"])
def test_operators_trust_a_package_by_naming_its_module(module, packages, settings, options):
    packages(some=module("some_package", SAID.format(name="outside", options=options)))
    settings.LQOPS_SKILL_MODULES = ["some_package"]

    assert installed_skills()["outside"].isolation == "thread"
    assert skills_left_out() == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("local=True", "it runs in the worker itself"),
        ("request=len", "it runs in the worker itself"),
        ("folders=('/srv',)", "it names folders of this machine"),
    ],
)
def test_package_is_not_given_what_only_trusted_code_has(module, packages, options, said):
    packages(some=module("some_package", SAID.format(name="outside", options=options)))

    assert "outside" not in installed_skills()
    [told] = skills_left_out()
    assert told.startswith(f"The skill outside of some_package is left out: {said}; to trust it, ")
    assert told.endswith("name some_package in LQOPS_SKILL_MODULES.")


def test_two_names_of_one_skill_in_a_package_are_one_skill(module, packages):
    packages(some=module("some_package", DECLARED.format(name="outside") + "again = outside\n"))
    assert "outside" in installed_skills()
    assert skills_left_out() == ()


@pytest.mark.parametrize(
    ("source", "isolation"), [(Source.BUILTIN, "thread"), (Source.NAMED, "thread"), (Source.PACKAGE, "process")]
)
def test_source_decides_where_skills_run(source, isolation):
    assert default_isolation(source) == isolation


def test_registry_cannot_be_changed():
    with pytest.raises(TypeError):
        installed_skills()["mine"] = None


def test_second_skill_of_the_same_name_is_left_out(module, packages, settings, caplog):
    settings.LQOPS_SKILL_MODULES = [module("named", DECLARED.format(name="twice") + DECLARED.format(name="now"))]
    packages(other=module("packaged", DECLARED.format(name="twice")))

    with caplog.at_level(logging.ERROR):
        found = installed_skills()

    assert found["now"].function.__module__ == "agents.builtin_skills.lqops"
    assert found["twice"].function.__module__ == "named"
    assert [record.getMessage() for record in caplog.records] == [
        "the skill now of named is left out: the name is taken",
        "the skill twice of packaged is left out: the name is taken",
    ]


def test_imported_skill_is_not_a_duplicate(module, settings, caplog):
    settings.LQOPS_SKILL_MODULES = [
        "tests.agents.skills.samples",
        module("borrowing", "from tests.agents.skills.samples import echo\n"),
    ]

    assert "echo" in installed_skills()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_module_anywhere\n", "ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit"),
        ("raise GeneratorExit('over')\n", "GeneratorExit"),
        ("from agents.skills.skill import skill\n@skill()\ndef silent() -> None:\n    pass\n", "BadSkill"),
    ],
)
def test_faulty_module_is_left_out_and_others_work(module, settings, caplog, source, said):
    settings.LQOPS_SKILL_MODULES = [module("broken_skills", source), "tests.agents.skills.samples"]

    with caplog.at_level(logging.ERROR):
        found = installed_skills()

    assert "echo" in found
    assert {"now", "calculate"} <= set(found)
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"the skills of broken_skills are left out: {said}: ")


def test_ctrl_c_during_loading_is_raised(module, settings):
    settings.LQOPS_SKILL_MODULES = [module("stopped", "raise KeyboardInterrupt\n")]
    with pytest.raises(KeyboardInterrupt):
        installed_skills()


def test_missing_module_is_logged(settings, caplog):
    settings.LQOPS_SKILL_MODULES = ["no_such_module_anywhere"]

    assert set(installed_skills()) >= BUILT_IN
    assert "the skills of no_such_module_anywhere are left out" in caplog.text


@pytest.mark.django_db
@pytest.mark.usefixtures("durable_commits")
def test_missing_module_is_shown_by_doctor_command_and_pages(settings, client, capsys):
    settings.LQOPS_SKILL_MODULES = ["my_skils"]
    told = "The skills of my_skils are left out: ModuleNotFoundError"

    assert skills_left_out()[0].startswith(told)
    with pytest.raises(CommandError, match="1 of"):
        call_command("doctor")
    assert f"FAIL every callable skill is loaded: {told}" in capsys.readouterr().out
    call_command("skills")
    assert told in capsys.readouterr().err
    sign_in(client)
    for address in ("admin:health", "admin:agents_skillsetting_changelist"):
        assert told in text_of(client.get(reverse(address)))


@pytest.mark.django_db
def test_no_message_when_all_modules_load(client):
    assert skills_left_out() == ()
    sign_in(client)
    assert "No skills are taken" not in text_of(client.get(reverse("admin:agents_skillsetting_changelist")))
