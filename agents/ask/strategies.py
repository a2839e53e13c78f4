"""Which of five strategies fits a request: rules over its words, without a model. Pure.

The order of the rules is the order of priority: SCHEDULED_TASK, SUB_AGENT, SCRIPT, GOAL, and DIRECT_RESPONSE for the
rest. The text is never changed. Each pattern looks ahead a bounded way, so that time stays linear in the length.
"""

import logging
import re
from enum import StrEnum
from itertools import islice
from typing import Final

from agents.ask.times import CLOCK, RECURRING

logger = logging.getLogger(__name__)

MIN_CHARS: Final = 7
MAX_CHARS: Final = 400
_MAX_PIECES: Final = 20
_PIECE_CHARS: Final = 120
_SPACE: Final = re.compile(r"[^\S\n]+")


class Strategy(StrEnum):
    DIRECT_RESPONSE = "DIRECT_RESPONSE"
    GOAL = "GOAL"
    SCHEDULED_TASK = "SCHEDULED_TASK"
    SUB_AGENT = "SUB_AGENT"
    SCRIPT = "SCRIPT"


def _pattern(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts), re.IGNORECASE)


# --- Schedules ---

_OFTEN: Final = r"(?:hourly|daily|nightly|weekly|monthly)"
_TIME_OF_DAY: Final = r"(?:\d{1,2}(?:[:.]\d{2})?\s?(?:am|pm)?|noon|midnight)"
_FUTURE_DAY: Final = r"(?:tomorrow|tonight|next\s\w{3,10}|on\s\w{3,6}day)"
# Only a time: what is left without it is the task.
_TIMES: Final = (
    *RECURRING,
    # An adverb ("check it daily"), not "the daily summary".
    _pattern(rf"\b{_OFTEN}(?=\s{{0,9}}(?:$|[.,;!?]|(?:at|on|from|by|and)\b))"),
    _pattern(
        r"\bin\s(?:\d{1,3}|an?|two|three|five|ten)\s(?:minute|hour|day|week|month)s?(?=\s{0,9}(?:$|[.,;!?]|from\b))"
    ),
    _pattern(rf"\b{_FUTURE_DAY}\s(?:at|around|before)\s\w|\bat\s{_TIME_OF_DAY}\s{_FUTURE_DAY}"),
)
_SCHEDULES: Final = (
    *_TIMES,
    _pattern(rf"\b(?:a|an)\s(?:new\s)?{_OFTEN}\s\w"),
    _pattern(r"\bremind\s(?:me|us)\b|\bset\s(?:up\s)?an?\s(?:reminder|alarm|timer)\b"),
    _pattern(r"(?:^|\b(?:please|you|and|to)\s)(?:re)?schedule\s(?:an?|the|this|that|it|my|our|me)\b"),
    _pattern(
        r"\bcron(?:\s?job|tab)?\b|\brecurring\s(?:task|run|job|check)\b|\bon\sa\sschedule\b|\bat\sregular\sintervals\b"
    ),
)

# --- Agents, scripts and goals ---

