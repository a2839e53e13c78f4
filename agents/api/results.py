"""Results of runs: findings, memories, notifications, projects, precedents and proposals."""

from typing import Any

import django_filters
from django.db.models import Q, QuerySet
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import CappedViewSet, OwnedViewSet, act_with, create_with, delete_with, month_cap
from agents.api.fields import Body, CountField, OwnedRowField, RowSerializer, UsdField, ref
from agents.api.paging import BooleanFilter, ChoicesFilter, public_id_filter
from agents.api.schema import describe, detail_action, detail_list
from agents.api.sessions import FINDING_JOINS, FindingSerializer
from agents.conf import clock
from agents.enums import BudgetScope, FindingState, NoticeKind, ProposalStatus
from agents.knowledge.findings import (
    COMMENT_CHARS,
    REASON_CHARS,
    assignable_users,
    finding_acknowledge,
    finding_assign,
    finding_comment,
    finding_dismiss,
    finding_reopen,
    finding_resolve,
)
from agents.knowledge.findings import PERMISSION as FINDING_PERMISSION
from agents.knowledge.projects import (
    CONTENT_CHARS,
    CONTEXT_CHARS,
    LINE_CHARS,
    NAME_CHARS,
    PARTIES_CHARS,
    memory_delete,
    memory_dismiss,
    memory_keep,
    precedent_dismiss,
    precedent_merge,
    precedent_promote,
    precedent_weight,
    project_create,
    project_delete,
    project_edit,
    proposal_accept,
    proposal_edit,
    proposal_reject,
    proposal_retire,
    proposal_trace,
)
from agents.knowledge.recall import precedents_alike
from agents.models import (
    AgentSession,
    ContextProposal,
    Finding,
    FindingComment,
    Memory,
    Notification,
    Precedent,
    Project,
)
from agents.people.notifications import notification_mark_read

STATES = [(state, state) for state in ("proposed", "kept", "dismissed")]


# --- Findings: yours, and those that are assigned to you ---


class DismissBody(Body):
    reason = serializers.CharField(max_length=REASON_CHARS, help_text="Why it is no problem.")
    teach = serializers.BooleanField(default=True, help_text="Count the reason as a precedent for later runs.")


class AssignBody(Body):
    assignee = serializers.CharField(
        max_length=150, allow_null=True, help_text="A username: the owner, or who may change findings. null: nobody."
    )


class CommentBody(Body):
    text = serializers.CharField(max_length=COMMENT_CHARS)


class CommentSerializer(RowSerializer):
    author = serializers.CharField(source="author.username", allow_null=True, default=None)

    class Meta:
        model = FindingComment
        fields = ["id", "author", "text", "created_at"]


class FindingViewSet(OwnedViewSet[Finding]):
    """Findings of your runs, and those that are assigned to you, newest first."""

    queryset = Finding.objects.all()
    serializer_class = FindingSerializer
    filters = {
        "state": ChoicesFilter(choices=FindingState.choices),
        "severity": django_filters.CharFilter(max_length=32),
        "assignee": django_filters.CharFilter(field_name="assignee__username", max_length=150, label="A username."),
        "unassigned": BooleanFilter(field_name="assignee", lookup_expr="isnull"),
        "about_run": BooleanFilter(field_name="about_run", label="true: only those about the run itself; false: none."),
        "session": public_id_filter("session"),
        "agent": django_filters.UUIDFilter(field_name="session__agent__public_id", label="The id of the agent."),
        "playbook": public_id_filter("playbook"),
        "document": public_id_filter("document"),
        "created_after": django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gte"),
        "created_before": django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="lt"),
    }
    joins = FINDING_JOINS
    shows_others_rows = True
    always_allowed = frozenset({"acknowledge", "dismiss", "resolve", "reopen", "assign", "comment"})
    acknowledge = act_with("acknowledge", finding_acknowledge, "Say that somebody deals with it.")
    dismiss = act_with("dismiss", finding_dismiss, "Say that it is no problem, and why.", body=DismissBody)
    resolve = act_with("resolve", finding_resolve, "Say that it was right and has been dealt with.")
    reopen = act_with("reopen", finding_reopen, "Put it back among the open ones, and take back what it taught.")

    def visible(self, rows: QuerySet[Finding]) -> QuerySet[Finding]:
        mine = self.of_own_runs()
        if self.user.has_perm(FINDING_PERMISSION):
            mine |= Q(assignee_id=self.user.pk)
        return rows.filter(mine).defer("document__text", "document__marks")

    @detail_action(body=AssignBody)
    def assign(self, request: Request, **_: Any) -> Response:
        """Assign it to a person, who is notified, or to nobody."""
        finding, username = self.get_object(), self.body(AssignBody)["assignee"]
        people = assignable_users(finding.session.owner_id)
        assignee = people.filter(username=username).first() if username is not None else None
        if assignee is None and username is not None:
            message = f"A finding cannot be assigned to {username!r}: that needs the permission {FINDING_PERMISSION}."
            raise serializers.ValidationError({"assignee": [message]})
        self.call(finding_assign, finding, assignee=assignee)
        return self.respond(finding)

    @detail_list(CommentSerializer)
    def comments(self, request: Request, **_: Any) -> Response:
        """The comments on the finding, in order."""
        return self.page(self.get_object().comments.select_related("author").order_by("pk"), CommentSerializer)

    @detail_action({201: CommentSerializer}, body=CommentBody)
    def comment(self, request: Request, **_: Any) -> Response:
        """Comment on the finding. The owner and the assignee are notified."""
        finding = self.get_object()
        comment = finding_comment(finding=finding, **self.body(CommentBody), **self.actor)
        return Response(CommentSerializer(comment).data, status=201)


