"""Money in the database: exact on every database, and nothing but money."""

from decimal import Decimal

import pytest
from django import forms
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.migrations.writer import MigrationWriter
from django.db.models import Avg, ExpressionWrapper, F, Max, Sum, Value

from agents.ledger.budgets import micro
from agents.models import AgentSession, Budget, InferenceLog, ModelPrice, Trigger
from agents.models.fields import MicroUSDField
from tests.factories import NOW, make_price, make_session, make_trigger
from tests.table import every_row

USD = Decimal
FIELD = AgentSession._meta.get_field("max_cost_usd")
MOST = USD("9223372036854")

RUBBISH = ["NaN", "sNaN", "Infinity", "-Infinity", "-0.000001", "-1", "0.0000001", "1E-7", "1E+13", "1E+999999"]


# --- one amount ---


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (USD("0.000001"), 1),
        (USD("0.005"), 5_000),
        (USD("5.00"), 5_000_000),
        (USD("1E+2"), 100_000_000),
        (USD("-0"), 0),
        (MOST, int(MOST) * 10**6),
        (3, 3_000_000),
        ("0.25", 250_000),
        (None, None),
    ],
)
def test_an_amount_is_stored_in_whole_micro_dollars_and_comes_back_exact(given, stored):
    session = make_session(max_cost_usd=given)
    with connection.cursor() as cursor:
        cursor.execute("SELECT max_cost_usd FROM agents_agentsession WHERE id = %s", [session.pk])
        assert cursor.fetchone() == (stored,)
    session.refresh_from_db()
    assert session.max_cost_usd == (None if given is None else USD(given))
    assert given is None or session.max_cost_usd.as_tuple().exponent == -6


@pytest.mark.django_db
def test_small_and_zero_amounts_read_as_plain_decimals():
    session = make_session(max_cost_usd=USD("0.000001"))
    session.refresh_from_db()
    assert (str(session.max_cost_usd), str(session.cost_total_usd)) == ("0.000001", "0.000000")


@pytest.mark.django_db
@pytest.mark.parametrize("rubbish", RUBBISH)
def test_what_is_not_an_amount_never_reaches_the_database(rubbish):
    session = make_session()
    with pytest.raises(ValueError, match="max_cost_usd"), transaction.atomic():
        AgentSession.objects.filter(pk=session.pk).update(max_cost_usd=USD(rubbish))
    with pytest.raises(ValueError, match="max_cost_usd"):
        AgentSession.objects.filter(max_cost_usd__gt=USD(rubbish)).exists()
    session.refresh_from_db()
    assert session.max_cost_usd == 5


def test_more_places_than_decimal_arithmetic_keeps_are_seen():
    with pytest.raises(ValueError, match="more than 6 places"):
        FIELD.get_prep_value(USD("1.0000000000000000000000000000000000000001"))


@every_row("rubbish", [0.005, 1.0, float("nan"), "five", "", "0,5", b"1", object(), [], {}])
def test_floats_and_rubbish_are_refused(rubbish):
    with pytest.raises(ValidationError):
        FIELD.to_python(rubbish)
    with pytest.raises(ValidationError):
        FIELD.get_prep_value(rubbish)


@pytest.mark.django_db
@every_row("rubbish", [USD(rubbish) for rubbish in RUBBISH] + [0.5])
def test_validation_refuses_what_the_database_would(rubbish):
    trigger = make_trigger()
    trigger.max_cost_usd = rubbish
    with pytest.raises(ValidationError) as refused:
        trigger.full_clean()
    assert list(refused.value.message_dict) == ["max_cost_usd"]


@pytest.mark.django_db
def test_validation_lets_amounts_and_their_absence_pass():
    trigger = make_trigger(max_cost_usd=USD("0.000001"))
    trigger.full_clean()
    trigger.max_cost_usd = None
    trigger.full_clean()


# --- arithmetic inside the database ---


def admit(session, price):
    """One conditional UPDATE, as for a reservation."""
    projected = F("cost_total_usd") + F("cost_reserved_usd") + micro(price)
    return AgentSession.objects.filter(pk=session.pk, max_cost_usd__gte=projected).update(
        cost_reserved_usd=F("cost_reserved_usd") + micro(price)
    )


