"""Django settings, read from the environment. docs/deployment.md lists each variable."""

from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static
from django.urls import reverse_lazy

from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from lqops.database import configured_database, is_embedded
from lqops.env import HOSTS, MIN_TOKEN_CHARS, Env, masked_forms, parse_database_url, private_database
from lqops.model_catalogue import check_task_time, configured_models
from lqops.oidc_config import APPS as OIDC_APPS
from lqops.oidc_config import configured_oidc

env = Env()

BASE_DIR = Path(__file__).resolve().parent.parent
_PACKAGE = BASE_DIR / "lqops"  # with links to docs, templates and samples; in a wheel, with the files themselves
SAMPLES_DIR = (_PACKAGE / "samples").resolve()
MANUAL_DIR = (_PACKAGE / "docs").resolve()
_data = env.data_folder(code=BASE_DIR)
VAR_DIR = env.private_folder(_data.path)
UNUSED_DATA_DIR = _data.unused  # of an earlier version

SECRET_KEY = env.secret("LQOPS_SECRET_KEY", kept_in=VAR_DIR)
DEBUG = env.flag("LQOPS_DEBUG", default=False)
ALLOWED_HOSTS = env.listed("LQOPS_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.listed("LQOPS_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "lqops.admin_site.ControlRoomConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "django_q",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "django_ace",
    "audit",
    "agents",
]

MIDDLEWARE = [
    "lqops.web.RequestId",
    "lqops.web.ContentSecurityPolicy",
    "lqops.web.Compress",
    "lqops.web.DatabaseUnavailable",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "lqops.sign_in.SecondFactor",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "lqops.urls"
ASGI_APPLICATION = "lqops.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_PACKAGE / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "lqops.sign_in.page_frame",
            ],
            "libraries": {"lqops": "agents.admin.display"},
        },
    },
]

# --- Database ---

_database = configured_database(env, VAR_DIR)
DATABASES = {"default": _database} if env.uses_data else {}
if env.uses_data and is_embedded(_database):
    private_database(_database["NAME"])
LQOPS_WEB_CONNECTIONS = env.whole("LQOPS_WEB_CONNECTIONS", 20, least=1)

# --- Queue: transport only. Our own rows find tasks that it loses and refuse those that it delivers twice ---

_broker = env.text("LQOPS_REDIS_URL")
_task_seconds = env.seconds("LQOPS_TASK_SECONDS", 600)
LQOPS_RUNS_PER_WORKER = env.whole("LQOPS_RUNS_PER_WORKER", 8, least=1)
LQOPS_STOP_SECONDS = env.seconds("LQOPS_STOP_SECONDS", 20)
Q_CLUSTER = {
    "name": "lqops",
    "workers": env.whole("LQOPS_WORKERS", 2, least=1),
    # A task is one slice of a session; it ends at the first boundary after LQOPS_SLICE_SECONDS.
    "timeout": int(_task_seconds),
    "retry": int(2 * _task_seconds),
    "queue_limit": 1,
    "poll": 0,  # the broker itself waits for the next task
    "save_limit": -1,
    "ack_failures": True,
    "max_attempts": 1,
    "catch_up": False,
    "label": "Queue",
    **({"redis": _broker} if _broker else {"orm": "default"}),
    "broker_class": f"agents.queue.{'redis.RedisBroker' if _broker else 'database.DatabaseBroker'}",
}

# --- Sign-in and transport ---

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_REDIRECT_URL = "admin:index"
LOGIN_URL = "account_login"
# The default is plain HTTP on loopback; LQOPS_HTTPS=1 turns on everything that needs a TLS proxy in front.
_https = env.flag("LQOPS_HTTPS", default=False)
SESSION_COOKIE_SECURE = _https
CSRF_COOKIE_SECURE = _https
SECURE_SSL_REDIRECT = _https
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = _https
SECURE_HSTS_PRELOAD = _https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # probes use plain HTTP

# --- Accounts: sign-in, second factors and browser sessions, by django-allauth (docs/operating.md) ---

