"""What requests of each strategy look like, as patterns. Each looks ahead a bounded way, so that time stays linear."""

import re
from typing import Final

from agents.ask import whens


def form(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts), re.IGNORECASE)


URL: Final = form(r"\bhttps?://[^\s<>\"']{1,500}")
SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|\n")
ENTITY: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # an id
    r"|\b[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,63}"  # an address
    r"|\b[\w-]{1,60}\.(?:pdf|docx?|txt|md|csv|xlsx?|html?|py|sh)\b"  # a file
    r"|\b[A-Z][\w&-]{1,40}(?: [A-Z][\w&-]{1,40}){1,4}\b"  # a name of several words
)
_OFTEN: Final = r"(?:hourly|daily|nightly|weekly|monthly)"
_MOMENT: Final = r"(?:\d{1,2}(?:[:.]\d{2})?\s?(?:am|pm)?|noon|midnight)"
_DAY: Final = r"(?:tomorrow|tonight|next\s\w{3,10}|on\s\w{3,6}day)"
# When, and nothing else: without it, what is to be done then is left.
MOMENTS: Final = (
    whens.EVERY,
    whens.EVERY_DAY,
    whens.TIMES_A,
    whens.ON_PART,
    # An adverb ("check it daily") or something new ("a daily summary"), but not "the daily summary".
    form(rf"\b{_OFTEN}(?=\s{{0,9}}(?:$|[.,;!?]|(?:at|on|from|by|and)\b))"),
    form(r"\bin\s(?:\d{1,3}|an?|two|three|five|ten)\s(?:minute|hour|day|week|month)s?(?=\s{0,9}(?:$|[.,;!?]|from\b))"),
    form(rf"\b{_DAY}\s(?:at|around|before)\s\w|\bat\s{_MOMENT}\s{_DAY}"),
)
TIMES: Final = (
    *MOMENTS,
    form(rf"\b(?:a|an)\s(?:new\s)?{_OFTEN}\s\w"),
    form(r"\bremind\s(?:me|us)\b|\bset\s(?:up\s)?an?\s(?:reminder|alarm|timer)\b"),
    form(r"(?:^|\b(?:please|you|and|to)\s)(?:re)?schedule\s(?:an?|the|this|that|it|my|our|me)\b"),
    form(
        r"\bcron(?:\s?job|tab)?\b|\brecurring\s(?:task|run|job|check)\b|\bon\sa\sschedule\b|\bat\sregular\sintervals\b"
    ),
)
_WORKER: Final = r"(?:sub-?\s?agents?|agents?|assistants?|bots?|workers?)\b"
_NEW: Final = r"(?:an|a\snew|another|a\sseparate|a\sdedicated)\s(?:\w{1,20}\s)?"
SUB_AGENTS: Final = (
    form(
        r"\b(?:create|make|build|spawn|launch|deploy|hire|add|set\sup|spin\sup|start|want|need|(?:get|give)\sme)\s",
        r"(?:(?!(?:the|my|our|this|that|to|from|by|for|with|of)\b)[\w-]{1,20}\s){0,4}",
        _WORKER,
        r"(?!\s(?:reports?|lists?|licen[cs]e|fees?|agreements?)\b)",
    ),
    form(r"\bdelegate\s(?:this|it|that|the|these|all)\b|\bassign\s(?:(?:this|it|that)\sto\s)?", _NEW, _WORKER),
    form(r"\b(?:have|let|use)\s", _NEW, _WORKER),
)

_CODE: Final = r"(?:script|code|snippet|command|program|function|query|sql|python|shell|bash|skill)\b"
SCRIPTS: Final = (
    form(r"\b(?:run|execute|evaluate|eval)\s(?:[\w-]{1,20}\s){0,4}", _CODE),
    form(r"\b(?:use|call|invoke|apply)\s(?:[\w-]{1,40}\s){0,3}(?:skill|function|tool)\b"),
    form(r"<skill>"),
    form(r"\b(?:calculate|compute|work\sout|add\sup|multiply|divide|convert)\b[^!?\n]{0,120}\d"),
    form(r"\b(?:fetch|download|scrape|crawl|open|load|read|get)\b[^!?\n]{0,60}\bhttps?://"),
)

_WORK: Final = (
    r"(?:review|analy[sz]e|audit|investigate|research|compare|prepare|compile|draft|extract|collect|gather|plan|"
    r"organi[sz]e|monitor|evaluate|assess|verify|check|find|identify|negotiate|migrate|clean\sup|sort\sout|"
    r"figure\sout|make\ssure|ensure|go\sthrough|work\sthrough|put\stogether|set\sup)\b"
)
GOALS: Final = (
    form(r"^\W{0,3}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey)\W{1,3}){0,3}", _WORK),
    form(r"\b(?:please|you|you\sto|i\swant\sto|we\sneed\sto|need\sto|help\sme(?:\sto)?|can\syou)\s", _WORK),
    form(r"\b(?:and\sthen|after\sthat|afterwards|step\sby\sstep|until\s(?:it|all|every)|one\sby\sone)\b"),
    form(r"\bfirst\b[^?\n]{1,200}\bthen\b"),
    form(r"^\W{0,3}(?:goal|objective|mission|task)\s?:"),
    form(r"(?:^|\n)\s{0,4}1[.)]\s[^\n]{1,300}\n\s{0,4}2[.)]\s"),
)

# What is asked about, or is only a piece of writing, is no order. "Can you …?" is one, and "why don't you …?", too.
ASKS: Final = form(
    r"^\W{0,3}(?:(?:so|and|but|hi|hello|hey|ok|okay|please)\W{1,3}){0,2}",
    r"(?:why(?!\sdon'?t\syou)|what|what's|whats|who|whose|whom|when|where|which|how|is|are|am|was|were|do(?!\sthis)|",
    r"does|did|has|have(?!\s(?:an?|another)\b)|had|should|shall|may|might|(?:can|could|would)\s(?:i|we|it|they|an?|the)|",
    r"will\s(?:it|they|the)|explain|describe|tell\sme\s(?:about|why|how|what|when|who)|define|translate|",
    r"summari[sz]e|rephrase|proofread)\b(?!:)",
)
_DOING: Final = (
    r"(?:schedul|remind|creat|mak|run|execut|check|send|review|start|us(?:e|ing)|ask|delegat|spawn|set|monitor|build|"
    r"fetch|analy[sz])\w{0,12}\b"
)
REFUSES: Final = form(
    r"\b(?:don'?t|do\snot|never|no\sneed\sto|stop|without|instead\sof|forget\sabout|not\sto)\s(?:\w{1,20}\s){0,2}",
    _DOING,
)
