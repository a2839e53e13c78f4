"""Caps of triggers, set in the list and for several at once, apply to the next call."""

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser

WATCH = "Review new contracts"
OTHERS = ["Weekly scan of reports", "Triage of incidents"]


@pytest.fixture
def triggers(admin):
    """The list of triggers; the caps are afterwards what they were."""
    yield admin
    set_cap(admin, [WATCH, *OTHERS], "0.50")


def cap_of(room, name):
    return room.row(name).get_by_role("spinbutton")


def set_cap(room, names, cap):
    """For several at once: chosen in the list, confirmed on a page of its own."""
    room.go("Triggers")
    for name in names:
        room.row(name).get_by_role("checkbox").check()
    room.page.get_by_label("Select action to run").select_option(label="Set cap per run")
    room.page.get_by_role("button", name="Run", exact=True).click()
    room.page.get_by_label("Cap per run (USD)").fill(cap)
    room.page.get_by_role("button", name="Set cap per run").click()
    expect(room.page.get_by_text(f"Cap of {len(names)} triggers set to ${cap} per run.")).to_be_visible()


def test_cap_from_the_list_stops_the_next_run(triggers):
    triggers.go("Triggers")
    triggers.shoot("triggers")
    cap_of(triggers, WATCH).fill("0.001")
    triggers.page.get_by_role("button", name="Save").click()
    expect(triggers.page.get_by_text("1 trigger was changed successfully.")).to_be_visible()
    expect(cap_of(triggers, WATCH)).to_have_value("0.001")

    triggers.add_document("too-dear.md")
    triggers.open_session("too-dear.md")

    triggers.until(triggers.chip("cost cap reached"))
    expect(triggers.chip("halted").first).to_be_visible()
    expect(triggers.page.get_by_text("Run again with a higher cap.")).to_be_visible()
    refused = triggers.card("Timeline").get_by_role("listitem").filter(has_text="Model call")
    expect(refused.filter(has_text="success")).to_have_count(0)
    triggers.shoot("capped")
    triggers.go("Health")
    expect(triggers.card("Recent problems")).to_contain_text("above its cap of $0.001.")


def test_cap_is_set_for_the_selected_triggers_only(triggers):
    set_cap(triggers, OTHERS, "0.25")

    for name in OTHERS:
        expect(cap_of(triggers, name)).to_have_value("0.25")
    expect(cap_of(triggers, WATCH)).to_have_value("0.50")