_WORKER: Final = r"(?:sub-?\s?agents?|agents?|assistants?|bots?|workers?)\b"
_NEW: Final = r"(?:an|a\snew|another|a\sseparate|a\sdedicated)\s(?:\w{1,20}\s)?"
_SUB_AGENTS: Final = (
    _pattern(
        r"\b(?:create|make|build|spawn|launch|deploy|hire|add|set\sup|spin\sup|start|want|need|(?:get|give)\sme)\s",
        r"(?:(?!(?:the|my|our|this|that|to|from|by|for|with|of)\b)[\w-]{1,20}\s){0,4}",
        _WORKER,
        r"(?!\s(?:reports?|lists?|licen[cs]e|fees?|agreements?)\b)",
    ),
    _pattern(r"\bdelegate\s(?:this|it|that|the|these|all)\b|\bassign\s(?:(?:this|it|that)\sto\s)?", _NEW, _WORKER),
    _pattern(r"\b(?:have|let|use)\s", _NEW, _WORKER),
)
_CODE: Final = r"(?:script|code|snippet|command|program|function|query|sql|python|shell|bash|skill)\b"
_SCRIPTS: Final = (
    _pattern(r"\b(?:run|execute|evaluate|eval)\s(?:[\w-]{1,20}\s){0,4}", _CODE),
    _pattern(r"\b(?:use|call|invoke|apply)\s(?:[\w-]{1,40}\s){0,3}(?:skill|function|tool)\b"),
    _pattern(r"<skill>"),
    _pattern(r"\b(?:calculate|compute|work\sout|add\sup|multiply|divide|convert)\b[^!?\n]{0,120}\d"),
    _pattern(r"\b(?:fetch|download|scrape|crawl|open|load|read|get)\b[^!?\n]{0,60}\bhttps?://"),
)
_WORK: Final = (
    r"(?:review|analy[sz]e|audit|investigate|research|compare|prepare|compile|draft|extract|collect|gather|plan|"
    r"organi[sz]e|monitor|evaluate|assess|verify|check|find|identify|negotiate|migrate|clean\sup|sort\sout|"
    r"figure\sout|make\ssure|ensure|go\sthrough|work\sthrough|put\stogether|set\sup)\b"
)
_GOALS: Final = (
    _pattern(r"^\W{0,3}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey)\W{1,3}){0,3}", _WORK),
    _pattern(r"\b(?:please|you|you\sto|i\swant\sto|we\sneed\sto|need\sto|help\sme(?:\sto)?|can\syou)\s", _WORK),
    _pattern(r"\b(?:and\sthen|after\sthat|afterwards|step\sby\sstep|until\s(?:it|all|every)|one\sby\sone)\b"),
    _pattern(r"\bfirst\b[^?\n]{1,200}\bthen\b"),
    _pattern(r"^\W{0,3}(?:goal|objective|mission|task)\s?:"),
    _pattern(r"(?:^|\n)\s{0,4}1[.)]\s[^\n]{1,300}\n\s{0,4}2[.)]\s"),
)

# --- Questions and refusals, which ask for nothing to be done. "Can you …?" and "why don't you …?" do ask ---

_QUESTION: Final = _pattern(
    r"^\W{0,3}(?:(?:so|and|but|hi|hello|hey|ok|okay|please)\W{1,3}){0,2}",
    r"(?:why(?!\sdon'?t\syou)|what|what's|whats|who|whose|whom|when|where|which|how|is|are|am|was|were|do(?!\sthis)|",
    r"does|did|has|have(?!\s(?:an?|another)\b)|had|should|shall|may|might|(?:can|could|would)\s(?:i|we|it|they|an?|the)|",
    r"will\s(?:it|they|the)|explain|describe|tell\sme\s(?:about|why|how|what|when|who)|define|translate|",
    r"summari[sz]e|rephrase|proofread)\b(?!:)",
)
_REFUSAL: Final = _pattern(
    r"\b(?:don'?t|do\snot|never|no\sneed\sto|stop|without|instead\sof|forget\sabout|not\sto)\s(?:\w{1,20}\s){0,2}",
    r"(?:schedul|remind|creat|mak|run|execut|check|send|review|start|us(?:e|ing)|ask|delegat|spawn|set|monitor|build|",
    r"fetch|analy[sz])\w{0,12}\b",
)

# --- Tasks: "Every morning check the inbox" is one, "I drink coffee every day" is not ---

