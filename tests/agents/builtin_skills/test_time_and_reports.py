"""The skills `now` and `render_report`."""

from dataclasses import replace

import pytest

from agents.builtin_skills.lqops import now, render_report
from agents.exceptions import Invalid
from agents.skills.skill import BadArguments
from tests.agents.skills.test_skill import CONTEXT
from tests.factories import NOW
from tests.table import every_row


def test_now_returns_the_time_of_the_call():
    context = replace(CONTEXT, now=NOW)

    assert now.run(context) == {"time": "2026-03-14T09:26:53+00:00", "weekday": "Saturday", "week": 11, "zone": "UTC"}
    assert now.run(context, zone="Asia/Kolkata")["time"] == "2026-03-14T14:56:53+05:30"
    assert now.run(context, zone="Pacific/Auckland")["weekday"] == "Saturday"
    assert now.run(context, zone="America/New_York")["time"] == "2026-03-14T05:26:53-04:00"


@every_row("zone", ["", "Mars/Olympus", "America", "../../etc/hosts", "europe/paris"])
def test_unknown_zone_is_refused(zone):
    with pytest.raises(Invalid, match="is not a time zone; use an IANA name"):
        now.run(CONTEXT, zone=zone)


def test_report_is_markdown():
    sections = [{"heading": "Findings", "text": "- one\n- two\n"}, {"heading": "Nothing", "text": " "}]

    assert render_report.run(title="Weekly report", sections=sections) == (
        "# Weekly report\n\n## Findings\n\n- one\n- two\n\n## Nothing\n"
    )


def test_heading_is_one_line():
    report = render_report.run(title="A\n# B", sections=[{"heading": "## #", "text": "x"}])

    assert report == "# A # B\n\n## (untitled)\n\nx\n"


@every_row(
    "sections",
    [[], [{"heading": "a"}], [{"heading": "a", "text": "b", "more": "c"}], [{"heading": 1, "text": "b"}], ["text"]],
)
def test_sections_have_only_a_heading_and_a_text(sections):
    with pytest.raises(BadArguments):
        render_report.run(title="Report", sections=sections)


def test_sections_are_described_to_models():
    section = render_report.parameters["$defs"]["Section"]

    assert set(section["properties"]) == {"heading", "text"}
    assert (section["required"], section["additionalProperties"]) == (["heading", "text"], False)