@pytest.mark.django_db
def test_a_cap_for_37_calls_admits_exactly_37():
    session = make_session(max_cost_usd=37 * USD("0.005"))
    assert sum(admit(session, USD("0.005")) for _ in range(50)) == 37
    session.refresh_from_db()
    assert session.cost_reserved_usd == session.max_cost_usd == USD("0.185")


@pytest.mark.django_db
def test_sums_are_exact_where_floats_are_not():
    rows = [InferenceLog(model="m", purpose="chat", outcome="success", cost_estimate=USD("0.1")) for _ in range(10)]
    InferenceLog.objects.bulk_create(rows)
    answer = InferenceLog.objects.aggregate(total=Sum("cost_estimate"), most=Max("cost_estimate"))
    assert answer == {"total": USD(1), "most": USD("0.1")}
    assert {type(amount) for amount in answer.values()} == {Decimal}


@pytest.mark.django_db
def test_sums_pass_over_nulls_and_are_null_without_rows():
    assert InferenceLog.objects.aggregate(total=Sum("cost_estimate"))["total"] is None
    for cost in (None, USD("0.02")):
        InferenceLog.objects.create(model="m", purpose="chat", outcome="success", cost_estimate=cost)
    assert InferenceLog.objects.aggregate(total=Sum("cost_estimate"))["total"] == USD("0.02")
    assert InferenceLog.objects.filter(cost_estimate__isnull=True).count() == 1


@pytest.mark.django_db
def test_a_computed_column_is_money_when_it_says_so():
    make_session(cost_total_usd=USD("0.1"), cost_reserved_usd=USD("0.2"))
    both = ExpressionWrapper(F("cost_total_usd") + F("cost_reserved_usd"), output_field=MicroUSDField())
    assert AgentSession.objects.annotate(both=both).get().both == USD("0.3")
    assert AgentSession.objects.annotate(fixed=micro(USD("0.4"))).get().fixed == USD("0.4")


@pytest.mark.django_db
def test_averages_are_not_money():
    """The database's AVG is a float of micro-dollars: means are made in Python, from exact amounts."""
    InferenceLog.objects.create(model="m", purpose="chat", outcome="success", cost_estimate=USD("0.02"))
    assert InferenceLog.objects.aggregate(mean=Avg("cost_estimate"))["mean"] == pytest.approx(20_000)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("lookup", "found"),
    [
        ({"max_cost_usd": USD("0.005")}, True),
        ({"max_cost_usd": "0.005"}, True),
        ({"max_cost_usd__lt": USD("0.005001")}, True),
        ({"max_cost_usd__gt": USD("0.005")}, False),
        ({"max_cost_usd__in": [USD("0.004"), USD("0.005")]}, True),
        ({"max_cost_usd__range": (USD(0), USD("0.004999"))}, False),
        ({"max_cost_usd__gt": F("cost_total_usd")}, True),
        ({"max_cost_usd": Value(USD("0.005"), output_field=MicroUSDField())}, True),
    ],
)
def test_rows_are_found_by_dollars(lookup, found):
    make_session(max_cost_usd=USD("0.005"))
    assert AgentSession.objects.filter(**lookup).exists() is found


@pytest.mark.django_db
def test_an_expression_is_left_to_prepare_its_own_operands():
    expression = F("cost_total_usd")
    assert FIELD.get_prep_value(expression) is expression
    session = make_session(cost_total_usd=USD("0.25"))
    session.cost_actual_usd = F("cost_total_usd") + micro(USD("0.5"))
    session.save()
    session.refresh_from_db()
    assert session.cost_actual_usd == USD("0.75")


@pytest.mark.django_db
def test_books_cannot_fall_below_zero():
    budget = Budget.objects.create(scope="agent", subject_id=1, day=NOW.date(), held_usd=USD("0.1"))
    with pytest.raises(IntegrityError), transaction.atomic():
        Budget.objects.filter(pk=budget.pk).update(held_usd=F("held_usd") - micro(USD("0.100001")))


