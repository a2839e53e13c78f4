"""All work of the installation: halted, and released. This lever reaches everybody's sessions."""

from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.api.fields import Body, NoteField
from agents.api.schema import described
from agents.models import Halt
from agents.people.access import demand_lever
from agents.sessions.halts import halt_reach, organisation_halt, organisation_release


class ReasonBody(Body):
    reason = NoteField(required=True, allow_blank=False, default=empty, help_text="For those who find it halted.")


class AllWorkShown(serializers.Serializer[Any]):
    halted = serializers.BooleanField(help_text="Whether all work is halted now.")
    reason = serializers.CharField(help_text="Of a halt that is said again: the one that was given first.")
    requested_by = serializers.CharField(allow_null=True, help_text="Null: a command, without a user.")
    requested_at = serializers.DateTimeField()
    released_at = serializers.DateTimeField(allow_null=True)
    sessions = serializers.IntegerField(help_text="How many sessions it has told to stop.")


class HaltAllWork(ApiView):
    serializer_class = AllWorkShown
    always_allowed = frozenset({"post"})

    @described("halt_everything", AllWorkShown, body=ReasonBody)
    def post(self, request: Request) -> Response:
        """Halts every session of the installation, and lets nothing start until it is released.

        Said again, it halts what an interrupted halt has left. It needs the permission agents.halt_everything.
        """
        demand_lever(self.person)
        reason = self.body(ReasonBody)["reason"]
        return _shown(organisation_halt(by=self.person, reason=reason, now=self.now).halt)


class ReleaseAllWork(ApiView):
    serializer_class = AllWorkShown
    decisions = frozenset({"post"})  # what an emergency has stopped is let go by a person

    @described("release_everything", AllWorkShown)
    def post(self, request: Request) -> Response:
        """Lets new work start again; sessions that were halted stay halted. 409 when work is not halted.

        It needs the permission agents.halt_everything, and of a key the scope `decide`.
        """
        demand_lever(self.person)
        return _shown(organisation_release(by=self.person, now=self.now))


def _shown(halt: Halt) -> Response:
    found = {
        "halted": halt.released_at is None,
        "reason": halt.reason,
        "requested_by": halt.requested_by.get_username() if halt.requested_by else None,
        "requested_at": halt.requested_at,
        "released_at": halt.released_at,
        "sessions": halt_reach(halt),
    }
    return Response(AllWorkShown(found).data)
