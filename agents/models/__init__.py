"""The rows. Models hold shape, constraints and derived values; services are the only writers."""

from agents.models.agents import Agent, Profile, Project, Trigger, agents_may_run
from agents.models.approvals import Approval, StandingApproval
from agents.models.autonomy import AgentEvent, Alert, GateDay, HotField, Sensor, Turn
from agents.models.calls import ToolCall
from agents.models.inbound import ApiKey, InboundEvent
from agents.models.inference import InferenceLog
from agents.models.knowledge import Attachment, Chunk, Collection, Document
from agents.models.money import Budget, Halt, Installation, ModelPrice, SuspendedModel
from agents.models.operations import Lease, OutboxMessage, Postponement
from agents.models.playbooks import Playbook, PlaybookPosition, PromptSkill
from agents.models.precedents import ContextProposal, ContextRevision
from agents.models.results import Finding, Memory, Notification, Precedent
from agents.models.sessions import AgentSession
from agents.models.sign_in import SignInCount
from agents.models.skills import Message, Question, SkillCount, SkillSetting, StreamPart

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentSession",
    "Alert",
    "ApiKey",
    "Approval",
    "Attachment",
    "Budget",
    "Chunk",
    "Collection",
    "ContextProposal",
    "ContextRevision",
    "Document",
    "Finding",
    "GateDay",
    "Halt",
    "HotField",
    "InboundEvent",
    "InferenceLog",
    "Installation",
    "Lease",
    "Memory",
    "Message",
    "ModelPrice",
    "Notification",
    "OutboxMessage",
    "Playbook",
    "PlaybookPosition",
    "Postponement",
    "Precedent",
    "Profile",
    "Project",
    "PromptSkill",
    "Question",
    "Sensor",
    "SignInCount",
    "SkillCount",
    "SkillSetting",
    "StandingApproval",
    "StreamPart",
    "SuspendedModel",
    "ToolCall",
    "Trigger",
    "Turn",
    "agents_may_run",
]