_VERBS: Final = (
    "add|alert|analy[sz]e|answer|apply|archive|ask|assess|audit|back|begin|book|bring|build|calculate|call|cancel|check|"
    "clean|clear|close|collect|compare|compile|compute|confirm|convert|copy|count|create|delete|deliver|do|download|draft|"
    "email|ensure|evaluate|execute|export|extract|fetch|file|fill|find|flag|follow|forward|gather|generate|get|give|go|"
    "hand|identify|import|inform|inspect|investigate|keep|launch|let|list|listen|load|log|look|mail|make|measure|message|"
    "monitor|move|notify|open|organi[sz]e|ping|plan|poll|post|prepare|print|process|produce|publish|pull|push|put|query|"
    "rank|read|rebuild|recheck|reconcile|record|refresh|remind|remove|repeat|reply|report|request|rerun|research|reset|"
    "restart|retry|review|run|save|scan|schedule|score|scrape|search|see|send|set|share|show|sort|start|store|submit|"
    "summari[sz]e|sweep|sync|take|tell|test|text|track|translate|trigger|try|update|upload|use|validate|verify|wake|"
    "warn|watch|write"
)
_REQUEST: Final = _pattern(
    r"\bplease\b|\b(?:can|could|would|will)\syou\b|\bwhy\sdon'?t\syou\b|\b(?:i|we)(?:\swould|'d)\slike\b|",
    r"\b(?:i|we)\s(?:want|need)\b|\b(?:should|must|has\sto|have\sto|needs?\sto)\sbe\b|\byou\s(?:should|must|have\sto)\b|",
    rf"\bmake\ssure\b|\blet\sme\sknow\b|\bremind\s(?:me|us)\b|\b(?:{_VERBS})\s(?:me|us)\b|\bon\sa\sschedule\b|\bcron",
)
# A sentence with a subject is a statement.
_STATEMENT: Final = _pattern(
    r"^\W{0,4}(?:(?:and|also|ok|okay|hi|hello|hey|so|well|but)\W{1,3}){0,3}",
    r"(?:i|we|he|she|they|it|you|there|this|that|these|those|the|my|our|his|her|its|their|some|most|many|people|",
    r"somebody|someone|everybody|everyone|nobody|if|when|because|since|while|although)\b",
)
# A known verb, or any word that can be one with its object behind it.
_IMPERATIVE: Final = _pattern(
    r"(?:^|[.!?;:,\n])\W{0,4}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey|just|so)\W{1,3}){0,4}",
    rf"(?:(?:{_VERBS})\b|",
    r"(?!\w{0,20}(?:s|[^e]ed|ing)\b)\w{3,20}\s(?:the|my|our|all|these|those|them|me|us|any)\b)",
)

# --- Parts of a long text that are read beside its first sentence ---

_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|\n")
_URL: Final = _pattern(r"\bhttps?://[^\s<>\"']{1,500}")
_ENTITY: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # an id
    r"|\b[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,63}"  # an address
    r"|\b[\w-]{1,60}\.(?:pdf|docx?|txt|md|csv|xlsx?|html?|py|sh)\b"  # a file
    r"|\b[A-Z][\w&-]{1,40}(?: [A-Z][\w&-]{1,40}){1,4}\b"  # a name of several words
)

_RULES: Final = (
    (Strategy.SCHEDULED_TASK, _SCHEDULES),
    (Strategy.SUB_AGENT, _SUB_AGENTS),
    (Strategy.SCRIPT, _SCRIPTS),
    (Strategy.GOAL, _GOALS),
)


def classify(text: str) -> Strategy:
    """Choose the strategy for a request. Never raises: after an error it is DIRECT_RESPONSE."""
    try:
        return _classify(text)
    except Exception:
        logger.exception("a request could not be classified; it is answered directly")
        return Strategy.DIRECT_RESPONSE


def _classify(text: str) -> Strategy:
    plain = _SPACE.sub(" ", text).strip().replace("\u2019", "'")
    if len(plain) < MIN_CHARS:
        return Strategy.DIRECT_RESPONSE
    excerpt = shortened(plain)
    if _QUESTION.search(excerpt) or _REFUSAL.search(excerpt):
        return Strategy.DIRECT_RESPONSE
    for strategy, patterns in _RULES:
        if any(pattern.search(excerpt) for pattern in patterns) and (
            strategy != Strategy.SCHEDULED_TASK or _has_task(excerpt)
        ):
            return strategy
    return Strategy.DIRECT_RESPONSE


def _has_task(text: str) -> bool:
    """Whether a text with a time also says what to do then."""
    for pattern in (*_TIMES, CLOCK):
        text = pattern.sub(" ", text)
    task = _SPACE.sub(" ", text).strip(" ,.;:")
    if _REQUEST.search(task):
        return True
    return not _STATEMENT.match(task) and _IMPERATIVE.search(task) is not None


def shortened(text: str) -> str:
    """Reduce a long text to its first sentence and the times, entities and addresses of the rest."""
    if len(text) <= MAX_CHARS:
        return text
    end = _SENTENCE_END.search(text)
    first = text[: min(end.end() if end else MAX_CHARS, MAX_CHARS)]
    rest = text[len(first) :]
    kept = [piece for pattern in (*_SCHEDULES, _ENTITY, _URL) for piece in _pieces(pattern, rest)]
    return " ".join([first, *kept])


def _pieces(pattern: re.Pattern[str], text: str) -> list[str]:
    return [match[0][:_PIECE_CHARS] for match in islice(pattern.finditer(text), _MAX_PIECES)]