# A session ends this long after its sign-in, whatever happens in it.
SESSION_COOKIE_AGE = 3_600 * env.whole("LQOPS_SESSION_HOURS", 12, least=1)
# Roles and permissions whose holders must have a second factor; superusers too, unless the list is empty
LQOPS_SECOND_FACTOR_FOR = env.listed("LQOPS_SECOND_FACTOR_FOR")

ACCOUNT_ADAPTER = "lqops.sign_in.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]  # the form to sign in has these; nobody can sign up
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = False  # tries are counted in the database, for all web processes together
ACCOUNT_FORMS = {"login": "lqops.sign_in.SignInForm", "reauthenticate": "lqops.sign_in.ConfirmPasswordForm"}
MFA_ADAPTER = "lqops.sign_in.FactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not _https  # browsers allow it on localhost only
MFA_TOTP_ISSUER = "lqops"
MFA_FORMS = {"authenticate": "lqops.sign_in.CodeForm", "reauthenticate": "lqops.sign_in.ConfirmCodeForm"}
USERSESSIONS_ADAPTER = "lqops.sign_in.SessionsAdapter"

# Single sign-on
LQOPS_OIDC = configured_oidc(env)
if LQOPS_OIDC:
    INSTALLED_APPS += OIDC_APPS
    SOCIALACCOUNT_PROVIDERS = LQOPS_OIDC.providers()
SOCIALACCOUNT_ADAPTER = "lqops.oidc.OidcAdapter"
SOCIALACCOUNT_LOGIN_ON_GET = True  # a form that redirects to the provider would need its address in form-action
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False  # lqops.oidc finds accounts by e-mail, in a stricter way

LANGUAGE_CODE = "en-gb"
FORMAT_MODULE_PATH = "lqops.formats"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "static/"
# Served from the packages: no collectstatic step that could be forgotten.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
MEDIA_ROOT = env.private_folder(VAR_DIR / "media")

UNFOLD = {
    "SITE_TITLE": "lqops",
    "SITE_HEADER": "lqops",
    "SITE_SUBHEADER": "mission control",
    "SITE_SYMBOL": "shield_with_heart",
    "SHOW_VIEW_ON_SITE": False,
    "ACCOUNT": {
        "navigation": [
            {"title": "Second factor", "link": reverse_lazy("mfa_index")},
            {"title": "Sessions", "link": reverse_lazy("usersessions_list")},
            {"title": "Change password", "link": reverse_lazy("admin:password_change")},
        ]
    },
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("lqops/icon.svg")},
    ],
    "STYLES": [lambda request: static("lqops/room.css")],
    "SCRIPTS": [
        lambda request: static("lqops/browser.js"),
        lambda request: static("lqops/room.js"),
        lambda request: static("lqops/keys.js"),
        lambda request: static("lqops/find.js"),
        lambda request: static("lqops/charts.js"),
    ],
    "SIDEBAR": {"navigation": "agents.admin.home.sections"},
    "COLORS": {
        "primary": {
            "50": "oklch(97% .014 254.6)",
            "100": "oklch(93.2% .032 255.6)",
            "200": "oklch(88.2% .059 254.1)",
            "300": "oklch(80.9% .105 251.8)",
            "400": "oklch(70.7% .165 254.6)",
            "500": "oklch(62.3% .214 259.8)",
            "600": "oklch(54.6% .245 262.9)",
            "700": "oklch(48.8% .243 264.4)",
            "800": "oklch(42.4% .199 265.6)",
            "900": "oklch(37.9% .146 265.5)",
            "950": "oklch(28.2% .091 267.9)",
        },
    },
}

# --- E-mail: copies of notifications. None are written while LQOPS_SMTP_HOST is empty ---

