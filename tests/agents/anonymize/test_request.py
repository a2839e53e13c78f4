"""Requests and replies: messages and past tool calls are hidden, protocol fields stay."""

import json

import pytest

from agents.anonymize import Anonymizer
from agents.policy.costs import input_bound
from agents.types import ModelRequest, Price
from tests.table import every_row

CANARIES = ["Anna Müller", "a@example.com", "4455667788", "Zürich Nord AG", "+49 30 1234567", "M\\u00fcller"]
TOOLS = ({"type": "function", "function": {"name": "mail", "description": "Ask Mr Weber"}},)
SCHEMA = {"type": "object", "description": "for Mr Weber"}
REQUEST = ModelRequest(
    model="m",
    messages=(
        {"role": "system", "content": "You help Anna Müller."},
        {
            "role": "user",
            "name": "Anna Müller",
            "content": [{"type": "text", "text": "I am a@example.com"}, "Anna Müller"],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_user",
                    "type": "function",
                    "function": {
                        "name": "user",
                        "arguments": '{"account": 4455667788, "name":  "Anna M\\u00fcller", "n": 1.10, "k": [1234567]}',
                    },
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_user", "content": '{"firm": "Zürich Nord AG", "x": 1.50}'},
        {"role": "tool", "tool_call_id": "call_user", "content": "[not json a@example.com, +49 30 1234567"},
    ),
    tools=TOOLS,
    response_schema=SCHEMA,
)


@pytest.fixture
def anonymizer():
    return Anonymizer(["Anna Müller", "user", "system"])


def test_a_sent_request_holds_no_canary(anonymizer):
    hidden = anonymizer.hide_request(REQUEST)
    sent = json.dumps(hidden.messages, ensure_ascii=False)
    assert not [canary for canary in CANARIES if canary in sent]
    assert "Müller" not in sent


def test_protocol_fields_are_unchanged(anonymizer):
    hidden = anonymizer.hide_request(REQUEST)
    assert hidden.tools is TOOLS
    assert hidden.response_schema is SCHEMA
    assert [message["role"] for message in hidden.messages] == [message["role"] for message in REQUEST.messages]
    call = hidden.messages[2]["tool_calls"][0]
    assert (call["id"], call["type"], call["function"]["name"]) == ("call_user", "function", "user")
    assert hidden.messages[1]["name"].startswith("PERSON_1")
    assert hidden.messages[2]["content"] is None
    assert hidden.messages[3]["tool_call_id"] == "call_user"


def test_arguments_stay_json_in_their_own_spelling(anonymizer):
    hidden = anonymizer.hide_request(REQUEST)
    arguments = hidden.messages[2]["tool_calls"][0]["function"]["arguments"]
    assert arguments.startswith('{"account": "ACCT_')
    assert arguments.endswith('", "n": 1.10, "k": [1234567]}')
    restored = json.loads(anonymizer.restore_json(arguments))
    assert restored == {"account": "4455667788", "name": "Anna Müller", "n": 1.1, "k": [1234567]}
    assert hidden.messages[3]["content"].endswith('", "x": 1.50}')


def test_the_request_itself_is_not_changed(anonymizer):
    before = json.dumps(REQUEST.messages)
    anonymizer.hide_request(REQUEST)
    assert json.dumps(REQUEST.messages) == before


def test_a_name_learnt_in_the_last_message_is_hidden_in_the_first():
    messages = (
        {"role": "user", "content": "Weber paid."},
        {"role": "user", "content": "Dr. Anna Weber is our client."},
    )
    sent = Anonymizer().hide_request(ModelRequest("m", messages))
    assert "Weber" not in json.dumps(sent.messages)


def test_a_request_without_personal_data_is_sent_as_it_is():
    request = ModelRequest(
        "m", ({"role": "user", "content": "Summarise clause 4."}, {"role": "user", "content": '{"a":1}'})
    )
    assert Anonymizer().hide_request(request) == request


def test_the_token_bound_of_a_hidden_request_can_be_computed(anonymizer):
    price = Price("m", 1, 1)
    hidden = anonymizer.hide_request(REQUEST)
    assert input_bound(hidden, price) < input_bound(REQUEST, price) + 20 * 12


@every_row("frame", ["{}", " {}\n", "```json\n{}\n```", "```\n{}```\n"])
def test_a_reply_that_is_json_stays_json(frame):
    anonymizer = Anonymizer(['Acme "North"\nLtd'])
    name = anonymizer.hide('Acme "North"\nLtd')
    reply = anonymizer.restore_reply(frame.format(f'[{{"firm": "{name}"}}]'))
    inner = reply.strip().removeprefix("```json").strip("`")
    assert json.loads(inner) == [{"firm": 'Acme "North"\nLtd'}]


@pytest.mark.parametrize("text", ["{not json {0}", "[" * 100_000, "see {0}"])
def test_a_reply_that_is_not_json_is_restored_as_text(anonymizer, text):
    name = anonymizer.hide("Anna Müller")
    assert anonymizer.restore_reply(text.replace("{0}", name)) == text.replace("{0}", "Anna Müller")


@every_row(
    ("data", "kinds"),
    [
        ({"account_number": "4455667788"}, "ACCT"),
        ({"accountNumber": 4455667788}, "ACCT"),
        ({"bank-account": ["4455667788"]}, "ACCT"),
        ({"phone": "912345678"}, "PHONE"),
        ({"mobilePhone": "912 345 678"}, "PHONE"),
        ({"card": 4111111111111111}, "CARD"),
        ({"a@example.com": 1}, "EMAIL"),
        (["a@example.com"], "EMAIL"),
        ({"account": "4455667788 x"}, ""),
        ({"account": "closed"}, ""),
        ({"phone": "model 1234567"}, ""),
        ({"count": 4455667788, "ok": True, "none": None, "ratio": 1.5}, ""),
        ({"ein": "12 345 678"}, ""),
    ],
)
def test_json_is_hidden_by_value_and_by_key(data, kinds):
    anonymizer = Anonymizer()
    text = json.dumps(data)
    [message] = anonymizer.hide_request(ModelRequest("m", ({"role": "user", "content": text},))).messages
    assert (f"{kinds}_1_" in message["content"]) if kinds else (message["content"] == text)
    assert anonymizer.restore_json(message["content"]).replace('"', "") == text.replace('"', "")
