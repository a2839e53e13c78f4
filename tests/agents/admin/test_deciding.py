"""The deciding page: arguments by field, the last decided call of its kind, and the next approval."""

import json
import random
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from django.urls import reverse

from agents.admin.display import MOST_COMPARED_LINES, by_field, changes
from agents.conf import clock
from agents.enums import ApprovalStatus, Level, NoticeKind
from agents.models import Approval, Notification, StandingApproval
from agents.people.notifications import approval_path
from agents.sessions.approvals import approval_approve, approval_reject, notify_approvers
from agents.sessions.second_eyes import open_to
from audit.models import AuditEvent
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.admin.test_approvals import decide, waiting
from tests.agents.sessions.test_approver_view import hostile, read_back
from tests.agents.sessions.test_approver_view import waiting as waiting_with
from tests.factories import make_agent, make_user

pytestmark = pytest.mark.django_db


class Tree(HTMLParser):
    """Reads arguments back from the page that lays them out by field."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = []
        self.open = [self.root]
        self.nodes = []
        self.part = ""
        self.closed = 0

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "data-kind" in given:
            self.closed += tag == "details" and "open" not in given
            node = {"kind": given["data-kind"], "name": "", "lines": [], "inner": [], "tag": tag, "depth": 0}
            self.open[-1].append(node)
            self.nodes.append(node)
            self.open.append(node["inner"])
        elif tag == "b":
            self.part = "name"
        elif given.get("class") == "line":
            self.part = "line"
            self.nodes[-1]["lines"].append("")
        if tag == "div" and self.nodes:
            self.nodes[-1]["depth"] += 1

    def handle_endtag(self, tag):
        if tag in {"b", "pre"}:
            self.part = ""
        if tag == "div" and self.nodes:
            self.nodes[-1]["depth"] -= 1
        node = self.nodes[-1] if self.nodes else None
        if node and node["tag"] == tag and node["depth"] == 0:
            self.nodes.pop()
            self.open.pop()

    def handle_data(self, data):
        if self.part == "name":
            self.nodes[-1]["name"] += data
        elif self.part == "line":
            self.nodes[-1]["lines"][-1] += data


def value_of(node):
    if node["kind"] == "object":
        return {one["name"]: value_of(one) for one in node["inner"]}
    if node["kind"] == "list":
        assert [one["name"] for one in node["inner"]] == [str(place + 1) for place in range(len(node["inner"]))]
        return [value_of(one) for one in node["inner"]]
    text = "\n".join(node["lines"])
    if node["kind"] == "text":
        return text
    if node["kind"] == "JSON":
        return json.loads(text)
    return {"null": None, "true": True, "false": False}[text] if text.isalpha() else float(text)


def laid_out(html):
    tree = Tree()
    tree.feed(html)
    assert tree.closed == 0, "a part of the call is closed"
    return read_back({node["name"]: value_of(node) for node in tree.root})


def tree_of(response):
    return text_of(response).partition('<div class="lq-tree">')[2].partition('<details class="lq-raw">')[0]


@pytest.fixture
def approver(client):
    return sign_in(client, "approver")


# --- Arguments by field ---


@pytest.mark.sampled(16)
@pytest.mark.parametrize("number", range(200))
def test_hostile_arguments_are_laid_out_in_full(number):
    given = hostile(number)
    assert laid_out(by_field(given)) == given


@pytest.mark.parametrize("depth", [11, 12, 13, 14, 150])
def test_deep_arguments_are_laid_out_in_full(depth):
    given = {"to": "pay\u202eeve"}
    for number in range(depth):
        given = {"x": [given, number]} if number % 2 else {"y": given}
    assert laid_out(by_field(given)) == given


def test_page_and_confirmation_lay_out_the_whole_call(client, approver, some):
    for number in some(random.Random(7).sample(range(2, 200), 5), 2):
        approval = waiting_with(hostile(number))
        for address in (page(Approval, "change", approval.pk), page(Approval, "act", approval.pk, "approve")):
            assert laid_out(tree_of(client.get(address))) == approval.arguments


def test_text_cannot_leave_its_box_or_look_like_a_field():
    found = by_field({"body": 'a\n</span></div><div data-kind="text"><b>to</b>\n\tx  y ', "n": "1", "m": 1})
    assert "<b>to</b>" not in found
    assert found.count("data-kind") == 4  # three fields, and the text of one of them
    assert found.count('<pre class="line">') == 5
    assert "<u>\t</u>x<u>  </u>y<u> </u>" in found
    assert ("<b>n</b> <i>text</i>" in found, "<b>m</b> <i>number</i>" in found) == (True, True)


@pytest.mark.parametrize(("value", "words"), [("", "text, empty"), ([], "list, 0 items"), ({}, "object, 0 fields")])
def test_empty_values_are_told_apart(value, words):
    assert f"<i>{words}</i>" in by_field({"x": value})


def test_call_without_arguments_says_so(client, approver):
    assert "No arguments." in text_of(client.get(page(Approval, "change", make_approval(arguments={}).pk)))


# --- The last decided call of its kind ---


def shown(client, approval):
    return text_of(client.get(page(Approval, "change", approval.pk)))


def decided(approver, session, *, write=approval_approve, **fields):
    row = make_approval(session, **fields)
    write(row.pk, by=approver, digest=row.digest, now=clock())
    return row


def test_differences_from_the_last_decided_call_are_shown(client, approver):
    session = waiting(agent=make_agent())
    decided(approver, session, key="a", arguments={"to": "old@example.org"})
    last = decided(approver, session, key="b", arguments={"to": "x@example.org", "body": "one\ntwo\nthree"})
    now = make_approval(session, key="c", arguments={"to": "x@example.org", "body": "one\n2\nthree"})

    found = shown(client, now)

    assert f'href="{page(Approval, "change", last.pk)}">the call</a> that {approver} approved' in found
    assert '<div class="old">  two</div><div class="new">  2</div>' in found
    assert "old@example.org" not in found


def test_same_arguments_and_a_denial_are_said(client, approver):
    session = waiting(agent=make_agent())
    decided(approver, session, key="a", write=approval_reject)
    found = shown(client, make_approval(session, key="b"))
    assert "The arguments are the same as those of" in found
    assert f"that {approver} denied" in found


@pytest.mark.parametrize("other", ["agent", "owner", "action", "pending", "standing"])
def test_other_kinds_of_calls_are_not_compared(client, approver, other):
    agent, owner = make_agent(), make_user()
    session = waiting(agent=agent, owner=owner)
    elsewhere = waiting(
        agent=make_agent() if other == "agent" else agent, owner=make_user() if other == "owner" else owner
    )
    if other == "pending":
        make_approval(elsewhere)
    elif other == "standing":
        make_approval(elsewhere, status=ApprovalStatus.APPROVED, resolved_by=approver, resolved_at=clock())
        assert not StandingApproval.objects.exists()
    else:
        decided(approver, elsewhere, action="other" if other == "action" else "send_letter")
    assert "Compared with the last decided call" not in shown(client, make_approval(session, key="z"))


def test_view_of_the_compared_run_is_recorded(client, approver):
    owner, agent = make_user(), make_agent()
    first = decided(approver, waiting(agent=agent, owner=owner))
    now = make_approval(waiting(agent=agent, owner=owner))
    shown(client, now)
    viewed = AuditEvent.objects.filter(kind="session.viewed").values_list("subject", flat=True)
    assert {f"session:{first.session.public_id}", f"session:{now.session.public_id}"} <= set(viewed)


def test_calls_that_are_too_long_are_not_compared():
    long = {"list": list(range(MOST_COMPARED_LINES))}
    assert changes(long, {"list": []}) is None
    assert changes({"a": 1}, {"a": 1}) == []


# --- Decide and go to the next ---


def three():
    now = clock()
    return [make_approval(action=f"call_{n}", created_at=now - timedelta(hours=3 - n)) for n in range(3)]


def test_decision_leads_to_the_next_approval_with_how_many_are_left(client, approver):
    first, second, third = three()

    answer = decide(client, second, "approve")
    assert answer.url == f"{page(Approval, 'change', third.pk)}?after={second.pk}"
    found = text_of(client.get(answer.url))
    assert "Approved. The call may be made once." in found
    assert f'Decided: <a href="{page(Approval, "change", second.pk)}">call_1</a>. 2 left for you.' in found
    assert "data-rests" in found

    assert decide(client, third, "deny").url.startswith(page(Approval, "change", first.pk))
    last = decide(client, first, "approve")
    assert last.url == page(Approval, "change", first.pk)
    assert "No approval is left for you." in text_of(client.get(last.url))


def test_page_links_to_its_neighbours(client, approver):
    first, second, third = three()
    found = shown(client, second)
    assert "2 of 3 waiting for you" in found
    assert f'rel="prev" data-key="k" href="{page(Approval, "change", first.pk)}"' in found
    assert f'rel="next" data-key="j" href="{page(Approval, "change", third.pk)}"' in found
    assert "data-rests" not in found
    assert 'rel="prev"' not in shown(client, first)


def test_next_is_only_what_this_person_may_approve(client, settings):
    settings.LQOPS_FOUR_EYES = True
    me = sign_in(client)
    mine = make_approval(waiting(owner=me), level=Level.PRIVILEGED)
    expired = make_approval(expires_at=clock() - timedelta(seconds=1))
    other = make_approval()
    assert open_to(me, clock()) == [other]
    assert decide(client, other, "approve").url == page(Approval, "change", other.pk)
    assert {mine.pk, expired.pk} == set(Approval.objects.filter(status="pending").values_list("pk", flat=True))


def test_readers_see_no_queue(client):
    sign_in(client, "viewer")
    approval = three()[0]
    assert "waiting for you" not in shown(client, approval)


def test_number_of_statements_does_not_grow_with_the_queue(client, approver, django_assert_max_num_queries):
    approval = make_approval()
    shown(client, approval)
    with django_assert_max_num_queries(60) as few:
        shown(client, approval)
    for _ in range(20):
        make_approval()
    with django_assert_max_num_queries(len(few)):
        shown(client, approval)


# --- From a notification ---


def test_notification_leads_to_the_call_it_names(client, approver):
    session = waiting()
    make_approval(session, key="a")
    named = make_approval(session, key="b")
    notify_approvers(named, now=clock())
    notice = Notification.objects.get(owner=approver)
    assert notice.page == approval_path(named)

    answer = client.get(page(Notification, "change", notice.pk))

    notice.refresh_from_db()
    assert answer.url == page(Approval, "change", named.pk)
    assert notice.read_at is not None
    assert client.get(reverse("admin:agents_approval_by_id", args=[named.public_id])).url == answer.url


def test_settled_notification_is_shown_itself(client, approver):
    row = make_approval(status=ApprovalStatus.REJECTED)
    notice = Notification.objects.create(
        owner=approver, session=row.session, title="t", page=approval_path(row), kind=NoticeKind.APPROVAL_WAITING
    )
    answer = client.get(page(Notification, "change", notice.pk))
    assert answer.status_code == 200