EMAIL_HOST = env.text("LQOPS_SMTP_HOST")
EMAIL_BACKEND = "agents.net.mail.EmailBackend" if EMAIL_HOST else "django.core.mail.backends.dummy.EmailBackend"
EMAIL_PORT = env.whole("LQOPS_SMTP_PORT", 587, least=1)
EMAIL_HOST_USER = env.text("LQOPS_SMTP_USER")
EMAIL_HOST_PASSWORD = env.optional_secret("LQOPS_SMTP_PASSWORD")
_smtp_tls = env.one_of("LQOPS_SMTP_TLS", "STARTTLS", ("STARTTLS", "TLS", "NONE"))
if EMAIL_HOST_PASSWORD and _smtp_tls == "NONE":
    raise ImproperlyConfigured("LQOPS_SMTP_TLS=NONE would send LQOPS_SMTP_PASSWORD unencrypted: use STARTTLS or TLS.")
EMAIL_USE_TLS = _smtp_tls == "STARTTLS"
EMAIL_USE_SSL = _smtp_tls == "TLS"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("LQOPS_EMAIL_FROM", "lqops@localhost")
ADDRESS_FILE = VAR_DIR / "address"  # of `manage.py up`, while it runs
_address = "http://127.0.0.1:8000"
with suppress(FileNotFoundError):
    _address = ADDRESS_FILE.read_text()
LQOPS_BASE_URL = env.web_address("LQOPS_BASE_URL", _address)

# --- API (docs/api.md) ---

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agents.api.access.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["agents.api.access.Access"],
    "DEFAULT_PARSER_CLASSES": ["agents.api.fields.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "agents.api.paging.PagePagination",
    "DEFAULT_FILTER_BACKENDS": ["agents.api.paging.StrictFilterBackend"],
    "DEFAULT_THROTTLE_CLASSES": ["agents.api.access.UserRateThrottle"],
    "DEFAULT_SCHEMA_CLASS": "agents.api.schema.ApiSchema",
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "agents.api.errors.exception_handler",
    "UNICODE_JSON": False,  # invisible and direction-changing characters are sent as escapes
}
LQOPS_API_RATES = {"read": "1200/min", "write": "300/min", "events": "120/min"}  # per user and web process
SPECTACULAR_SETTINGS = {
    "TITLE": "lqops",
    "DESCRIPTION": "Sessions, triggers, approvals and results. Every row belongs to one user.",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    # Served from this installation: the page loads nothing from other sites.
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        name: f"agents.enums.{name}"
        for name in (
            *("AgentState", "ApprovalMode", "ApprovalStatus", "EventOutcome", "EventSeverity", "HaltState", "Level"),
            *("Mode", "NoticeKind", "Outcome", "Phase", "ProposalStatus", "Status", "TriggerKind"),
        )
    }
    | {
        "AskKind": "agents.api.ask.KINDS",
        "ChannelShownKindEnum": "agents.enums.ChannelKind",
        "MemoryState": "agents.api.results.STATES",
        "ModelRole": "agents.api.models.ROLE_CHOICES",
        "TriggerKindToMake": "agents.api.triggers.KINDS_TO_MAKE",
    },
}

# --- Logs: to standard error, one line per record, with credentials masked ---

_format = {"TEXT": "OneLine", "JSON": "JsonLine"}[env.one_of("LQOPS_LOG_FORMAT", "TEXT", ("TEXT", "JSON"))]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"redact": {"()": "audit.redaction.RedactingFilter"}},
    "formatters": {"one_line": {"()": f"lqops.logs.{_format}"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "one_line", "filters": ["redact"]}},
    "root": {"handlers": ["console"], "level": "INFO"},
    # Django's own handlers would write the same records a second time, unmasked.
    "loggers": {
        "django": {"handlers": [], "level": "INFO"},
        "django.server": {"handlers": [], "propagate": True},
        "uvicorn": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "django-q": {"level": "WARNING"},
    },
}

# --- Metrics: /metrics exists for whoever has this token (docs/monitoring.md) ---

LQOPS_METRICS_TOKEN = env.optional_secret("LQOPS_METRICS_TOKEN")
if LQOPS_METRICS_TOKEN and len(LQOPS_METRICS_TOKEN) < MIN_TOKEN_CHARS:
    raise ImproperlyConfigured(
        f"LQOPS_METRICS_TOKEN has {len(LQOPS_METRICS_TOKEN)} characters; it needs {MIN_TOKEN_CHARS} or more."
    )

