"""The editor of YAML and JSON: colours, errors at their lines, the keyboard, both themes, a phone, no JavaScript."""

import re

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser
IMPORT = "/admin/agents/agent/import/"
WRONG = "name: Watch\nmode: sometimes\n"
PHONE = {"width": 390, "height": 844}


def write(page, text):
    """Replace the text by keyboard."""
    page.get_by_label("YAML").press("Control+a")
    page.keyboard.insert_text(text)


def notes(page):
    return page.locator(".lq-editor-errors li")


def test_errors_are_marked_while_one_types_and_after_a_failed_save(admin):
    page = admin.page
    admin.open(IMPORT)
    write(page, WRONG)
    expect(page.locator(".ace_meta.ace_tag").first).to_have_text("name")
    expect(notes(page)).to_have_text([re.compile("Line 2 mode: expected one of auto, semi, manual")])
    expect(page.locator(".ace_gutter-cell.ace_error")).to_have_count(1)

    write(page, "name: Watch\nmode: manual\n")
    expect(notes(page)).to_have_count(0)

    write(page, WRONG)
    page.get_by_role("button", name="Import agent").click()
    expect(page.get_by_role("alert")).to_contain_text("1 error. Nothing was saved.")
    expect(page.locator(".lq-line-error")).to_have_text(re.compile("mode: expected one of"))
    expect(page.locator(".ace_gutter-cell.ace_error")).to_have_count(1)

    write(page, "name: Watch\nmode: manual\n")
    expect(page.locator(".lq-line-error")).to_have_count(0)
    page.get_by_role("button", name="Import agent").click()
    expect(page.get_by_text("Definition of Watch saved as version 1.")).to_be_visible()


def test_tab_writes_in_the_editor_and_leaves_it_after_escape(admin):
    page = admin.page
    admin.open(IMPORT)
    page.get_by_label("Owner").focus()
    page.keyboard.press("Tab")  # the line numbers
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("YAML")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("YAML")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("YAML")).not_to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("From a file")).to_be_focused()


def test_playbook_text_is_checked_while_one_types(admin):
    page = admin.page
    admin.open("/admin/agents/playbook/import/")
    write(page, "name: Terms\npositions:\n- issue: Term\n  severity: [high]\n")
    expect(notes(page)).to_have_text([re.compile(r"Line 4 .*severity")])


@pytest.mark.parametrize(("scheme", "theme"), [("light", "github-light-default"), ("dark", "tomorrow-night")])
def test_editor_follows_the_theme_and_fits_a_phone(admin, scheme, theme):
    page = admin.page
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme=scheme)
    admin.open(IMPORT)
    write(page, "instructions: " + "a long line that goes on " * 20)
    expect(page.locator(f".ace-{theme}")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_without_its_scripts_the_text_is_written_in_a_plain_box(admin, chromium):
    context = chromium.new_context(storage_state=admin.page.context.storage_state())
    context.route("**/django_ace/**", lambda route: route.abort())
    page = context.new_page()
    page.goto(f"{admin.product.address}{IMPORT}")
    page.get_by_label("YAML").fill(WRONG)
    page.get_by_role("button", name="Import agent").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 2")
    expect(page.get_by_label("YAML")).to_have_value(re.compile("mode: sometimes"))
    context.close()