# --- forms ---


class TriggerForm(forms.ModelForm):
    class Meta:
        model = Trigger
        fields = ["max_cost_usd"]


class PriceForm(forms.ModelForm):
    class Meta:
        model = ModelPrice
        fields = ["input_usd"]


@every_row(
    ("typed", "amount"),
    [
        ("0", "0"),
        ("0.0001", "0.0001"),
        ("5", "5"),
        ("5.000000", "5"),
        ("0E-9", "0"),
        ("999999999.9999", "999999999.9999"),
    ],
)
def test_a_form_takes_up_to_four_places(typed, amount):
    form = TriggerForm({"max_cost_usd": typed})
    assert form.is_valid(), form.errors
    assert form.cleaned_data["max_cost_usd"] == USD(amount)


@every_row(
    "typed",
    ["0.00001", "0.000001", "-1", "-0.0001", "NaN", "sNaN", "Infinity", "five", "1000000000", "1.00000000000000001"],
)
def test_a_form_refuses_more_places_negatives_and_rubbish(typed):
    assert list(TriggerForm({"max_cost_usd": typed}).errors) == ["max_cost_usd"]


def test_an_empty_field_is_no_cap_where_there_may_be_none():
    form = TriggerForm({"max_cost_usd": ""})
    assert form.is_valid()
    assert form.cleaned_data["max_cost_usd"] is None
    assert not PriceForm({"input_usd": ""}).is_valid()


@pytest.mark.django_db
def test_a_stored_amount_can_be_saved_again_as_it_is_shown():
    trigger = make_trigger(max_cost_usd=USD("0.25"))
    trigger.refresh_from_db()
    shown = TriggerForm(instance=trigger)["max_cost_usd"].value()
    assert str(shown) == "0.25"
    form = TriggerForm({"max_cost_usd": str(shown)}, instance=trigger)
    assert form.is_valid()
    assert not form.has_changed()
    assert form.save().max_cost_usd == USD("0.25")


def test_the_form_field_is_described_by_the_model_field():
    field = FIELD.formfield(widget=forms.TextInput, label="Cap")
    assert (field.label, type(field.widget), field.required) == ("Cap", forms.TextInput, False)
    price = ModelPrice._meta.get_field("input_usd").formfield()
    assert (price.label, price.required, price.help_text) == ("Input usd", True, ModelPrice.input_usd.field.help_text)
    assert forms.NumberInput in type(price.widget).__mro__
    assert price.widget.attrs == {"step": "0.0001", "min": USD(0)}


# --- on the way out and in ---


@pytest.mark.django_db
@pytest.mark.parametrize("format_", ["json", "jsonl", "xml", "python"])
@pytest.mark.parametrize("cap", [USD("0.123456"), None])
def test_rows_survive_serialisation(format_, cap):
    trigger = make_trigger(max_cost_usd=cap)
    trigger.refresh_from_db()
    written = serializers.serialize(format_, [trigger])
    Trigger.objects.all().delete()
    for row in serializers.deserialize(format_, written):
        row.save()
    assert Trigger.objects.get().max_cost_usd == cap


def test_an_amount_as_text():
    assert FIELD.value_to_string(AgentSession(max_cost_usd=USD("0.005"))) == "0.005"


def test_migrations_name_the_field_itself():
    name, path, args, kwargs = ModelPrice._meta.get_field("output_usd").deconstruct()
    assert (name, path, args) == ("output_usd", "agents.models.fields.MicroUSDField", [])
    assert set(kwargs) == {"help_text"}
    text, imports = MigrationWriter.serialize(MicroUSDField(null=True, default=0))
    assert text == "agents.models.fields.MicroUSDField(default=0, null=True)"
    assert imports == {"import agents.models.fields"}


@pytest.mark.django_db
def test_the_column_is_a_64_bit_integer():
    make_price()
    assert MicroUSDField().get_internal_type() == "BigIntegerField"
    assert FIELD.db_type(connection) == "bigint"
