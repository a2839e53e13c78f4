"""The page of the models: facts, states, tests, changes, and what it never shows."""

import html
from datetime import timedelta

import pytest
from django.urls import reverse

from agents.conf import clock
from agents.definitions.catalogue import declaration_of
from agents.enums import Outcome, Status
from agents.models import AgentSession, DeclaredModel, InferenceLog, ModelOutage, ModelPrice, SuspendedModel
from agents.sessions.model_facts import models_known
from audit.models import AuditEvent
from tests.agents.admin.rows import make_call, page, sign_in, text_of
from tests.factories import make_session, make_user

pytestmark = pytest.mark.django_db
PAGE = "admin:models"
DECLARED = {
    "provider": "openai_compatible",
    "url": "https://models.example/s3cret/v1?key=s3cret",
    "key_env": "THE_KEY",
    "input_usd": "1",
    "output_usd": "2",
    "max_tokens": {"default": 8192, "judge": 512},
    "fallback": ["offline"],
}


@pytest.fixture
def declared(settings, monkeypatch):
    monkeypatch.setenv("THE_KEY", "k-s3cret")
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "big/1": dict(DECLARED)}
    settings.LQOPS_MODEL_ROLES = {"main": ["big/1"], "small": ["offline"], "judges": ["offline", "big/1"]}


@pytest.fixture
def _no_renewals(monkeypatch):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)  # it would wait for the test's transaction


def known(model="big/1"):
    return next(one for one in models_known(clock()) if one.model == model)


def log(outcome, **more):
    fields = {"model": "big/1", "purpose": "test", "latency_ms": 1500, "cost_estimate": "0.25", "created_at": clock()}
    return InferenceLog.objects.create(**{**fields, "outcome": outcome, **more})


def test_page_shows_facts_and_no_secret(client, declared):
    sign_in(client, "viewer")
    log(Outcome.SUCCESS, created_at=clock() - timedelta(days=2))
    found = text_of(client.get(reverse(PAGE)))
    for words in (
        "answered 2 days ago",
        "models.example",
        "THE_KEY",
        "is set",
        "main, judges, console",
        "$1.00 input",
        "(declared)",
        "1.5 s",
        "0 calls,",
    ):
        assert words in found, words
    assert "s3cret" not in found
    assert "Test</button>" not in found
    assert "Set price" not in found
    assert "Edit" not in found


def test_empty_installation_says_how_to_declare_a_model(client):
    sign_in(client)
    assert "LQOPS_MODEL_URL, LQOPS_MODEL_NAME and its prices" in text_of(client.get(reverse(PAGE)))


def test_price_row_wins_and_is_named(client, declared):
    assert known().prices_from == "declared"
    row = ModelPrice.objects.create(model="big/1", input_usd=7, output_usd=8)
    ModelPrice.objects.create(model="big", input_usd=70, output_usd=80)
    assert (known().prices_from, known().price_row) == ("price row", row)
    sign_in(client)
    found = text_of(client.get(reverse(PAGE)))
    assert "$7.00 input" in found
    assert reverse("admin:agents_modelprice_change", args=[row.pk]) in found
    assert f"{reverse('admin:agents_modelprice_add')}?model=offline" in found


def test_states_follow_from_facts(declared, settings):
    assert (known().state, known().state_at) == ("never asked", None)
    answered = log(Outcome.SUCCESS)
    log(Outcome.ERROR)  # halted
    assert (known().state, known().state_at) == ("answered", answered.created_at)
    session = make_session(Status.RUNNING)
    failed = log(Outcome.GATEWAY_ERROR, session=session)
    assert (known().state, known().state_at) == ("failed", failed.created_at)
    make_call(session, model="big/1", detail="key_refused")
    assert known().state == "key refused"
    away = ModelOutage.objects.create(model="big/1", since=clock(), next_try_at=clock())
    assert (known().state, known().state_at) == ("away", away.since)
    settings.LQOPS_MODELS["big/1"].pop("input_usd")
    assert known().state == "no price"
    SuspendedModel.objects.create(model="big/1", bound_usd=1, actual_usd=2)
    assert known().state == "suspended"
    assert known("offline").state == "never asked"


