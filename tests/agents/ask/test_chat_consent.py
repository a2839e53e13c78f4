"""Which words ask for a skill, and what counts as a yes."""

import pytest

from agents.ask.chats import admission, asks_for, is_yes, relevant_texts
from agents.skills.registry import skill_named


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Send Bob the figures.", "send_email"),
        ("Please e-mail it to Ann", "send_email"),
        ("Could you mail her?", "send_email"),
        ("What is the total? Then forward it to Ann.", "send_email"),
        ("use send_email for that", "send_email"),
        ("Write to Bob that it is late", "send_email"),
        ("POST this to https://shop.example/orders", "http_request"),
        ("remove the old file", "delete_file"),
        ("I want you to pay the invoice", "pay_invoice"),
        ("Do not wait: send it now", "send_email"),
        ("Check the new lease against our playbook", "run_playbook"),
        ("Please start the review", "run_playbook"),
    ],
)
def test_text_asks_for_the_skill(text, name):
    assert asks_for(text, name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("What is the status of my order?", "send_email"),
        ("Did Bob's email arrive?", "send_email"),
        ("Was it sent?", "send_email"),
        ("How do I send a mail?", "send_email"),
        ("Summarise the contract.", "send_email"),
        ("Don't send anything.", "send_email"),
        ("Check it without sending or mail", "send_email"),
        ("Look at it", "delete_file"),
        ("Convert it to the right form", "add_to_calendar"),
        ("", "send_email"),
        ("What does the lease say about parking?", "run_playbook"),
    ],
)
def test_text_does_not_ask_for_the_skill(text, name):
    assert not asks_for(text, name)


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "Yes!",
        "OK.",
        " ok, thanks ",
        "Sure, go ahead",
        "Please do",
        "please do it now",
        "yes - do that",
        "Right.",
    ],
)
def test_words_of_consent_are_a_plain_yes(text):
    assert is_yes(text)


@pytest.mark.parametrize(
    "text",
    [
        "ok, but don't mark it",
        "right, no",
        "ok never mind",
        "Ok stop. Do nothing.",
        "right... that's a bad idea",
        "sure, if you must",
        "yes?",
        "right?",
        "ok \N{THUMBS DOWN SIGN}",
        "ok \N{CYRILLIC SMALL LETTER EN}\N{CYRILLIC SMALL LETTER IE}",
        "okay-ish",
        "okno",
        "please",
        "thanks",
        "",
    ],
)
def test_consent_with_any_other_word_is_no_yes(text):
    assert not is_yes(text)


def test_is_yes_takes_linear_time():
    assert not is_yes("please do it now, " * 20_000 + "not")


def test_plain_yes_accepts_the_texts_before_it():
    said = ["Tell Bob that it is late", "Shall I send him a mail?", "Yes, please do"]
    assert is_yes(said[-1])
    assert relevant_texts(said) == ["Yes, please do", "Tell Bob that it is late", "Shall I send him a mail?"]
    assert relevant_texts([*said[:2], "Yes, but first tell me what you would write there"])[1:] == []
    assert relevant_texts(["Send it"]) == ["Send it"]


def test_skills_on_our_own_rows_pass_but_a_run_has_to_be_asked_for():
    check = admission(lambda: ["What does the lease say about parking?"])
    for name in ("remember", "emit_finding", "propose_precedent", "tell_owner"):
        assert check("k", skill_named(name), {}) == ""
    assert "do not ask for that" in check("k", skill_named("run_playbook"), {})
    assert admission(lambda: ["Run the playbook on it."])("k", skill_named("run_playbook"), {}) == ""
