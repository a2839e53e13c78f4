"""The rows. Models hold shape, constraints and derived values; services are the only writers."""

from agents.models.agents_ import Agent, Profile, Project, Trigger
from agents.models.approvals import Approval, StandingApproval
from agents.models.budgets import Budget, Halt, Installation, ModelPrice, SuspendedModel
from agents.models.findings import Finding, Memory, Notification, Precedent
from agents.models.inference import InferenceLog
from agents.models.sessions import AgentSession
from agents.models.tool_calls import ToolCall

__all__ = [
    "Agent",
    "AgentSession",
    "Approval",
    "Budget",
    "Finding",
    "Halt",
    "InferenceLog",
    "Installation",
    "Memory",
    "ModelPrice",
    "Notification",
    "Precedent",
    "Profile",
    "Project",
    "StandingApproval",
    "SuspendedModel",
    "ToolCall",
    "Trigger",
]
