"""Response honesty: claims of what was not done are taken out, and nothing else is."""

import pytest

from agents.engine.claims import CORRECTED, Came, corrected

ABLE = ["send_email", "http_request", "set_state", "delete_file"]
FAILED = Came(succeeded=False, told="A person did not allow this call: not today")
DONE = Came(succeeded=True)


def told(text, came=None, before=()):
    return corrected(text, able=ABLE, came=came or {}, done_before=lambda: frozenset(before))


@pytest.mark.parametrize(
    "claim",
    [
        "I sent it.",
        "I've sent the mail to Bob.",
        "I\u2019ve already emailed Bob.",
        "I have just now submitted the form!",
        "Done. I have sent the message.",
        "OK, I posted it.",
        "As you asked, I have gone ahead and sent it.",
        "- I sent it to ann@example.org (v1.2).",
    ],
)
def test_claim_without_any_success_is_taken_out_and_the_truth_is_told(claim):
    text = told(f"The report is ready.\n{claim}\nThe total is 3.5 million.", {"send_email": FAILED})

    assert claim.removeprefix("Done. ") not in text
    assert text.startswith("The report is ready.\n")
    assert "The total is 3.5 million." in text
    assert CORRECTED in text
    assert "- send_email did not succeed: A person did not allow this call: not today" in text


def test_skill_that_was_never_called_is_said_not_to_have_been():
    assert told("I sent the mail.") == (f"{CORRECTED}\n- http_request was not called.\n- send_email was not called.")


@pytest.mark.parametrize(
    "text",
    [
        "I have not sent anything.",
        "I could not send it.",
        "Have I sent it? I have sent it?",
        "Once I have sent it, I will tell you.",
        "The mail that I sent bounced.",
        "> I sent it.",
        "```\nI sent it.\n```",
        "Here is the letter:\n\nSubject: Documents\n\nDear Bob,\nI sent you the documents.\nAnn",
        "Hi Bob,\nI sent you the documents.",
        'He writes: "Well, and I sent it."',
        "I wrote a summary. I created a table below. I updated my estimate. I removed the duplicates.",
        "I checked it, and I looked twice.",
        "",
    ],
)
def test_what_is_no_claim_is_left_as_it_is(text):
    assert told(text, {"send_email": FAILED}) == text


def test_claim_that_is_true_is_left_as_it_is():
    assert told("I sent it.", {"send_email": DONE}) == "I sent it."
    assert told("I submitted the form.", {"http_request": DONE}) == "I submitted the form."
    assert told("I sent it yesterday.", before=["send_email"]) == "I sent it yesterday."
    assert CORRECTED in told("I emailed Bob.", {"http_request": DONE})  # another thing than was done


def test_true_claim_beside_a_false_one_stays():
    text = told("I sent the mail. I deleted the file.", {"delete_file": FAILED}, before=["send_email"])
    assert text == f"I sent the mail.\n\n{CORRECTED}\n- delete_file did not succeed: {FAILED.told}"


def test_what_may_be_said_of_a_text_is_a_claim_only_when_such_a_skill_was_called():
    assert told("I deleted the file.") == "I deleted the file."
    assert CORRECTED in told("I deleted the file.", {"delete_file": FAILED})


def test_long_texts_take_linear_time():
    text = "I sent it? " * 20_000 + "." * 100_000 + "and " * 50_000
    assert told(text) == text
