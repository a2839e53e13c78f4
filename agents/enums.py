"""Closed sets of values. They are a contract: rows, receipts and the API contain them."""

from functools import cached_property

from django.db import models

TextChoices = models.TextChoices  # for the policy, which imports no Django


class _Ranked(models.TextChoices):
    """Values in ascending order."""

    @cached_property
    def rank(self) -> int:
        return list(type(self)).index(self)


class ToolIntent(models.TextChoices):
    """Everything an agent can do. There is no ninth."""

    RETRIEVE_CHUNKS = "retrieve_chunks"
    RUN_SKILL = "run_skill"
    RUN_PLAYBOOK = "run_playbook"
    PROPOSE_MEMORY = "propose_memory"
    PROPOSE_PRECEDENT = "propose_precedent"
    EMIT_FINDING = "emit_finding"
    EMIT_ARTIFACT = "emit_artifact"
    NOTIFY = "notify"


class Phase(models.TextChoices):
    """The five phases of a phased session, in order; `turn` is where loop and chat sessions live."""

    INTAKE = "intake"
    ANALYSIS = "analysis"
    DRAFTING = "drafting"
    ETHICS_REVIEW = "ethics_review"
    DELIVERY = "delivery"
    TURN = "turn"


class Mode(models.TextChoices):
    PHASED = "phased"
    LOOP = "loop"
    CHAT = "chat"
    HEARTBEAT = "heartbeat"
    SENSOR = "sensor"
    INDEX = "index"