# --- Spans: sent to where the variables of OpenTelemetry say (docs/monitoring.md) ---

LQOPS_OTEL = env.flag("LQOPS_OTEL", default=False)
if LQOPS_OTEL and find_spec("opentelemetry") is None:
    raise ImproperlyConfigured(
        "LQOPS_OTEL=1 needs the extra `otel`: run pip install -e '.[otel]' in the folder of lqops."
    )

# --- Audit log and webhooks ---

LQOPS_CHECKPOINT_FILE = Path(env.text("LQOPS_CHECKPOINT_FILE") or VAR_DIR / "audit" / "checkpoints.jsonl")
if LQOPS_CHECKPOINT_FILE.exists() and not env.has_secret("LQOPS_AUDIT_KEY", kept_in=VAR_DIR):
    raise ImproperlyConfigured(
        f"{LQOPS_CHECKPOINT_FILE} was signed with a key that is missing: restore LQOPS_AUDIT_KEY (or audit_key in the "
        "data folder), or move the file away to start a new one."
    )
LQOPS_AUDIT_KEY = env.secret("LQOPS_AUDIT_KEY", kept_in=VAR_DIR)
LQOPS_WEBHOOK_KEY = env.secret("LQOPS_WEBHOOK_KEY", kept_in=VAR_DIR)

# --- Limits of runs, leases and approvals ---

_LEVELS = ("SAFE", "MONITORED", "CONTROLLED", "RESTRICTED", "PRIVILEGED")

LQOPS_DEFAULT_SESSION_CAP_USD = env.usd("LQOPS_DEFAULT_SESSION_CAP_USD", "5.00")
LQOPS_INSTALLATION_DAY_CAP_USD = env.usd("LQOPS_INSTALLATION_DAY_CAP_USD", "20.00")
LQOPS_LENDER_FLOOR_USD = env.usd("LQOPS_LENDER_FLOOR_USD", "0.10")
# What people who may not loosen make at most, where an admin has set them no ceiling of their own
LQOPS_CEILING_MODE = env.one_of("LQOPS_CEILING_MODE", "SEMI", ("AUTO", "SEMI", "MANUAL")).lower()
LQOPS_CEILING_LEVEL = env.one_of("LQOPS_CEILING_LEVEL", "RESTRICTED", _LEVELS)
LQOPS_CEILING_RUN_USD = env.usd("LQOPS_CEILING_RUN_USD", "20.00")
LQOPS_CONSOLE_CAP_USD = env.usd("LQOPS_CONSOLE_CAP_USD", "0.25")
LQOPS_MESSAGE_JUDGE_CAP_USD = env.usd("LQOPS_MESSAGE_JUDGE_CAP_USD", "0.10")
LQOPS_LEASE_SECONDS = env.seconds("LQOPS_LEASE_SECONDS", 20)
LQOPS_HEARTBEAT_SECONDS = env.seconds("LQOPS_HEARTBEAT_SECONDS", 5)
if LQOPS_HEARTBEAT_SECONDS * 2 > LQOPS_LEASE_SECONDS:
    raise ImproperlyConfigured(
        f"LQOPS_HEARTBEAT_SECONDS={LQOPS_HEARTBEAT_SECONDS:g} must be at most half of "
        f"LQOPS_LEASE_SECONDS={LQOPS_LEASE_SECONDS:g}, or workers lose their leases."
    )
LQOPS_SLICE_SECONDS = env.seconds("LQOPS_SLICE_SECONDS", 60)
LQOPS_MIN_FREE_MB = env.whole("LQOPS_MIN_FREE_MB", 500)
LQOPS_TICK_SECONDS = env.seconds("LQOPS_TICK_SECONDS", 0.5)
LQOPS_STALL_SECONDS = env.seconds("LQOPS_STALL_SECONDS", 30)
LQOPS_MAX_RUNNING_PER_USER = env.whole("LQOPS_MAX_RUNNING_PER_USER", 5, least=1)
LQOPS_MAX_RECOVERIES = env.whole("LQOPS_MAX_RECOVERIES", 3)
LQOPS_APPROVAL_LIFETIME = timedelta(seconds=env.seconds("LQOPS_APPROVAL_SECONDS", 86_400))