# --- Memories: agents propose them; only those that a person keeps get into prompts ---


class MemorySerializer(RowSerializer):
    session = ref("session")

    class Meta:
        model = Memory
        fields = ["id", "session", "content", "state", "created_at", "kept_at"]


class KeepBody(Body):
    content = serializers.CharField(
        max_length=CONTENT_CHARS, required=False, help_text="A new wording. Default: kept as it is."
    )


class MemoryViewSet(OwnedViewSet[Memory]):
    """Memories that agents proposed to you, newest first."""

    queryset = Memory.objects.all()
    serializer_class = MemorySerializer
    filters = {
        "state": django_filters.ChoiceFilter(choices=STATES),
    }
    joins = ("session",)
    keep = act_with("keep", memory_keep, "Keep the memory: prompts may include it.", body=KeepBody)
    dismiss = act_with("dismiss", memory_dismiss, "Dismiss the memory: prompts no longer include it.")
    destroy = delete_with(memory_delete)


# --- Notifications: marking one as read needs no opt-in ---


class NotificationSerializer(RowSerializer):
    session = ref("session")
    finding = ref("finding")

    class Meta:
        model = Notification
        fields = ["id", "kind", "title", "body", "session", "finding", "read_at", "created_at"]


class NotificationViewSet(OwnedViewSet[Notification]):
    """Your notifications, newest first."""

    queryset = Notification.objects.all()
    serializer_class = NotificationSerializer
    filters = {
        "kind": django_filters.ChoiceFilter(choices=NoticeKind.choices),
        "unread": BooleanFilter(
            field_name="read_at", lookup_expr="isnull", label="true: only unread; false: only read."
        ),
    }
    joins = ("session", "finding")
    always_allowed = frozenset({"read"})
    read = act_with("read", notification_mark_read)


# --- Projects: context for runs ---


class ProjectSerializer(RowSerializer):
    max_cost_per_day_usd = UsdField(
        read_only=True, allow_null=True, help_text="Cap per UTC day; null: none. Set it by `caps`."
    )
    max_cost_per_month_usd = month_cap()

    class Meta:
        model = Project
        fields = [
            "id", "name", "context_md", "context_version", "parties", "max_cost_per_day_usd", "max_cost_per_month_usd",
            "created_at",
        ]  # fmt: skip


class ProjectBody(Body):
    name = serializers.CharField(max_length=NAME_CHARS)
    context_md = serializers.CharField(
        max_length=CONTEXT_CHARS, required=False, allow_blank=True, trim_whitespace=False
    )
    parties = serializers.CharField(
        max_length=PARTIES_CHARS,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Names of people and companies to hide from models, one per line.",
    )


class ProjectPatch(ProjectBody):
    seen_version = CountField(
        required=False, help_text="The version of the context that you edited. 409 if there is a newer one."
    )


EXAMPLE = OpenApiExample("A matter", {"name": "Acme lease", "parties": "Acme Ltd\nJane Doe"}, request_only=True)