class Status(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    COMPLETED = "completed"
    HALTED = "halted"
    FAILED = "failed"


class HaltState(models.TextChoices):
    """The operator's control, apart from the status."""

    RUNNING = "running"
    HALT_REQUESTED = "halt_requested"
    HALTED = "halted"
    IDLE = "idle"


class WaitingOn(models.TextChoices):
    APPROVAL = "approval"
    INPUT = "input"
    OPERATOR = "operator"
    MODEL = "model"
    RESUME = "resume"
    RUNS = "runs"


class TerminalReason(models.TextChoices):
    COMPLETED = "completed"
    AGENT_SHUTDOWN = "agent_shutdown"
    EXTERNAL_HALT = "external_halt"
    TIMED_OUT = "timed_out"
    MAX_STEPS = "max_steps"
    BUDGET_EXCEEDED = "budget_exceeded"
    COST_CAP_REACHED = "cost_cap_reached"
    IDLE_TIMEOUT = "idle_timeout"
    STUCK_LOOP = "stuck_loop"
    PROVIDER_ERROR = "provider_error"
    TOOL_NOT_GRANTED = "tool_not_granted"
    WORKER_ERROR = "worker_error"
    WORKER_LOST = "worker_lost"
    OPTED_OUT = "opted_out"
    REFUSED = "refused"
    UNPRICED_MODEL = "unpriced_model"


class RunResult(models.TextChoices):
    """The result of a run that is over. Its status says how it ended."""

    OK = "ok"
    FINDINGS = "findings"
    EMPTY = "empty"
    PARTIAL = "partial"
    FAILED = "failed"


class AgentState(models.TextChoices):
    """A reading of the session for people and integrations, derived from its row; never stored."""

    RUNNING = "running"
    WAITING_FOR_TOOL = "waiting_for_tool"
    WAITING_FOR_INPUT = "waiting_for_input"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_MODEL = "waiting_for_model"
    WAITING_FOR_RUNS = "waiting_for_runs"
    SLEEPING = "sleeping"
    PAUSED = "paused"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    MAX_STEPS = "max_steps"
    BUDGET_EXCEEDED = "budget_exceeded"


class Brake(models.TextChoices):
    """The check that refused a call, as its audit event names it: one of the three brakes, or another check."""

    COST = "R4"
    HALT = "R5"
    GRANT = "R6"
    APPROVAL = "approval"
    RATE = "rate_limit"
    ARGUMENTS = "arguments"
    SKILL = "skill"
    RULE = "rule"


class Outcome(models.TextChoices):
    STARTED = "started"
    SUCCESS = "success"
    TOOL_NOT_GRANTED = "tool_not_granted"
    GATEWAY_ERROR = "gateway_error"
    SKIPPED = "skipped"
    STORAGE_ERROR = "storage_error"
    RATE_LIMITED = "rate_limited"
    DENIED = "denied"
    APPROVAL_PENDING = "approval_pending"
    WORKER_LOST = "worker_lost"
    ERROR = "error"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


class TriggerKind(models.TextChoices):
    WATCH = "watch"
    SCHEDULE = "schedule"
    EVENT = "event"
    MANUAL = "manual"
    SUGGESTION = "suggestion"


class ApprovalMode(models.TextChoices):
    """Which capability levels ask a person first: PRIVILEGED alone, RESTRICTED and above, or CONTROLLED and above."""

    AUTO = "auto"
    SEMI = "semi"
    MANUAL = "manual"


class Level(_Ranked):
    """Capability levels."""

    SAFE = "SAFE"
    MONITORED = "MONITORED"
    CONTROLLED = "CONTROLLED"
    RESTRICTED = "RESTRICTED"
    PRIVILEGED = "PRIVILEGED"


class RuleEffect(models.TextChoices):
    """The effect of an approval rule on the calls that it fits."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Risk(models.TextChoices):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ApprovalStatus(models.TextChoices):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class QuestionStatus(models.TextChoices):
    PENDING = "pending"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Purpose(models.TextChoices):
    """Why a model was asked; costs are averaged and split by it."""

    CHAT = "chat"
    JUDGE = "judge"
    EMBEDDING = "embedding"
    AUTONOMOUS_EXECUTOR = "autonomous_executor"
    SIMULATION = "simulation"
    PRECHECK = "precheck"
    SIGNAL = "signal"
    COMPACTION = "compaction"
    TEST = "test"


class BudgetScope(models.TextChoices):
    INSTALLATION = "installation"
    OWNER = "owner"
    PROJECT = "project"
    AGENT = "agent"
    TRIGGER = "trigger"


class BudgetPeriod(models.TextChoices):
    """How long a cap counts: a UTC day, or a calendar month of UTC days."""

    DAY = "day"
    MONTH = "month"


class Urgency(models.IntegerChoices):
    """Which of the waiting runs go first. Somebody waits for an urgent one."""

    URGENT = 0
    BATCH = 1


class HaltScope(models.TextChoices):
    SESSION = "session"
    ORGANISATION = "organisation"


class PauseScope(models.TextChoices):
    """What a pause holds up."""

    SESSION = "session"
    AGENT = "agent"
    TRIGGER = "trigger"
    ORGANISATION = "organisation"


class DocumentOrigin(models.TextChoices):
    """A document that a run wrote fires no watch and is not retrieved as new."""

    UPLOAD = "upload"
    ARTIFACT = "artifact"


class ProposalStatus(models.TextChoices):
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RETIRED = "retired"


class PrecedentEnd(models.TextChoices):
    """Why a precedent is no longer open."""

    DISMISSED = "dismissed"
    EXPIRED = "expired"
    MERGED = "merged"


class EventSeverity(_Ranked):
    INFO = "info"
    CAUTION = "caution"
    WARNING = "warning"
    CRITICAL = "critical"


class EventOutcome(models.TextChoices):
    """The outcome of an event. Only `spawned` has a session."""

    SPAWNED = "spawned"
    NO_MATCH = "no_match"
    REFUSED = "refused"


class OutboxStatus(models.TextChoices):
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


class NoticeKind(models.TextChoices):
    """Why a notification was written: by the agent itself, or by the installation."""

    AGENT = "agent"
    RUN_STOPPED = "run_stopped"
    RUN_FINDINGS = "run_findings"
    RUN_COMPLETED = "run_completed"
    APPROVAL_WAITING = "approval_waiting"
    APPROVAL_ESCALATED = "approval_escalated"
    DELEGATED = "delegated"
    QUESTION_WAITING = "question_waiting"
    TRIGGER_PAUSED = "trigger_paused"
    OUTCOME_UNKNOWN = "outcome_unknown"
    WATCH_BEHIND = "watch_behind"
    SENSOR_FAILING = "sensor_failing"
    MODEL_AWAY = "model_away"
    MODEL_BACK = "model_back"
    LOOP_WAITING = "loop_waiting"
    INPUT_GIVEN_UP = "input_given_up"
    FINDING = "finding"
    BUDGET = "budget"
    CHANNEL_FAILING = "channel_failing"
    FAULT = "fault"
    SIGN_IN = "sign_in"


class News(models.TextChoices):
    """Groups of notifications, for which people choose whether a channel gets them."""

    DECISIONS = "decisions", "Approvals and questions"
    FAILURES = "failures", "Failures"
    FINDINGS = "findings", "Findings"
    MESSAGES = "messages", "Messages of agents"
    MONEY = "money", "Budgets"
    INSTALLATION = "installation", "Installation"
    SUCCESSES = "successes", "Successes"


class NewsChoice(models.TextChoices):
    """When a channel gets a group of notifications."""

    ALWAYS = "always", "At once, also in quiet hours"
    NOW = "now", "At once"
    DIGEST = "digest", "In the daily digest"
    OFF = "off", "Never"


class ChannelKind(models.TextChoices):
    EMAIL = "email", "E-mail"
    WEBHOOK = "webhook", "Webhook"
    CHAT = "chat", "Chat service"


class InputState(models.TextChoices):
    """Where an input stands that a run did not read. What was read has no such row."""

    QUEUED = "queued", "a run is reading it"
    RETRYING = "retrying", "read again when due"
    GIVEN_UP = "given_up", "given up"
    DISMISSED = "dismissed", "dismissed"


class AnalysisMode(models.TextChoices):
    """How the analysis phase thinks: one question to the model, or steps with skills."""

    SINGLE = "single"
    AGENTIC = "agentic"


class TurnState(models.TextChoices):
    OPEN = "open"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class HotSource(models.TextChoices):
    """Who wrote a field of the hot state."""

    SENSOR = "sensor"
    REFRESH = "refresh"
    AGENT = "agent"


class SensorKind(models.TextChoices):
    POLL = "poll"
    WATCH = "watch"
    STREAM = "stream"


class SensorState(models.TextChoices):
    """`unresolved` and `invalid` come from the definition, the others from reading."""

    WAITING = "waiting"
    FINE = "fine"
    FAILING = "failing"
    UNRESOLVED = "unresolved"
    INVALID = "invalid"


class EventKind(models.TextChoices):
    """Types of events that are published to subscribers."""

    TURN_STARTED = "autonomy:turn_started"
    TURN_COMPLETED = "autonomy:turn_completed"
    PRECHECK_SKIPPED = "autonomy:precheck_skipped"
    GUARDRAIL_TRIGGERED = "autonomy:guardrail_triggered"
    SENSOR_UPDATED = "autonomy:sensor_updated"
    SENSOR_ERROR = "autonomy:sensor_error"
    NOTIFICATION_PUSHED = "autonomy:notification_pushed"
    APPROVAL_REQUESTED = "approval:requested"
    APPROVAL_RESOLVED = "approval:resolved"
    ERROR = "session:error"


class FindingState(models.TextChoices):
    """What people have done about a finding; `expired`: nothing, and it waits for people no longer."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    DISMISSED = "dismissed"
    RESOLVED = "resolved"
    EXPIRED = "expired"


class QuoteCheck(models.TextChoices):
    VERIFIED = "verified"
    UNVERIFIED = "unverified"
