"""Settings of the API, kept apart for their length. None of them comes from the environment."""

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agents.api.authentication.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "agents.api.permissions.SignedIn",
        "agents.api.permissions.InScope",
        "agents.api.permissions.OptedIn",
        "agents.api.permissions.MayStart",
    ],
    "DEFAULT_PARSER_CLASSES": ["agents.api.parsers.StrictJSON"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "agents.api.paging.Pages",
    "DEFAULT_FILTER_BACKENDS": ["agents.api.filtering.StrictBackend"],
    "DEFAULT_THROTTLE_CLASSES": ["agents.api.throttling.PerUser"],
    "DEFAULT_SCHEMA_CLASS": "agents.api.schema.Described",
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "agents.api.errors.answer_error",
    "UNICODE_JSON": False,  # characters that turn text around, or that nobody sees, stand in answers as escapes
}
RATES = {"read": "1200/min", "write": "300/min", "events": "120/min"}  # per user and web process
SPECTACULAR_SETTINGS = {
    "TITLE": "lqops",
    "DESCRIPTION": "Sessions, triggers, approvals and what runs leave behind. Every row belongs to one user.",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    # Served from this installation: the page loads nothing from anywhere else.
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        name: f"agents.enums.{name}"
        for name in (
            *("AgentState", "ApprovalMode", "ApprovalStatus", "EventOutcome", "EventSeverity", "HaltState", "Mode"),
            *("NoticeKind", "Outcome", "Phase", "ProposalStatus", "Status", "TriggerKind"),
        )
    }
    | {
        "AskKind": "agents.api.ask.KINDS",
        "MemoryState": "agents.api.memories.STATES",
        "TriggerKindToMake": "agents.api.triggers.KINDS_TO_MAKE",
    },
}
