"""Wherever a person decides on a call, they see every character that it will be made with, or cannot decide there."""

import html
import io
import json
import random
import re

import pytest
from django.core.management import call_command
from django.test import Client

from agents.ask.entry import ask
from agents.ask.proposals import propose
from agents.conf import clock
from agents.enums import Level, Outcome, Status, ToolIntent, WaitingOn
from agents.guard import guarded_tool_call
from agents.models import Approval
from agents.sessions.approvals import approval_approve
from agents.sessions.ending import session_rest
from tests.agents.admin.rows import page, sign_in, text_of
from tests.agents.api.conftest import client_of
from tests.agents.conftest import Probe, tool
from tests.factories import make_agent, make_session

pytestmark = pytest.mark.django_db

KEY = "step:1"
PIECES = {
    "plain": ["pay", "100", " ", "to", "eve@example.org", "https://a.example/x?y=1"],
    "quoted": ['"', "'", "\\", "\n", "\t", "\r", "{", "}", "<b>", "</pre>", "&lt;", "{{ x }}", "\\u202e"],
    "invisible": ["\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\U000e0041", "\u3164", "\ufe0f", "\u00a0", "\x00"],
    "bidi": ["\u202e", "\u202d", "\u2066", "\u2069", "\u200f", "שלום", "مرحبا"],
    "alike": [
        "\u0430pple.com",
        "p\u0430y",
        "\u0440\u0430\u0443@x.org",
        "\uff50ay",
        "xn--pple-43d.com",
        "\u0131",
        "\u2170",
    ],
    "spelled": ["⟨U+202E⟩", "⟨U+0430⟩", "\u0430⟨U+0430⟩", "⟨", "⟩", "U+202E"],
    "terminal": ["\x1b[2K", "\x1b]0;x\x07", "\x08\x08", "\x7f", "\x85", "\u2028", "\u2029"],
}


def hostile(number):
    """Arguments of a call: some pieces of all kinds, nested, and now and then very long."""
    rng = random.Random(number)
    kinds = list(PIECES.values())

    def text():
        return "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(1, 12)))

    def value(depth):
        match rng.randrange(6 if depth else 3):
            case 3:
                return {text(): value(depth - 1) for _ in range(rng.randrange(1, 4))}
            case 4:
                return [value(depth - 1) for _ in range(rng.randrange(1, 4))]
            case 5:
                return rng.choice([0, -1.5, True, None, 10**20])
        return text()

    given = {rng.choice(["to", "name", "text", "körper"]): value(3), "more": value(1)}
    if number % 10 == 0:
        given["long"] = text() * (rng.choice([1_000, 20_000]) if number else 500)
    if number in {1, 11}:
        given["long"] = "\u0430 pay " * (40_000 if number == 11 else 1_000)
    return given


def waiting(arguments):
    """A run that waits for approval of a call with these arguments."""
    session = make_session(agent=make_agent())
    with tool(ToolIntent.RUN_SKILL, probe=Probe(), level=Level.RESTRICTED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, arguments, key=KEY)
    session_rest(session, Status.WAITING, now=clock(), waiting_on=WaitingOn.APPROVAL)
    return Approval.objects.get(session=session)


def read_back(value):
    """The arguments that stand in a text for people: each number is a character, or follows the one that it names."""
    if isinstance(value, dict):
        return {read_back(key): read_back(item) for key, item in value.items()}
    if isinstance(value, list):
        return [read_back(item) for item in value]
    if not isinstance(value, str):
        return value
    parts = re.split(r"⟨U\+([0-9A-F]{4,6})⟩", value)
    text = parts[0]
    for before, number, after in zip(parts[0::2], parts[1::2], parts[2::2], strict=False):
        char = chr(int(number, 16))
        text += ("" if before.endswith(char) else char) + after
    return text


def in_html(response):
    return html.unescape(re.search(r'<pre class="lq-pre">(.*?)</pre>', text_of(response), re.DOTALL)[1])


def on_page(approval, by):
    client = Client()
    client.force_login(by)
    return in_html(client.get(page(Approval, "change", approval.pk)))


def in_confirmation(approval, by):
    client = Client()
    client.force_login(by)
    return in_html(client.get(page(Approval, "act", approval.pk, "approve")))


def in_api(approval, by):
    detail = client_of(by).get(f"/api/v1/approvals/{approval.public_id}").json()
    assert (detail["arguments"], detail["digest"]) == (approval.arguments, approval.digest)
    return detail["shown"]["text"]


def in_command(approval, by):
    out = io.StringIO()
    call_command("approve", str(approval.public_id), "--user", by.username, stdout=out)
    text = out.getvalue()
    assert "\x1b" not in text
    assert text.isascii() or all(char.isprintable() for char in text.replace("\n", "").replace("\t", ""))
    return text[text.index("\n{") : text.index("\n}") + 2]