# --- The second pair of eyes (docs/operating.md) ---

LQOPS_FOUR_EYES = env.flag("LQOPS_FOUR_EYES", default=False)
LQOPS_FOUR_EYES_FROM = env.one_of("LQOPS_FOUR_EYES_FROM", "PRIVILEGED", _LEVELS)
LQOPS_QUORUM = env.whole("LQOPS_QUORUM", 1, least=1)
LQOPS_QUORUM_ROLE = env.text("LQOPS_QUORUM_ROLE").strip()
LQOPS_ESCALATE_TO = env.text("LQOPS_ESCALATE_TO").strip()
LQOPS_ESCALATE_AFTER = timedelta(minutes=env.whole("LQOPS_ESCALATE_MINUTES", 0))
if bool(LQOPS_ESCALATE_TO) != bool(LQOPS_ESCALATE_AFTER):
    raise ImproperlyConfigured("Set LQOPS_ESCALATE_TO (a role) and LQOPS_ESCALATE_MINUTES together, or neither.")
if LQOPS_ESCALATE_AFTER >= LQOPS_APPROVAL_LIFETIME:
    raise ImproperlyConfigured(
        f"LQOPS_ESCALATE_MINUTES={LQOPS_ESCALATE_AFTER.total_seconds() / 60:g} must be less than "
        f"LQOPS_APPROVAL_SECONDS={LQOPS_APPROVAL_LIFETIME.total_seconds():g}, or they expire before anybody is told."
    )

# --- Models: what there is, its prices and its roles (docs/models.md) ---

_models = configured_models(env)
LQOPS_MODELS = _models.declared
LQOPS_MODEL_ROLES = _models.roles
check_task_time(LQOPS_MODELS, slice_seconds=LQOPS_SLICE_SECONDS, task_seconds=_task_seconds)
LQOPS_MODEL_TRIES = env.whole("LQOPS_MODEL_TRIES", 3, least=1)
LQOPS_MODEL_WAIT_HOURS = env.whole("LQOPS_MODEL_WAIT_HOURS", 24)
LQOPS_RUN_WAIT_HOURS = env.whole("LQOPS_RUN_WAIT_HOURS", 24)
LQOPS_INPUT_TRIES = env.whole("LQOPS_INPUT_TRIES", 5, least=1)

# --- Memories in prompts, and precedents that nobody sees any more ---

LQOPS_MEMORY_TOKENS = env.whole("LQOPS_MEMORY_TOKENS", 5_000)
LQOPS_PRECEDENT_DAYS = env.whole("LQOPS_PRECEDENT_DAYS", 180)

# --- Retention (docs/retention.md) ---

LQOPS_FINDING_DAYS = env.whole("LQOPS_FINDING_DAYS", 90)
LQOPS_KEEP_RUNS_DAYS = env.whole("LQOPS_KEEP_RUNS_DAYS", 0)
LQOPS_ARCHIVE_DIR = Path(env.text("LQOPS_ARCHIVE_DIR") or VAR_DIR / "archive")

# --- Skills (docs/playbooks.md, docs/skills.md) ---

# Folders with a SKILL.md in each of their folders; the samples by default
_sample_skills = SAMPLES_DIR / "skills"
LQOPS_SKILL_FOLDERS = [Path(folder).absolute() for folder in env.listed("LQOPS_SKILL_FOLDERS")] or [
    folder for folder in (_sample_skills,) if folder.is_dir()
]

# Modules with callable skills of this installation, and hosts that skills may read without approval
LQOPS_SKILL_MODULES = env.listed("LQOPS_SKILL_MODULES")
LQOPS_SKILL_LIMITS = env.counts("LQOPS_SKILL_LIMITS", _LEVELS)
LQOPS_SKILL_HOSTS = env.listed("LQOPS_SKILL_HOSTS")

