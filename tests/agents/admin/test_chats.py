"""Chats on the admin pages: the list, one chat, streams, refusals."""

from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from agents.enums import Status, WaitingOn
from agents.models import Agent, AgentSession, Approval, StreamPart
from tests.agents.admin.hostile import PAYLOADS, read
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.ask.rows import CALL, make_chat, make_entry, make_part, make_transcript, open_chat
from tests.factories import make_agent, make_session, make_user

pytestmark = pytest.mark.django_db


def chats():
    return reverse("admin:chats")


def chat_of(session):
    return reverse("admin:chat", args=[session.params["chat"]])


def test_list_shows_own_chats_newest_first(client):
    by = sign_in(client, "operator")
    make_chat(by, "The older one")
    make_chat(by, "The newer one", agent=make_agent(owner=by, name="Clerk"))
    make_chat(make_user(), "Somebody else's")

    found = text_of(client.get(chats()))
    assert found.index("The newer one") < found.index("The older one")
    assert "Clerk · 1 message" in found
    assert "Somebody else" not in found


def test_list_comes_in_pages(client, monkeypatch):
    monkeypatch.setattr("agents.admin.ask.ON_A_PAGE", 1)
    by = sign_in(client, "viewer")
    for text in ("The older one", "The newer one"):
        make_chat(by, text)
    second = text_of(client.get(chats(), {"p": "2"}))
    assert ("The older one" in second, "The newer one" in second) == (True, False)


def test_number_of_pages_is_shown_if_all_chats_are_counted(client, monkeypatch):
    monkeypatch.setattr("agents.admin.ask.ON_A_PAGE", 1)
    monkeypatch.setattr("agents.admin.ask.MOST_COUNTED_CHATS", 2)
    by = sign_in(client, "viewer")
    for number in range(4):
        make_chat(by, f"Chat {number}")

    pages = {asked_for: text_of(client.get(chats(), {"p": asked_for})) for asked_for in (1, 2, 3, 4)}

    assert all(f"page {number}<" in pages[number] for number in (1, 2))
    assert all(f"page {number} of 4<" in pages[number] for number in (3, 4))


def test_message_starts_a_chat_with_the_chosen_agent(client):
    by = sign_in(client, "operator")
    agent = make_agent(owner=by, name="Clerk")
    begin = f"{chats()}?agent={agent.pk}"
    assert begin in text_of(client.get(page(Agent, "change", agent.pk)))
    assert f'<option value="{agent.pk}" selected>' in text_of(client.get(begin))

    sent = client.post(chats(), {"message": "Which leases end?", "agent": agent.pk, "max_cost_usd": "0.5"})
    session = AgentSession.objects.get()
    assert sent.headers["Location"] == f"{chat_of(session)}#say"
    assert (session.owner, session.agent, str(session.max_cost_usd)) == (by, agent, "0.500000")
    shown = text_of(client.get(chat_of(session)))
    assert "Which leases end?" in shown
    assert f'data-stream="/api/v1/sessions/{session.public_id}/stream"' in shown


def test_chat_goes_on_and_says_when_it_cannot(client):
    by = sign_in(client, "operator")
    first = make_chat(by, "Which leases end?", answer="Two of them.")
    assert client.post(chat_of(first), {"message": "Which?"}).headers["Location"] == f"{chat_of(first)}#say"

    refused = client.post(chat_of(first), {"message": "Well?"})
    assert (refused.status_code, "still being answered" in text_of(refused)) == (422, True)
    assert client.post(chat_of(first), {"message": " "}).status_code == 422
    assert AgentSession.objects.count() == 2


def test_fast_path_answers_at_once_beside_a_running_answer(client):
    by = sign_in(client, "operator")
    first = open_chat(by, "Read everything")
    assert client.post(chat_of(first), {"message": "list agents"}).headers["Location"] == f"{chat_of(first)}#say"
    shown = text_of(client.get(chat_of(first)))
    assert "You have no agents." in shown
    assert 'data-every="4"' in shown


def test_chat_shows_answers_calls_failures_and_streams(client):
    by = sign_in(client, "operator")
    first = make_chat(by, "What time is it?")
    make_entry(first, "assistant", "I look.", stop="tool_use", calls=[CALL])
    make_entry(first, "tool", "09:26", call_id=CALL["id"])
    make_entry(first, "assistant", "Half past nine.", stop="end_turn")
    failed = {"status": Status.FAILED, "terminal_reason": "provider_error"}
    make_chat(by, "And now?", chat=first.public_id, **failed)
    under_way = open_chat(by, "Now?", chat=first.public_id)
    part = make_part(under_way, "It is ten")

    shown = text_of(client.get(chat_of(first)))
    for words in ("Half past nine.", "called now", "No answer: provider error.", "It is ten", "data-every"):
        assert words in shown, words
    assert f'data-after="{part.pk}"' in shown
    assert reverse("admin:agents_agentsession_act", args=[under_way.pk, "halt"]) in shown