class ProjectViewSet(CappedViewSet[Project]):
    """Your projects, newest first."""

    budget_scope = BudgetScope.PROJECT
    queryset = Project.objects.all()
    serializer_class = ProjectSerializer
    create = create_with(project_create, ProjectBody, examples=[EXAMPLE])
    destroy = delete_with(
        project_delete, "Delete the project with its proposals and versions. Runs and triggers stay, without a project."
    )

    @describe(body=ProjectPatch)
    def partial_update(self, request: Request, **_: Any) -> Response:
        return self.act(project_edit, ProjectPatch, partial=True)


# --- Proposals: texts for a project's context; the project's owner decides ---


class ProposalSerializer(RowSerializer):
    project = ref("project")
    precedent = ref("precedent")

    class Meta:
        model = ContextProposal
        fields = [
            "id", "project", "precedent", "text", "status", "created_at", "decided_at", "applied_version",
            "retired_version",
        ]  # fmt: skip


class LineBody(Body):
    text = serializers.CharField(max_length=LINE_CHARS, help_text="One line; line breaks become spaces.")


class TracedRun(RowSerializer):
    class Meta:
        model = AgentSession
        fields = ["id", "status", "context_version", "created_at"]


class ProposalViewSet(OwnedViewSet[ContextProposal]):
    """Proposals for the context of your projects, newest first."""

    queryset = ContextProposal.objects.all()
    serializer_class = ProposalSerializer
    filters = {
        "status": django_filters.ChoiceFilter(choices=ProposalStatus.choices),
        "project": public_id_filter("project"),
    }
    joins = ("project", "precedent")
    row_name = "proposal"
    accept = act_with("accept", proposal_accept, "Add the text to the project's context.")
    reject = act_with("reject", proposal_reject, "Reject the proposal. The context stays as it is.")
    retire = act_with("retire", proposal_retire, "Remove the text from the context, in a new version.")

    @describe(body=LineBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Change the text before it is added to the context."""
        return self.act(proposal_edit, LineBody)

    @detail_list(TracedRun)
    def trace(self, request: Request, **_: Any) -> Response:
        """Your runs whose context included this text, newest first."""
        runs = proposal_trace(self.get_object()).filter(owner_id=self.user.pk)
        return self.page(runs, TracedRun)


# --- Precedents ---


class PrecedentSerializer(RowSerializer):
    weight = serializers.SerializerMethodField(help_text="The count, less for the time since the last sighting.")
    merged_into = ref("merged_into")

    class Meta:
        model = Precedent
        fields = [
            "id", "pattern_kind", "summary", "observed_count", "weight", "first_seen_at", "last_seen_at",
            "dismissed_at", "ended_as", "merged_into",
        ]  # fmt: skip

    def get_weight(self, row: Precedent) -> float:
        return precedent_weight(row, now=clock())


class PromoteBody(Body):
    project = OwnedRowField(Project)
    text = serializers.CharField(
        max_length=LINE_CHARS, required=False, help_text="The line for the context. Default: worded by the server."
    )


class MergeBody(Body):
    into = OwnedRowField(Precedent)


class PrecedentViewSet(OwnedViewSet[Precedent]):
    """Repeated patterns in your runs, without dismissed ones, the most recently seen first."""

    queryset = Precedent.objects.all()
    serializer_class = PrecedentSerializer
    filters = {
        "kind": django_filters.CharFilter(field_name="pattern_kind", max_length=64),
    }
    ordering = ("-last_seen_at", "-id")
    joins = ("merged_into",)
    dismiss = act_with("dismiss", precedent_dismiss, "Remove it from the list. The next occurrence starts a new count.")
    merge = act_with("merge", precedent_merge, "Add its count to another open precedent, and end it.", body=MergeBody)

    @detail_list(PrecedentSerializer)
    def similar(self, request: Request, **_: Any) -> Response:
        """Your other open precedents that say nearly the same, the most similar first."""
        return self.page(precedents_alike(self.get_object()), PrecedentSerializer)

    def get_queryset(self) -> QuerySet[Precedent]:
        rows = super().get_queryset()
        return rows.filter(dismissed_at__isnull=True) if self.action == "list" else rows

    @detail_action({201: ProposalSerializer}, body=PromoteBody)
    def promote(self, request: Request, **_: Any) -> Response:
        """Propose it for the context of one of your projects. It is added when the proposal is accepted."""
        precedent = self.get_object()
        data = self.body(PromoteBody)
        proposal = precedent_promote(precedent=precedent, **data, **self.actor)
        return Response(ProposalSerializer(proposal).data, status=201)
