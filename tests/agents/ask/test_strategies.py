"""The five strategies: labelled tables, and short, long, broken and hostile texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.ask.strategies import Strategy, classify, shortened
from tests.effort import takes_at_most

TABLE = """
SCHEDULED_TASK  | Every Monday check the new leases against our playbook
SCHEDULED_TASK  | Check the inbox every 15 minutes
SCHEDULED_TASK  | Please send me a daily summary of the findings
SCHEDULED_TASK  | Remind me tomorrow at 9 to call the landlord
SCHEDULED_TASK  | Run the NDA review weekly
SCHEDULED_TASK  | Schedule a review of the supplier contracts
SCHEDULED_TASK  | On weekdays at 7am compile the news about Acme
SCHEDULED_TASK  | Once a month, audit all open contracts and write a report
SCHEDULED_TASK  | Create an agent that checks prices every hour
SUB_AGENT       | Create an agent that watches supplier prices
SUB_AGENT       | Set up a new assistant for contract intake
SUB_AGENT       | I need a bot to answer the landlord's letters
SUB_AGENT       | Spawn a sub-agent for the research and let it report back
SUB_AGENT       | Delegate this to somebody who reads Dutch
SUB_AGENT       | Have a separate worker run the script for me
SUB_AGENT       | Can you build another agent, called Clerk, for the archive?
SCRIPT          | Run this script and show me the output
SCRIPT          | Please execute the following python code: print(3)
SCRIPT          | Use the web_search skill to look for the BTC price
SCRIPT          | Calculate 17 percent of 2,340
SCRIPT          | Fetch https://example.org/prices.csv
SCRIPT          | Convert 40 miles to kilometres
SCRIPT          | Run the extract_dates skill over the lease and review the result
GOAL            | Review all leases and list the ones without a break clause
GOAL            | Compare the two NDAs and draft a letter about the differences
GOAL            | Please investigate why the supplier raised its prices
GOAL            | First read the contract, then write to the tenant
GOAL            | Goal: a complete list of our obligations towards Acme
GOAL            | Could you find every contract that ends this year?
GOAL            | Make sure that no lease runs out unnoticed
GOAL            | Go through the documents one by one and flag risks
GOAL            | I want you to prepare the renewal of the Acme lease
DIRECT_RESPONSE | Hello there!
DIRECT_RESPONSE | What is a break clause?
DIRECT_RESPONSE | Why does the check fail every Monday?
DIRECT_RESPONSE | How do I create an agent?
DIRECT_RESPONSE | Translate this into French: the lease ends in May
DIRECT_RESPONSE | Don't schedule anything yet
DIRECT_RESPONSE | Write a friendly note to Jane
DIRECT_RESPONSE | Read the daily summary to me
"""
HELD_OUT = """
SCHEDULED_TASK  | Look at the mailbox each morning and tell me what is new
SCHEDULED_TASK  | Could you run the compliance check nightly?
SCHEDULED_TASK  | Twice every day, look for new invoices
SUB_AGENT       | Make me an assistant that sorts invoices
SUB_AGENT       | Launch two research workers
SUB_AGENT       | Hire a bot for first-line support
SCRIPT          | Call the parse_table function on the attachment
SCRIPT          | Compute the average of 3, 5 and 9
SCRIPT          | Download https://example.org/report.pdf please
SCRIPT          | evaluate this SQL query against the archive
GOAL            | Analyse the tender documents for hidden penalties
GOAL            | Help me organise the data room
GOAL            | Collect the signatures and after that file the contract
GOAL            | hey, verify the totals in the invoice
DIRECT_RESPONSE | Who signed the Acme contract?
DIRECT_RESPONSE | Thanks, that was helpful
DIRECT_RESPONSE | Is the weekly report ready?
DIRECT_RESPONSE | Should we delegate this to an agent?
DIRECT_RESPONSE | Never run scripts on my laptop
DIRECT_RESPONSE | Tell me a joke about lawyers
DIRECT_RESPONSE | What would happen if we checked the leases every day?
"""
TIMES_AND_TASKS = """
SCHEDULED_TASK  | every morning send me a summary of new documents
SCHEDULED_TASK  | Each evening, tell me what the agents did
SCHEDULED_TASK  | I want a report about the leases every Friday
SCHEDULED_TASK  | The leases should be checked every month
SCHEDULED_TASK  | You should look at the prices hourly
SCHEDULED_TASK  | Every 6 hours, sync the archive
SCHEDULED_TASK  | Feed the archive every night
SCHEDULED_TASK  | Hi, watch the price list daily, please
SCHEDULED_TASK  | I'd like you to run the review every weekday at 7
SCHEDULED_TASK  | I am busy every day, so please check the inbox every morning
SCHEDULED_TASK  | Remind us every Thursday about the rent
SCHEDULED_TASK  | Set up a recurring check of the supplier contracts
SCHEDULED_TASK  | Make sure the backups are read every night
DIRECT_RESPONSE | I drink coffee every day and wonder what that costs
DIRECT_RESPONSE | Every day is a gift
DIRECT_RESPONSE | We meet every Monday
DIRECT_RESPONSE | The train leaves daily at 9
DIRECT_RESPONSE | Every morning I walk to the office and think of leases
DIRECT_RESPONSE | My tenant complains every week
DIRECT_RESPONSE | It rains each weekend, doesn't it
DIRECT_RESPONSE | They check the meters once a month
DIRECT_RESPONSE | She pays on Fridays and runs on weekends
DIRECT_RESPONSE | There is a meeting tomorrow at 9
DIRECT_RESPONSE | He said that he checks it every hour
"""


def rows(table):
    return [tuple(part.strip() for part in line.split("|", 1)) for line in table.strip().splitlines()]


def test_table_has_forty_rows_and_every_strategy():
    assert len(rows(TABLE)) == 40
    assert {label for label, _ in rows(TABLE)} == set(Strategy)


@pytest.mark.parametrize("table", [TABLE, HELD_OUT, TIMES_AND_TASKS], ids=["table", "held out", "times and tasks"])
def test_request_gets_its_strategy(table):
    for label, text in rows(table):
        assert classify(text) == label, text


@pytest.mark.parametrize("text", ["", " ", "daily", "run it", "a bot!", "\x00", "\n\n", "  cron  "])
def test_short_text_is_a_direct_response(text):
    assert classify(text) == Strategy.DIRECT_RESPONSE


def test_strategy_of_higher_priority_wins():
    assert classify("Review the leases and run this script") == Strategy.SCRIPT
    assert classify("Create an agent to run this script") == Strategy.SUB_AGENT
    assert classify("Create an agent to run this script every day") == Strategy.SCHEDULED_TASK


def test_long_text_is_judged_by_its_first_sentence():
    padding = "The tenant wrote that he would review it and run the script. " * 20
    assert classify(f"What do you make of this letter? {padding}") == Strategy.DIRECT_RESPONSE
    assert classify(f"Thank you for the letter. {padding}") == Strategy.DIRECT_RESPONSE
    assert classify(f"Review this letter. {padding}") == Strategy.GOAL


def test_long_text_keeps_times_entities_and_addresses():
    padding = "the tenant wrote a long letter about nothing in particular, and it went on. " * 10
    text = f"Look at it. {padding} Do it every Monday for Acme Holdings, see https://example.org/a?b=1 and lease.pdf."
    kept = shortened(text)

    assert len(kept) < 400
    assert kept.startswith("Look at it.")
    for piece in ("every Monday", "Acme Holdings", "https://example.org/a?b=1", "lease.pdf"):
        assert piece in kept
    assert classify(text) == Strategy.SCHEDULED_TASK


def test_text_at_the_limit_is_not_shortened():
    assert shortened("x" * 400) == "x" * 400
    assert len(shortened("x" * 401)) <= 400


@given(text=st.text(max_size=600))
def test_any_text_always_gets_the_same_strategy(text):
    assert classify(text) == classify(text)


@pytest.mark.parametrize(
    "piece",
    ["x", "a-", "every ", "stop ", "first ", "at 1 ", "run a ", " ", "A B ", "create a ", "1) \n", "https://", "@a."],
)
def test_classification_takes_linear_time(piece):
    text = (piece * 100_000)[:100_000]
    assert takes_at_most(5, lambda: classify(text))