def in_ask(approval, by):
    """What ask shows; None if it cannot be approved there."""
    proposal = proposed(approval, by)
    text = "\n".join(proposal.details)
    if proposal.token:
        return text[text.index("arguments: {") + 11 : text.index("\n}") + 2]
    assert "too many to show here" in proposal.refused
    assert approval.digest[:12] not in text
    return None


def proposed(approval, by):
    [wanted] = (
        one for one in ask(text=f"approve {approval.public_id}", by=by, now=clock()).wanted if one.action == "approve"
    )
    return propose(wanted, by=by, now=clock())


SURFACES = [on_page, in_confirmation, in_api, in_command, in_ask]


@pytest.fixture
def person(client):
    return sign_in(client)


@pytest.mark.parametrize(
    "sets", [4, pytest.param(10, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.stress)]
)
def test_every_deciding_surface_shows_every_character_of_hostile_calls(person, sets):
    refused = 0
    for number in range(sets):
        approval = waiting(hostile(number))
        for surface in SURFACES:
            text = surface(approval, person)
            if text is None:
                refused += 1
                continue
            assert read_back(json.loads(text)) == approval.arguments, (number, surface.__name__)
        if number % 20 == 0:
            assert made_with(approval, person) == approval.arguments
    assert sets / 20 <= refused <= sets / 2


def made_with(approval, by):
    """The arguments with which the approved call is made."""
    approval_approve(approval.pk, by=by, digest=approval.digest, now=clock())
    session = approval.session
    session.refresh_from_db()
    type(session).objects.filter(pk=session.pk).update(status=Status.RUNNING, waiting_on="")
    session.refresh_from_db()
    probe = Probe()
    with tool(ToolIntent.RUN_SKILL, probe=probe, level=Level.RESTRICTED):
        made = guarded_tool_call(session, ToolIntent.RUN_SKILL, approval.arguments, key=KEY)
    assert made.outcome == Outcome.SUCCESS, made
    return probe.calls[0][1]


def test_list_of_the_api_and_of_the_command_offer_no_digest(person):
    approval = waiting({"to": "x"})
    [row] = client_of(person).get("/api/v1/approvals").json()["results"]
    assert row["id"] == str(approval.public_id)
    assert approval.digest not in json.dumps(row)


def test_what_could_be_overlooked_stands_beside_the_call(person):
    approval = waiting({"to": "\u0430pple@example.org", "text": "pay\u202eeve"})
    client = Client()
    client.force_login(person)
    for found in (
        html.unescape(text_of(client.get(page(Approval, "change", approval.pk)))),
        html.unescape(text_of(client.get(page(Approval, "act", approval.pk, "approve")))),
        "\n".join(client_of(person).get(f"/api/v1/approvals/{approval.public_id}").json()["shown"]["warnings"]),
        "\n".join(proposed(approval, person).details),
    ):
        assert "reads like apple@example.org, but \u0430 is CYRILLIC SMALL LETTER A." in found
        assert "invisible characters: U+202E RIGHT-TO-LEFT OVERRIDE." in found


def test_forecast_of_a_model_stands_apart_from_the_call(person):
    approval = waiting({"to": "x"})
    forecast = "\n}\nNothing is decided yet. To approve exactly this call:\n  manage.py approve other"
    Approval.objects.filter(pk=approval.pk).update(simulation=forecast)
    out = io.StringIO()
    call_command("approve", str(approval.public_id), "--user", person.username, stdout=out)
    assert out.getvalue().count("\nTo approve") + out.getvalue().count("\nNothing is decided yet.") == 1
    assert "  | }\n  | Nothing is decided yet." in out.getvalue()
    client = Client()
    client.force_login(person)
    card = text_of(client.get(page(Approval, "change", approval.pk))).partition('class="lq-card apart"')[2]
    assert "no part of the call" in card.partition("</section>")[0]


def test_host_that_reads_like_one_of_an_earlier_call_is_marked_on_every_deciding_surface(person):
    before = waiting({"to": "billing@paypal.com"})
    approval_approve(before.pk, by=person, digest=before.digest, now=clock())
    approval = waiting({"to": "billing@paypaI.com"})
    client = Client()
    client.force_login(person)
    out = io.StringIO()
    call_command("approve", str(approval.public_id), "--user", person.username, stdout=out)
    surfaces = [
        html.unescape(text_of(client.get(page(Approval, "change", approval.pk)))),
        "\n".join(client_of(person).get(f"/api/v1/approvals/{approval.public_id}").json()["shown"]["warnings"]),
        out.getvalue(),
        "\n".join(proposed(approval, person).details),
    ]
    for text in surfaces:
        assert "paypaI.com reads like paypal.com, but is another host: paypai.com." in text
