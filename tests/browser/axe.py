"""Violations that axe-core finds on a page, in light and in dark colours."""

import pytest

axe = pytest.importorskip("axe_playwright_python.base", reason="pip install -e '.[browser]'")

LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Colours differ between the themes, and nothing else does.
THEMES = {"light": {"type": "tag", "values": LEVELS}, "dark": {"type": "rule", "values": ["color-contrast"]}}
SCREEN = {"width": 1280, "height": 2000}  # so high that nothing is below the bar at the end of a list
# Until colours have faded in. Animations without an end are not waited for.
STILL = """() => Promise.allSettled(document.getAnimations().filter(
    one => Number.isFinite(one.effect.getComputedTiming().endTime)).map(one => one.finished))"""


def violations(page, themes=tuple(THEMES)):
    """Return the violations in each theme: the rule, the theme, and the element with its fault."""
    page.evaluate(axe.AXE_SCRIPT)
    return [one for theme in themes for one in _violations_of(page, theme)]


def require_none(page):
    found = violations(page)
    assert not found, "\n".join(found)


def _violations_of(page, theme):
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    # unfold follows the system a moment later
    page.evaluate("isDark => document.documentElement.classList.toggle('dark', isDark)", theme == "dark")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.evaluate(STILL)
    found = page.evaluate("rules => axe.run({resultTypes: ['violations'], runOnly: rules})", THEMES[theme])
    for violation in found["violations"]:
        for node in violation["nodes"]:
            yield f"{violation['id']} ({theme}): {node['html'][:160]} {node['failureSummary'][:300]}"
