"""The person who asks: who that is, what this key may do, and the person's opt-in."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.accounts import email_notices_set, profile_set
from agents.api.base import ApiView
from agents.api.fields import Body
from agents.api.schema import described
from agents.models import ApiKey, Profile
from agents.people.keys import Scope
from agents.sessions.standing import PERMISSION


class MeShown(serializers.Serializer[Any]):
    username = serializers.CharField()
    opted_in = serializers.BooleanField(help_text="Agents may run in the background for you.")
    email_notices = serializers.BooleanField(help_text="Notices are mailed, if an address is set.")
    may_resolve_approvals = serializers.BooleanField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=[str(scope) for scope in Scope]))
    key_expires_at = serializers.DateTimeField(allow_null=True, help_text="Null for a signed-in browser.")


class MePatch(Body):
    opted_in = serializers.BooleanField(required=False)
    halt_all = serializers.BooleanField(
        required=False, help_text="With opted_in false: halts all your sessions, too. Without it runs may finish."
    )
    email_notices = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("halt_all") and attrs.get("opted_in") is not False:
            raise serializers.ValidationError({"halt_all": ["Goes with opted_in false, and with nothing else."]})
        return attrs


class Me(ApiView):
    serializer_class = MeShown
    always_allowed = frozenset({"patch"})  # opting in cannot need an opt-in

    @described("me_retrieve", MeShown)
    def get(self, request: Request) -> Response:
        return Response(self._shown())

    @described("me_edit", MeShown, body=MePatch)
    def patch(self, request: Request) -> Response:
        """Opts in or out, and says whether notices are mailed. Opting out spawns nothing new and ends loops."""
        said = self.body(MePatch)
        who: dict[str, Any] = {"user": self.person, "by": self.person, "now": self.now}
        if "opted_in" in said:
            profile_set(**who, opted_in=said["opted_in"], halt_all=said.get("halt_all", False))
        if "email_notices" in said:
            email_notices_set(**who, enabled=said["email_notices"])
        return Response(self._shown())

    def _shown(self) -> dict[str, Any]:
        key = self.request.auth if isinstance(self.request.auth, ApiKey) else None
        profile = Profile.objects.filter(user_id=self.person.pk).first() or Profile()
        me = {
            "username": self.person.username,
            "opted_in": profile.opted_in,
            "email_notices": profile.email_notices,
            "may_resolve_approvals": self.person.has_perm(PERMISSION),
            "scopes": key.scopes if key else list(Scope),
            "key_expires_at": key.expires_at if key else None,
        }
        return dict(MeShown(me).data)
