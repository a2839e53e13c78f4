"""tell_owner: a notice for the person a run works for, once for each call."""

import pytest

from agents.enums import Level, Mode, NoticeKind, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import Notification
from agents.skills.registry import skill_named
from agents.skills.skill import BadArguments
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db


def tell(session, key="turn:1", **arguments):
    params = {"skill": "tell_owner", "arguments": arguments}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key, now=NOW)


def test_owner_is_notified_once_per_call():
    session = make_session(mode=Mode.LOOP)
    told = tell(session, title="A file came in", text="a.txt, 3 bytes")
    again = tell(session, title="A file came in", text="a.txt, 3 bytes")

    [notice] = Notification.objects.all()
    assert (notice.owner, notice.session, notice.kind) == (session.owner, session, NoticeKind.AGENT)
    assert (notice.title, notice.body) == ("A file came in", "a.txt, 3 bytes")
    assert told.data == again.data == {"notification_id": str(notice.public_id)}
    assert again.replayed


def test_notification_needs_no_approval():
    found = skill_named("tell_owner")

    assert (found.level, found.side_effects, found.local) == (Level.MONITORED, True, True)


@pytest.mark.parametrize("title", ["", "x" * 201])
def test_title_is_required_and_bounded(title):
    with pytest.raises(BadArguments):
        tell(make_session(mode=Mode.LOOP), title=title)

    assert not Notification.objects.exists()