def test_costs_of_yesterday_do_not_count(declared):
    log(Outcome.SUCCESS, created_at=clock() - timedelta(days=1))
    log(Outcome.SUCCESS, cost_estimate=None)
    assert (known().calls_today, known().cost_today_usd) == (1, 0)


@pytest.mark.usefixtures("_no_renewals")
def test_test_asks_the_model_and_shows_what_came_back(client):
    by = sign_in(client, "operator")
    found = text_of(client.post(reverse(PAGE), {"act": "test", "model": "offline"}))
    assert "Test: fit for its roles" in found
    for words in ("Findings read: 1, of which 1 quote the contract.", "Score read: ", "Verdict read: supported."):
        assert words in found
    assert "and ends after 60 seconds" in found
    session = AgentSession.objects.get()
    assert session.owner == by
    event = AuditEvent.objects.get(kind="model.tested")
    assert (event.actor, event.details) == (
        f"user:{by.pk}",
        {"model": "offline", "session_id": str(session.public_id)},
    )
    assert known("offline").state == "answered"


@pytest.mark.usefixtures("_no_renewals")
def test_answered_test_ends_an_outage(client):
    sign_in(client, "operator")
    later = clock() + timedelta(hours=1)
    ModelOutage.objects.create(model="offline", since=clock(), next_try_at=later)
    client.post(reverse(PAGE), {"act": "test", "model": "offline"})
    assert not ModelOutage.objects.exists()


def test_refusals_are_told(client):
    sign_in(client, "operator")
    assert "There is no model nothing." in text_of(client.post(reverse(PAGE), {"act": "test", "model": "nothing"}))
    assert "is not away" in text_of(client.post(reverse(PAGE), {"act": "try_now", "model": "offline"}))
    assert not AgentSession.objects.exists()


def test_try_now_makes_the_model_due_and_is_recorded(client):
    by = sign_in(client, "operator")
    later = clock() + timedelta(hours=1)
    ModelOutage.objects.create(model="offline", since=clock(), next_try_at=later, error="503 from its server")
    assert "Try now" in (shown := text_of(client.get(reverse(PAGE))))
    assert "503 from its server" in shown
    assert "No run waits for it" in text_of(client.post(reverse(PAGE), {"act": "try_now", "model": "offline"}))
    assert ModelOutage.objects.get().next_try_at < later
    assert AuditEvent.objects.get(kind="model.try_now").actor == f"user:{by.pk}"


def test_suspended_model_can_be_accepted_from_here(client):
    sign_in(client)
    row = SuspendedModel.objects.create(model="offline", bound_usd=1, actual_usd=2)
    link = reverse("admin:agents_suspendedmodel_act", args=[row.pk, "accept"])
    assert link in text_of(client.get(reverse(PAGE)))
    accepted = client.post(link, {"confirmed": "1"}, follow=True)
    assert accepted.redirect_chain == [(reverse("admin:agents_suspendedmodel_changelist"), 302)]
    assert "accepted again" in text_of(accepted)
    row.save(force_insert=True)
    sign_in(client, "operator")
    assert link not in text_of(client.get(reverse(PAGE)))


def test_page_needs_view_and_acts_need_an_operator(client):
    client.force_login(make_user(is_staff=True))
    assert client.get(reverse(PAGE)).status_code == 403
    sign_in(client, "viewer")
    for act in ("test", "try_now"):
        assert client.post(reverse(PAGE), {"act": act, "model": "offline"}).status_code == 403


