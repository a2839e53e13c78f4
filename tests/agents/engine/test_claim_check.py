"""False claims are removed from an answer, and nothing else is."""

import pytest

from agents.engine.replies import CORRECTED, NOT_CALLED, CallOutcome, correct_claims

SKILLS = ["send_email", "http_request", "set_state", "delete_file"]
FAILED = CallOutcome(succeeded=False, message="A person did not allow this call: not today")
DONE = CallOutcome(succeeded=True)


def checked(text, outcomes=None, before=()):
    return correct_claims(text, candidates=SKILLS, outcomes=outcomes or {}, done_before=lambda: frozenset(before))


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
        "I drafted the mail to Bob and sent it.",
        "I have e-mailed everybody.",
        "I notified Ann.",
        "The email has been sent to Bob.",
        "Your message has been successfully sent.",
        "You asked me to, and I sent it.",
    ],
)
def test_false_claim_is_removed_and_the_outcome_listed(claim):
    text = checked(f"The report is ready.\n{claim}\nThe total is 3.5 million.", {"send_email": FAILED})

    assert claim.removeprefix("Done. ") not in text
    assert text.startswith("The report is ready.\n")
    assert "The total is 3.5 million." in text
    assert CORRECTED in text
    assert "- send_email did not succeed: A person did not allow this call: not today" in text


def test_only_skills_that_could_have_done_it_are_named():
    text = checked("I sent it.", {"send_email": FAILED, "set_state": FAILED, "look": FAILED})
    assert text == f"{CORRECTED}\n- send_email did not succeed: {FAILED.message}"
    assert checked("I sent the mail.") == f"{CORRECTED}\n- {NOT_CALLED}"
    assert checked("I sent the mail.", {"delete_file": FAILED}) == f"{CORRECTED}\n- {NOT_CALLED}"


@pytest.mark.parametrize(("claim", "is_false"), [("I sent it.", True), ("I paid the bill.", False)])
def test_sending_is_a_claim_even_without_a_skill_that_sends(claim, is_false):
    assert (CORRECTED in correct_claims(claim, candidates=[], outcomes={}, done_before=frozenset)) == is_false


def test_success_of_a_skill_with_an_unclear_name_counts():
    about = {"candidates": ["carrier_pigeon", "send_email"], "done_before": frozenset}
    assert correct_claims("I sent it.", outcomes={"carrier_pigeon": DONE}, **about) == "I sent it."
    text = correct_claims("I sent it.", outcomes={"carrier_pigeon": FAILED}, **about)
    assert text == f"{CORRECTED}\n- carrier_pigeon did not succeed: {FAILED.message}"


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
        "I have sent nothing. I notified nobody. I sent no mail.",
        "I will send it. I am going to email Bob, and I can post it.",
        "I would have sent it, had it been allowed.",
        'He writes: "Thanks. I sent it. Bye."',
        "He writes: \u201cThanks. I sent it. Bye.\u201d",
        "Bob says, I sent it on Monday. According to Ann, I sent it.",
        "Bob sent it. Ann has notified the landlord. They posted it.",
        "The email has not been sent. The message could not be sent. The email will be sent. Email not sent.",
        "The message has been sent by Bob. The email was sent yesterday. The request was submitted in 2024.",
        "The email has been sent?",
        "",
    ],
)
def test_text_without_a_claim_is_unchanged(text):
    assert checked(text, {"send_email": FAILED}) == text


def test_true_claim_is_unchanged():
    assert checked("I sent it.", {"send_email": DONE}) == "I sent it."
    assert checked("I submitted the form.", {"http_request": DONE}) == "I submitted the form."
    assert checked("I sent it yesterday.", before=["send_email"]) == "I sent it yesterday."
    assert CORRECTED in checked("I emailed Bob.", {"http_request": DONE})  # another thing than was done


def test_tell_owner_is_a_message_but_no_mail():
    about = {"candidates": ["tell_owner", "send_email"], "outcomes": {"tell_owner": DONE}, "done_before": frozenset}
    assert correct_claims("I sent you a message. I notified you.", **about) == "I sent you a message. I notified you."
    assert CORRECTED in correct_claims("I emailed you.", **about)


def test_true_claim_next_to_a_false_one_stays():
    text = checked("I sent the mail. I deleted the file.", {"delete_file": FAILED}, before=["send_email"])
    assert text == f"I sent the mail.\n\n{CORRECTED}\n- delete_file did not succeed: {FAILED.message}"


def test_editing_verb_is_a_claim_only_if_such_a_skill_was_called():
    assert checked("I deleted the file.") == "I deleted the file."
    assert CORRECTED in checked("I deleted the file.", {"delete_file": FAILED})
    assert CORRECTED in checked("I have updated the record.", {"set_state": FAILED})
    assert CORRECTED in checked("The file has been deleted.", {"delete_file": FAILED})
    mixed = checked("The email has been sent. I scheduled a meeting.", {"delete_file": FAILED})
    assert mixed.startswith("The email")


def test_failed_scheduling_is_corrected():
    outcomes = {"create_event": FAILED}
    text = correct_claims(
        "I scheduled the meeting.", candidates=["create_event"], outcomes=outcomes, done_before=frozenset
    )
    assert text == f"{CORRECTED}\n- create_event did not succeed: {FAILED.message}"


def test_long_texts_take_linear_time():
    text = "I sent it? " * 20_000 + "." * 100_000 + "and " * 50_000
    assert checked(text) == text
    quoted = f'"{"I sent it. " * 20_000}"'
    assert checked(quoted) == quoted