# Isolated skills where the system does not allow every protection: run with those that it allows, or refuse
LQOPS_SKILL_ISOLATION = env.one_of("LQOPS_SKILL_ISOLATION", "AVAILABLE", ("AVAILABLE", "STRICT"))

# Secrets that skills and sensors get by handle, {"$secret": "name"}: LQOPS_SECRET_<NAME> or LQOPS_SECRET_<NAME>_FILE;
# and the hosts that each may be sent to, besides those that admins name: LQOPS_SECRET_<NAME>_HOSTS
LQOPS_SECRETS = env.named_secrets("LQOPS_SECRET_", but=("KEY",), but_ending=HOSTS)
LQOPS_SECRET_HOSTS = env.hosts_of_secrets("LQOPS_SECRET_", LQOPS_SECRETS)

# Defaults of the step loop and its guardrails; an agent may override them
LQOPS_LOOP = env.mapping("LQOPS_LOOP")
LQOPS_GUARDRAILS = env.mapping("LQOPS_GUARDRAILS")
for _variable, _config in (("LQOPS_LOOP", LoopConfig), ("LQOPS_GUARDRAILS", GuardrailsConfig)):
    try:
        _config.merged(env.mapping(_variable))
    except ValueError as error:
        raise ImproperlyConfigured(f"{_variable}: {error}") from error

# --- Loops and sensors (docs/autonomy.md) ---

LQOPS_SENSOR_ROOTS = [Path(folder).absolute() for folder in env.listed("LQOPS_SENSOR_ROOTS")] or [VAR_DIR / "watched"]
LQOPS_SENSOR_SLICE_SECONDS = env.seconds("LQOPS_SENSOR_SLICE_SECONDS", 50)
# Databases that sensors may query, by name: LQOPS_SENSOR_DATABASE_<NAME> or LQOPS_SENSOR_DATABASE_<NAME>_FILE
LQOPS_SENSOR_DATABASES = env.named_secrets("LQOPS_SENSOR_DATABASE_")
_sensor_databases = [
    parse_database_url(f"LQOPS_SENSOR_DATABASE_{name.upper()}", url) for name, url in LQOPS_SENSOR_DATABASES.items()
]
LQOPS_EVENTS_KEPT = env.whole("LQOPS_EVENTS_KEPT", 1_000, least=1)
LQOPS_SAMPLE_METRICS_PORT = env.whole("LQOPS_SAMPLE_METRICS_PORT", 8765, least=1)

# --- Network and secrets ---

# Authorities that every outgoing TLS connection trusts besides the public ones
LQOPS_CA_FILE = env.certificates("LQOPS_CA_FILE")

# What may be fetched although it is not public: exact names or *.suffix, and networks in CIDR form
LQOPS_NET_ALLOW_HOSTS = env.listed("LQOPS_NET_ALLOW_HOSTS")
LQOPS_NET_ALLOW_NETWORKS = env.networks("LQOPS_NET_ALLOW_NETWORKS")

# Values that are masked everywhere, in every spelling
LQOPS_KNOWN_SECRETS = [
    *env.listed("LQOPS_KNOWN_SECRETS"),
    SECRET_KEY,
    LQOPS_AUDIT_KEY,
    LQOPS_WEBHOOK_KEY,
    _database.get("PASSWORD", ""),
    *(database.get("PASSWORD") or "" for database in _sensor_databases),
    EMAIL_HOST_PASSWORD,
    LQOPS_METRICS_TOKEN,
    LQOPS_OIDC.client_secret if LQOPS_OIDC else "",
    *(env.optional_secret(entry.get("key_env", "")) for entry in LQOPS_MODELS.values()),
    *env.named_secrets("LQOPS_MODEL_KEY_", but=("FILE",)).values(),  # keys of models that are declared in the admin
    *(form for value in LQOPS_SECRETS.values() for form in masked_forms(value)),
]
