"""Slips of a finger: forgiven in what only looks, by one letter, and never in an order."""

import pytest

from agents.ask.fast_paths import FAST_PATHS, scope_of
from agents.ask.language import mended, read
from agents.models import AgentSession
from tests.agents.ask.scene import asked, make_scene


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("list trigers", "triggers"),
        ("list triggerss", "triggers"),
        ("list trigegrs", "triggers"),
        ("list tryggers", "triggers"),
        ("pendng approvals", "pending"),
        ("pending aprovals", "approvals"),
        ("show the reciept", "receipt"),
        ("hlep", "help"),
        ("hepl me", "help"),
    ],
)
def test_slip_of_one_letter_is_mended(said, meant):
    assert meant in mended(read(said)).said


@pytest.mark.parametrize(
    "text",
    [
        "list triggers",
        "list tiggrs",
        "list riggers",
        "list 'trigers'",
        "show the statue",
        "show my coats",
        "show sending",
        "agen status",
        "trigers sesions pendng",
        "run it",
        "held",
        "'hlep'",
    ],
)
def test_anything_else_is_left_as_it_is(text):
    assert mended(read(text)) is None


@pytest.mark.parametrize(
    "text", ["hlt session 1f2e3d4c", "halt sesion 1f2e3d4c", "aprove 1f2e3d4c 3f9a2c0d7b1e", "stpo 1f2e3d4c"]
)
def test_misspelt_order_is_none(text):
    assert scope_of(text) == "write"
    corrected = mended(read(text))
    assert corrected is None or not any(path.scope == "read" and path.fits(corrected) for path in FAST_PATHS)


@pytest.mark.django_db
def test_help_is_found_by_whoever_slips():
    scene = make_scene()
    assert asked(scene, "hlep").path == asked(scene, "hepl me please").path == "help"
    assert asked(scene, "hlep me write a letter").path == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("which runs are running today?", 1),
        ("what ran yesterday?", 1),
        ("sessions of this week: list them", None),
        ("list this week sessions", 2),
        ("list sessions last week", 0),
        ("what ran last month?", 1),
        ("list the sessions of the previous month", 1),
        ("show the sessions of this month", 3),
        ("list sessions", 4),
    ],
)
def test_days_choose_which_sessions_are_listed(text, count):
    scene = make_scene()
    began = ["2026-03-14T00:00:00Z", "2026-03-13T23:59:00Z", "2026-03-01T00:00:00Z", "2026-02-28T23:59:00Z"]
    AgentSession.objects.all().delete()
    for moment in began:
        AgentSession.objects.create(owner=scene.owner, created_at=moment, status="running")
    answer = asked(scene, text)
    assert answer.data.get("count") == count