def test_health_names_each_model_with_its_state(client, declared):
    sign_in(client, "viewer")
    ModelOutage.objects.create(model="big/1", since=clock() - timedelta(days=2), next_try_at=clock())
    found = text_of(client.get(reverse("admin:health")))
    assert "big/1" in found
    assert "away since 2 days ago" in found
    assert f"{reverse(PAGE)}#model-" in found


# --- Changing models ---


def request_fields(*rows):
    """Return the further request fields of these names, types and values, as the page posts them."""
    given = {"fields-TOTAL_FORMS": len(rows), "fields-INITIAL_FORMS": 0}
    names = ("name", "kind", "value", "DELETE")
    return given | {
        f"fields-{at}-{name}": value for at, row in enumerate(rows) for name, value in zip(names, row, strict=False)
    }


NO_FIELDS = request_fields()
ADDED = {**NO_FIELDS, "model": "new/1", "provider": "openai_compatible", "url": "https://93.184.216.34/v1"}


def shown(client):
    return text_of(client.get(reverse(PAGE)))


def test_added_model_is_in_force_and_asks_for_its_price(client, declared):
    by = sign_in(client, "admin")
    answer = client.post(page(DeclaredModel, "add"), {**ADDED, "roles": "console", "max_tokens": "512"}, follow=True)
    found = text_of(answer)
    assert "Model new/1 saved." in found
    assert f"{reverse('admin:agents_modelprice_add')}?model=new/1" in found
    assert (known("new/1").state, known("new/1").origin, known("new/1").roles) == ("no price", "set here", ("console",))
    assert known().roles == ("main", "judges")
    event = AuditEvent.objects.get(kind="model.declared")
    assert (event.actor, event.details["host"], event.details["roles"]) == (
        f"user:{by.pk}",
        "93.184.216.34",
        ["console"],
    )
    ModelPrice.objects.create(model="new/1", input_usd=1, output_usd=1)
    assert known("new/1").state == "never asked"


def test_change_says_what_is_set_here_and_what_the_file_says(client, declared):
    sign_in(client, "admin")
    form = text_of(client.get(page(DeclaredModel, "add"), {"model": "big/1"}))
    assert "The file says: models.example." in form
    assert "The file says: main, judges." in form
    assert "s3cret" not in form
    given = {
        **NO_FIELDS,
        "model": "big/1",
        "max_tokens": "100",
        "max_tokens_judge": "50",
        "fallback": "none",
        "context_window": "9000",
    }
    client.post(page(DeclaredModel, "add"), given)
    one = known()
    assert (one.origin, one.set_here) == ("file, changed here", {"max_tokens", "fallback", "context_window"})
    assert (one.max_tokens, one.fallback, one.prices["input_usd"]) == ({"default": 100, "judge": 50}, (), "1")
    row = DeclaredModel.objects.get()
    form = text_of(client.get(page(DeclaredModel, "change", row.pk)))
    assert "Set here. The file says: offline." in form
    assert 'value="none"' in form
    assert page(DeclaredModel, "change", row.pk) in shown(client)
    client.post(page(DeclaredModel, "change", row.pk), {**NO_FIELDS, "context_window": "10000", "model": "another"})
    assert (known().set_here, known().context_window) == ({"context_window"}, 10_000)
    client.post(page(DeclaredModel, "act", row.pk, "delete"), {"confirmed": "1"})
    assert (known().origin, known().context_window, known().fallback) == ("file", None, ("offline",))


@pytest.mark.parametrize(
    ("given", "in_force"),
    [
        ({"max_tokens_simulation": "300"}, {"default": 8192, "judge": 512, "simulation": 300}),
        ({"max_tokens": "100"}, {"default": 100, "judge": 512}),
    ],
)
def test_maximum_answers_that_are_not_set_here_stay_the_files(client, declared, given, in_force):
    sign_in(client, "admin")
    form = client.get(page(DeclaredModel, "add"), {"model": "big/1"}).context["form"]
    assert form.fields["max_tokens"].help_text.endswith("The file says: 8192.")
    assert form.fields["max_tokens_judge"].help_text == "The file says: 512."
    client.post(page(DeclaredModel, "add"), {**NO_FIELDS, "model": "big/1", **given})
    assert known().max_tokens == in_force