def test_chat_waiting_for_approval_links_to_it(client):
    by = sign_in(client, "operator")
    session = open_chat(by, status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    make_entry(session, "assistant", "I drop it.", stop="tool_use", calls=[{**CALL, "name": "drop_table"}])
    approval = make_approval(session, action="drop_table")
    decide = page(Approval, "change", approval.pk)

    shown = text_of(client.get(chat_of(session)))
    assert "drop_table</span> needs approval." in shown
    assert (decide in shown, shown.count("drop_table</span>"), "called" in shown) == (False, 1, False)
    by.groups.add(Group.objects.get(name="approver"))
    assert f'href="{decide}">Decide</a>' in text_of(client.get(chat_of(session)))


def test_streamed_text_hides_call_tags(client):
    by = sign_in(client, "operator")
    session = open_chat(by, status=Status.QUEUED)
    assert "queued" in text_of(client.get(chat_of(session)))
    make_part(session, 'I ask. <skill>ask_person(question="Which <one>?")</skill> Then <skill>now(zo')

    shown = text_of(client.get(chat_of(session)))
    assert ">I ask.  Then </div>" in shown
    assert "queued" not in shown
    assert StreamPart.objects.get().text.startswith("I ask. <skill>")


def test_second_message_is_refused_and_kept_during_an_answer(client):
    by = sign_in(client, "operator")
    session = open_chat(by)
    assert 'type="submit">Send' in text_of(client.get(chat_of(session)))

    assert client.post(chat_of(session), {"message": "help"}).status_code == 302
    refused = client.post(chat_of(session), {"message": "And which of them are long?"})
    assert refused.status_code == 422
    for words in ("still being answered", "And which of them are long?</textarea>"):
        assert words in text_of(refused), words


@pytest.mark.parametrize(("mode", "who"), [("phased", "task"), ("loop", "lqops")])
def test_task_of_a_run_is_not_attributed_to_its_owner(client, mode, who):
    by = sign_in(client, "operator")
    session = make_session(owner=by, mode=mode)
    make_entry(session, "user", "The playbook.")
    shown = text_of(client.get(page(AgentSession, "change", session.pk)))
    assert f'<strong class="lq-strong">{who}</strong>'.replace("&#x27;", "'") in shown.replace("&#x27;", "'")


def test_chats_of_others_are_hidden(client):
    theirs = make_chat(make_user())
    by = sign_in(client, "viewer")
    mine = make_chat(by)
    for odd in (theirs.public_id, uuid4()):
        assert client.get(reverse("admin:chat", args=[odd])).status_code == 404
    assert "Send</button>" not in text_of(client.get(chat_of(mine)))
    assert client.post(chats(), {"message": "Hi"}).status_code == 403
    assert client.post(chat_of(mine), {"message": "Hi"}).status_code == 403

    sign_in(client)
    assert client.get(chat_of(theirs)).status_code == 404
    client.force_login(make_user(is_staff=True))
    assert (client.get(chats()).status_code, client.get(chat_of(mine)).status_code) == (403, 403)
    assert AgentSession.objects.count() == 2


def test_transcript_folds_internal_messages(client):
    by = sign_in(client, "viewer")
    session = open_chat(by)
    make_entry(session, "user", "Hello.")
    make_entry(session, "assistant", "Good morning.")
    make_transcript(session)
    shown = text_of(client.get(page(AgentSession, "change", session.pk)))

    for words in ("What time is it?", "Half past nine.", "cut off", "&quot;zone&quot;", "09:26"):
        assert words in shown, words
    assert "<summary>Earlier in this chat</summary>" in shown
    assert "<summary>instructions</summary>" in shown
    assert "<summary>lqops: max tokens recovery</summary>" in shown
    assert chat_of(session) in shown


def test_messages_are_escaped(client):
    by = sign_in(client)
    hostile = "\n".join(PAYLOADS)
    agent = make_agent(owner=by, name=PAYLOADS[0])
    session = make_chat(by, hostile, answer=hostile, agent=agent)
    make_entry(session, "user", hostile, reason="x")
    make_entry(session, "assistant", hostile, stop="tool_use", calls=[{**CALL, "name": hostile, "arguments": hostile}])
    make_entry(session, "tool", hostile, call_id="call_1_1")
    make_part(open_chat(by, hostile, chat=session.public_id), hostile)
    for address in (chats(), chat_of(session), page(AgentSession, "change", session.pk)):
        found = read(text_of(client.get(address)))
        assert (found.live, found.seen > 0) == ([], True), address
