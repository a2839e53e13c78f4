"""The rows. Models hold shape, constraints and derived values; services are the only writers."""

from agents.models.agents import Agent, Profile, Project, Trigger, agents_may_run
from agents.models.autonomy import AgentEvent, Alert, GateDay, HotField, Sensor, Turn
from agents.models.calls import (
    Approval,
    ApprovalVote,
    InferenceLog,
    Message,
    Question,
    SecretBinding,
    SkillCount,
    SkillSetting,
    StandingApproval,
    StreamPart,
    ToolCall,
)
from agents.models.knowledge import (
    Attachment,
    Chunk,
    ChunkVector,
    Collection,
    Document,
    Playbook,
    PlaybookPosition,
    PromptSkill,
    QueryVector,
)
from agents.models.money import (
    Budget,
    Cap,
    DeclaredModel,
    Halt,
    Installation,
    ModelOutage,
    ModelPrice,
    ModelServer,
    ModelTurn,
    Pause,
    SuspendedModel,
)
from agents.models.operations import (
    Alarm,
    ApiKey,
    AppliedMigration,
    ArchivedTotal,
    Channel,
    Delegation,
    Host,
    InboundEvent,
    Lease,
    OutboxMessage,
    Postponement,
    SavedView,
    SignInCount,
    UnreadInput,
)
from agents.models.results import (
    ContextProposal,
    ContextRevision,
    Finding,
    FindingComment,
    Memory,
    Notification,
    Precedent,
)
from agents.models.rules import ApprovalRule
from agents.models.sessions import AgentSession
from agents.models.shared_texts import SharedText