def test_maximum_answer_says_which_purposes_it_is_for(client, declared):
    sign_in(client, "admin")
    form = text_of(client.get(page(DeclaredModel, "add")))
    assert "Tokens of an answer in analyses, steps, turns and chats." in form
    assert "Chat and Run (analyses, steps and turns) get the maximum answer above, and the others what their" in form


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "Nothing is set: fill in what is to differ"),
        ({"url": "ftp://x"}, "does not start with http"),
        ({"url": "http://127.0.0.1:8080/v1"}, "only the configuration can allow it (LQOPS_NET_ALLOW_HOSTS"),
        ({"key_env": "LQOPS_SECRET_KEY"}, "name a variable LQOPS_MODEL_KEY_… that holds the key, or THE_KEY"),
        ({"max_tokens": "0"}, "max_tokens.default is 0: it must be a whole number from 1"),
        ({"max_tokens": "many"}, "Enter a whole number."),
        ({"max_tokens_judge": "0"}, "greater than or equal to 1"),
        ({"reasoning_tokens": "2048"}, "Leave this empty, or choose “Yes, with a budget of tokens” above."),
        ({"reasoning_tokens": "10"}, "greater than or equal to 1024"),
        ({"fallback": "nobody"}, "is not another model; declared: offline"),
        ({"roles": "chief"}, "it must be a list of main, small, judges, console"),
    ],
)
def test_error_stands_beside_its_field_and_nothing_is_saved(client, declared, given, says):
    sign_in(client, "admin")
    found = text_of(client.post(page(DeclaredModel, "add"), {**NO_FIELDS, "model": "big/1", **given}))
    assert says in html.unescape(found)
    [key] = given or [""]
    place = found.index('role="alert"')
    assert not key or found.rindex('name="', 0, place) == found.index(f'name="{key}"')
    assert not DeclaredModel.objects.exists()


@pytest.mark.parametrize(
    ("given", "kept", "shown_as"),
    [
        ({"reasoning": "no"}, False, ("no", None)),
        ({"reasoning": "yes"}, True, ("yes", None)),
        ({"reasoning": "unopened"}, "unopened", ("unopened", None)),
    ],
)
def test_thinking_is_chosen_from_a_list(client, declared, given, kept, shown_as):
    sign_in(client, "admin")
    client.post(page(DeclaredModel, "add"), {**NO_FIELDS, "model": "big/1", **given})
    row = DeclaredModel.objects.get()
    assert row.settings == {"reasoning": kept}
    form = client.get(page(DeclaredModel, "change", row.pk)).context["form"]
    assert (form["reasoning"].value(), form["reasoning_tokens"].value()) == shown_as


def test_budget_for_thinking_is_a_number_of_tokens(client, declared):
    sign_in(client, "admin")
    given = {**ADDED, "provider": "anthropic", "reasoning": "tokens"}
    assert "Give the number of tokens." in text_of(client.post(page(DeclaredModel, "add"), given))
    client.post(page(DeclaredModel, "add"), {**given, "reasoning_tokens": "2048"})
    row = DeclaredModel.objects.get()
    assert row.settings["reasoning"] == 2048
    form = client.get(page(DeclaredModel, "change", row.pk)).context["form"]
    assert (form["reasoning"].value(), form["reasoning_tokens"].value()) == ("tokens", 2048)


FIELDS = {"suffix": "a\n yes ", "min_k": 7, "top_p": 0.5, "echo": True, "cache": False, "provider": {"order": ["x", 1]}}
FIELD_ROWS = (
    ("suffix", "text", "a\r\n yes "),
    ("min_k", "number", " 7 "),
    ("top_p", "number", "0.5"),
    ("echo", "flag", "Yes"),
    ("cache", "flag", "false"),
    ("provider", "json", '{"order": ["x", 1]}'),
)


