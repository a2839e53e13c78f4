"""The context of an approval: reason, level, risk, documents and recipient."""

import pytest
from django.urls import reverse

from agents.engine.skills import SIMULATION_PREFIX
from agents.enums import Level, Outcome, Phase, Status, ToolIntent, WaitingOn
from agents.models import AgentSession, Approval, Collection, InferenceLog
from agents.sessions.reads import SHOWN_DOCUMENTS, read_by
from tests.agents.admin.rows import make_approval, make_call, make_document, page, sign_in, text_of
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

FLAGGED = {"severity": "warn", "title": "Ethics review: 1 flagged", "content": "Privilege:\n- Counsel's <b>advice</b>"}


def waiting(**fields):
    return make_session(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL, **fields)


def read(session, *documents, left_out=0):
    """A retrieval of the run as the journal has it."""
    places = [{"document_id": str(document.public_id), "start": 0, "end": 9} for document in documents]
    summary = {"passages": places, "left_out": left_out}
    given = {"intent": ToolIntent.RETRIEVE_CHUNKS, "phase": Phase.INTAKE, "result": {"summary": summary}}
    return make_call(session, key="intake:retrieve", **given)


def notice_of(session, **fields):
    given = {"intent": ToolIntent.NOTIFY, "action": "notify", "level": Level.SAFE, "risk_level": "high", **fields}
    return make_approval(session, **given)


def shown(client, approval):
    return text_of(client.get(page(Approval, "change", approval.pk)))


# --- One call ---


@pytest.mark.parametrize(
    ("fields", "words", "chip"),
    [
        ({}, "The call exactly as it will be made.", "pending"),
        ({"status": "approved"}, "The call exactly as it will be made.", "approved"),
        ({"status": "approved", "consumed_at": NOW}, "The call exactly as it was made.", "approved"),
        ({"status": "rejected"}, "The call as requested. It was not made.", "denied"),
        ({"status": "expired"}, "The call as requested. It was not made.", "expired"),
    ],
)
def test_page_says_whether_the_call_was_made(client, fields, words, chip):
    sign_in(client, "viewer")
    found = shown(client, make_approval(waiting(), **fields))
    assert words in found
    assert f">{chip}</span></header>" in found
    assert "rejected" not in found


def test_prediction_names_its_model(client):
    sign_in(client, "viewer")
    session = waiting()
    approval = make_approval(session, simulation=f"{SIMULATION_PREFIX}The table will be gone.")
    assert "Forecast by a model" in shown(client, approval)
    InferenceLog.objects.create(session=session, model="small-one", purpose="simulation", outcome="success")
    found = shown(client, approval)
    assert "Forecast by small-one" in found
    assert ("The table will be gone." in found, "ANTICIPATORY" in found) == (True, False)


def test_flagged_run_shows_concerns_documents_and_recipient(client):
    owner = make_user(username="olga")
    document = make_document(owner, name="memo.md")
    session = waiting(owner=owner, params={"document": str(document.public_id)}, trigger=make_trigger(name="Watch it"))
    make_call(session, key="ethics", intent=ToolIntent.EMIT_FINDING, arguments=FLAGGED)
    sign_in(client, "approver")

    found = shown(client, notice_of(session))

    for words in (
        "The review of this run flagged concerns",
        "Counsel&#x27;s &lt;b&gt;advice&lt;/b&gt;",
        "memo.md",
        "Watch it",
        "olga, the owner of the run: a notification",
        "calls of this level do no harm",
    ):
        assert words in found, words


def test_email_copy_is_named(client, settings):
    settings.EMAIL_HOST = "mail.example.org"
    session = waiting(owner=make_user(email="olga@example.org"))
    sign_in(client, "approver")

    assert "copies by e-mail to olga@example.org" in shown(client, notice_of(session))


def test_unflagged_run_shows_no_concern(client):
    session = waiting()
    make_call(session, key="ethics", arguments={"severity": "info", "content": "none of that"})
    sign_in(client, "approver")

    found = shown(client, notice_of(session))

    assert "none of that" not in found
    assert "Calls rated high risk always need approval" in found


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("semi", "The agent Clerk is in mode semi"),
        ("auto", "Calls of level RESTRICTED need approval"),
        (None, "need approval"),
    ],
)
def test_level_is_given_as_the_reason(client, agent, words):
    session = waiting(agent=make_agent(name="Clerk", mode=agent) if agent else None)
    sign_in(client, "approver")

    found = shown(client, make_approval(session))

    assert words in found
    assert "Recipient" not in found


# --- The queue ---


def test_calls_of_one_name_show_document_and_trigger(client):
    owner = sign_in(client)
    names = ("first.md", "second.md")
    for name in names:
        params = {"document": str(make_document(owner, name=name).public_id)}
        notice_of(waiting(owner=owner, params=params, trigger=make_trigger(name=f"Watch of {name}")))
    notice_of(waiting(owner=owner))

    for address in (page(Approval, "changelist"), reverse("admin:index")):
        found = text_of(client.get(address))
        for name in names:
            assert f"{name}</a>" in found
            assert f"Watch of {name}" in found
        assert "run by hand" in found


def test_list_says_that_it_shows_pending_calls(client):
    sign_in(client)
    address = page(Approval, "changelist")

    assert "Pending approvals" in text_of(client.get(address))
    assert "No pending approvals." in text_of(client.get(address))
    assert "All approvals" in text_of(client.get(address, {"queue": "all"}))
    denied = text_of(client.get(address, {"queue": "rejected"}))
    assert "Approvals: denied" in denied
    assert "No matches." in denied


# --- Documents of a run ---


def test_run_over_a_collection_names_its_documents(client):
    owner = sign_in(client)
    inbox = Collection.objects.create(owner=owner, name="Inbox")
    documents = [make_document(owner, name=f"{number}.md") for number in range(SHOWN_DOCUMENTS + 2)]
    session = make_session(owner=owner, params={"collection": str(inbox.public_id)})
    read(session, *documents, documents[0], left_out=3)

    found = text_of(client.get(page(AgentSession, "change", session.pk)))

    assert f'href="{reverse("admin:agents_collection_change", args=[inbox.pk])}">Inbox' in found
    for document in documents[:SHOWN_DOCUMENTS]:
        assert f">{document.name}</a>" in found
    assert f">{documents[-1].name}</a>" not in found
    assert "and 2 more" in found
    assert "3 too long to read together with the others" in found


def test_failed_retrieval_read_nothing():
    session = make_session()
    call = read(session, make_document())
    call.outcome = Outcome.ERROR
    call.save()

    assert read_by(session).documents == ()
