"""Agentic analysis: a turn of steps inside the analysis phase. The same task and documents, and skills to call.

R6 holds as in any phase: what analysis does not grant, no step can do. The steps stand in the session's transcript, so
a run that was interrupted, or waited for a person, goes on from there.
"""

from dataclasses import replace
from typing import Final

from agents.conf import clock
from agents.definitions.in_force import loop_of
from agents.engine.honesty import honest
from agents.engine.loop import Answered
from agents.engine.offering import skills_of
from agents.engine.replies import Words, final_words
from agents.engine.turns import SessionKey, run_agent_turn
from agents.enums import AnalysisMode
from agents.sessions.transcripts import Entry, session_note_inputs, transcript_of
from agents.text.blocks import nonce_of
from agents.types import End
from agents.walk.calls import Slice
from agents.walk.materials import assembled
from agents.walk.parsing import Analysis
from agents.walk.prompts import ANSWER_TOKENS, agentic_opening

KEY: Final = "analysis"


def is_agentic(work: Slice) -> bool:
    return work.param("analysis_mode") == AnalysisMode.AGENTIC


def think(work: Slice) -> Answered | End:
    """Steps until the model answers, or something ends or interrupts them."""
    session = work.session
    system, said = ("", ()) if transcript_of(session) else _opening(work)
    return run_agent_turn(
        session.agent,
        SessionKey(session, calls=KEY),
        said,
        system=system,
        config=loop_of(session),
        instructed=bool(work.param("goal")),  # asked of an agent; what triggers start goes by playbook or skill alone
        max_tokens=ANSWER_TOKENS,
        started_at=work.started_at,
    )


def thought(work: Slice) -> Words:
    """What the steps came to. Of a run that got beyond its analysis."""
    return final_words(transcript_of(work.session))


def honest_analysis(work: Slice, said: Analysis) -> Analysis:
    """The same without claims of what no call of the run did. Its parts are judged one by one: they are prose."""
    transcript, skills = transcript_of(work.session), skills_of(work.session.agent)

    def told(text: str) -> str:
        return honest(text, session=work.session, transcript=transcript, skills=skills)

    findings = tuple(replace(finding, content=told(finding.content)) for finding in said.findings)
    return replace(said, findings=findings, raw=told(said.raw))


def _opening(work: Slice) -> tuple[str, tuple[Entry, ...]]:
    """The rules, and what is said under them."""
    parts, inputs = assembled(work)
    session_note_inputs(work.session, inputs, now=clock())
    system, *said = agentic_opening(parts, nonce=nonce_of(work.session.public_id, KEY))
    return system["content"], tuple(Entry(one["role"], one["content"]) for one in said)