def test_request_fields_are_rows_with_types(client, declared):
    sign_in(client, "admin")
    rows = (*FIELD_ROWS, ("", "number", ""), ("gone", "number", "1", "on"))
    client.post(page(DeclaredModel, "add"), {"model": "big/1", **request_fields(*rows)})
    row = DeclaredModel.objects.get()
    assert row.settings == {"extra": FIELDS}
    url = page(DeclaredModel, "change", row.pk)

    shown = client.get(url)
    forms = shown.context["form"].request_fields
    sent = [(one["name"].value(), one["kind"].value(), one["value"].value()) for one in forms]
    assert 'data-adds="fields"' in text_of(shown)
    assert client.post(url, {**request_fields(*sent), "context_window": "9000"}).status_code == 302
    row.refresh_from_db()
    assert row.settings == {"context_window": 9000, "extra": FIELDS}


def test_request_fields_of_the_file_stay_unless_a_row_replaces_or_drops_them(
    client, declared, settings, django_capture_on_commit_callbacks
):
    settings.LQOPS_MODELS["big/1"]["extra"] = {"top_k": 4, "suffix": "s3cret", "min_k": 1}
    sign_in(client, "admin")
    found = text_of(client.get(page(DeclaredModel, "add"), {"model": "big/1"}))
    assert "The file says: min_k, suffix, top_k." in found
    assert "s3cret" not in found
    rows = request_fields(("top_k", "none", ""), ("min_k", "number", "2"), ("echo", "flag", "no"))
    with django_capture_on_commit_callbacks(execute=True):
        client.post(page(DeclaredModel, "add"), {"model": "big/1", **rows})
    assert declaration_of("big/1")["extra"] == {"suffix": "s3cret", "min_k": 2, "echo": False}
    shown = client.get(page(DeclaredModel, "change", DeclaredModel.objects.get().pk)).context["form"].row_forms
    named = [(row["name"].value(), row["kind"].value()) for row in shown if row["name"].value()]
    assert named == [("echo", "flag"), ("min_k", "number"), ("top_k", "none")]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("b", "number", "many"), "'many' is not a number. Write it as 200 or 0.7."),
        (("b", "number", "true"), "'true' is not a number."),
        (("b", "number", "1e999"), "'1e999' is not a number."),
        (("b", "number", "NaN"), "'NaN' is not a number."),
        (("b", "number", "[" * 90_000), "is not a number."),
        (("b", "flag", "perhaps"), "Write yes or no."),
        (("b", "json", "{broken"), "This is not valid JSON: Expecting property name"),
        (("b", "json", '{"a": 1, "a": 2}'), "This is not valid JSON"),
        (("b", "json", "null"), "Choose the type “Not sent” instead of null."),
        (("b", "none", "1"), "Leave this empty: the field is not sent."),
        (("b", "date", "1"), "date is not one of the available choices"),
        (("", "text", "x"), "This field is required."),
        (("a", "text", "x"), "a is in a row above already."),
        (("stream", "flag", "no"), "extra.stream: lqops sets this field of a request itself; take it out."),
        (("key", "text", "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD"), "extra.key looks like a secret"),
    ],
)
def test_error_of_a_request_field_stands_at_its_row(client, declared, wrong, says):
    sign_in(client, "admin")
    rows = request_fields(("a", "number", "1"), wrong, ("c", "number", "1"))
    answer = client.post(page(DeclaredModel, "add"), {"model": "big/1", **rows})
    form = answer.context["form"]
    assert "Correct the request fields below." in form.non_field_errors()
    assert [bool(row.errors) for row in form.request_fields] == [False, True, False]
    assert says in html.unescape(text_of(answer))
    assert not DeclaredModel.objects.exists()


def test_removed_and_emptied_rows_count_for_nothing(client, declared):
    sign_in(client, "admin")
    removed = [("a", "number", "1", "on"), ("", "number", ""), ("", "text", "")]
    wrong = request_fields(*removed, ("a", "number", "2"), ("b", "number", "many"))
    form = client.post(page(DeclaredModel, "add"), {"model": "big/1", **wrong}).context["form"]
    assert [list(row.errors) for row in form.request_fields][3:] == [[], ["value"]]
    given = {**request_fields(*removed, ("a", "number", "2")), "fields-INITIAL_FORMS": 3}
    client.post(page(DeclaredModel, "add"), {"model": "big/1", **given})
    assert DeclaredModel.objects.get().settings == {"extra": {"a": 2}}


def test_refusal_stands_at_the_row_with_the_whole_name(client, declared):
    sign_in(client, "admin")
    secret = "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    rows = request_fields(("key", "number", "1"), ("key.b", "text", secret))
    form = client.post(page(DeclaredModel, "add"), {"model": "big/1", **rows}).context["form"]
    assert [bool(row.errors) for row in form.request_fields] == [False, True]


def test_text_with_control_characters_is_kept_as_it_is(client, declared):
    sign_in(client, "admin")
    row = DeclaredModel.objects.create(
        model="big/1", settings={"extra": {"prefix": "\r\n\r\n", "suffix": "a\nb"}}, changed_at=clock()
    )
    url = page(DeclaredModel, "change", row.pk)
    forms = client.get(url).context["form"].request_fields
    sent = [(one["name"].value(), one["kind"].value(), one["value"].value()) for one in forms]
    client.post(url, {**request_fields(*sent), "context_window": "9000"})
    row.refresh_from_db()
    assert row.settings == {"context_window": 9000, "extra": {"prefix": "\r\n\r\n", "suffix": "a\nb"}}


def test_page_without_its_rows_saves_nothing(client, declared):
    sign_in(client, "admin")
    answer = client.post(page(DeclaredModel, "add"), {"model": "big/1", "context_window": "9000"})
    assert "Correct the request fields below." in text_of(answer)
    assert not DeclaredModel.objects.exists()


def test_viewer_cannot_change_request_fields(client, declared):
    row = DeclaredModel.objects.create(model="big/1", settings={"extra": {"top_k": 3}}, changed_at=clock())
    sign_in(client, "viewer")
    answer = client.get(page(DeclaredModel, "change", row.pk))
    [field] = answer.context["form"].request_fields
    assert all(one.disabled for one in field.fields.values())
    assert "Add request field" not in text_of(answer)


def test_viewer_sees_the_host_of_an_address_that_was_set_here(client, declared):
    row = DeclaredModel.objects.create(
        model="big/1", settings={"url": "https://93.184.216.34/s3cret/v1"}, changed_at=clock()
    )
    sign_in(client, "viewer")
    found = text_of(client.get(page(DeclaredModel, "change", row.pk)))
    assert "s3cret" not in found
    assert "93.184.216.34" in found
    assert client.post(page(DeclaredModel, "change", row.pk), {"url": "https://x/v1"}).status_code == 403
    sign_in(client, "operator")
    assert client.get(page(DeclaredModel, "add")).status_code == 403


def test_rows_that_the_file_no_longer_fits_are_named(client, declared, settings):
    DeclaredModel.objects.create(model="big/1", settings={"fallback": ["gone"]}, changed_at=clock())
    DeclaredModel.objects.create(model="bygone", settings={"context_window": 9}, changed_at=clock())
    sign_in(client)
    found = html.unescape(shown(client))
    assert "not in force, the models file applies: fallback: 'gone' is not another model" in found
    assert "This model, which is set here, cannot be used: provider must be one of" in found
    assert (known().origin, known().fallback, known().is_bad) == ("file", ("offline",), True)
