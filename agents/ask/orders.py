"""Whether there is something to do in a text, and not only something that is so. Pure, and linear in its length.

`Every morning check the inbox` is an order; `I drink coffee every day and wonder why` is none, in spite of its time.
"""

import re
from typing import Final

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
_CLAUSE: Final = (
    r"(?:^|[.!?;:,\n])\W{0,4}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey|just|so)\W{1,3}){0,4}"
)
# Who or what a sentence is about, when it tells rather than asks for something.
_TELLS: Final = re.compile(
    r"^\W{0,4}(?:(?:and|also|ok|okay|hi|hello|hey|so|well|but)\W{1,3}){0,3}"
    r"(?:i|we|he|she|they|it|you|there|this|that|these|those|the|my|our|his|her|its|their|some|most|many|people|"
    r"somebody|someone|everybody|everyone|nobody|if|when|because|since|while|although)\b",
    re.IGNORECASE,
)
_BEGINS: Final = re.compile(
    rf"{_CLAUSE}(?:(?:{_VERBS})\b|(?!\w{{0,20}}(?:s|[^e]ed|ing)\b)\w{{3,20}}\s(?:the|my|our|all|these|those|them|me|us|any)\b)",
    re.IGNORECASE,
)
_REQUESTS: Final = re.compile(
    r"\bplease\b|\b(?:can|could|would|will)\syou\b|\bwhy\sdon'?t\syou\b|\b(?:i|we)(?:\swould|'d)\slike\b|"
    r"\b(?:i|we)\s(?:want|need)\b|\b(?:should|must|has\sto|have\sto|needs?\sto)\sbe\b|\byou\s(?:should|must|have\sto)\b|"
    rf"\bmake\ssure\b|\blet\sme\sknow\b|\bremind\s(?:me|us)\b|\b(?:{_VERBS})\s(?:me|us)\b|\bon\sa\sschedule\b|\bcron",
    re.IGNORECASE,
)


def asks_for_something(text: str) -> bool:
    """It says so, or begins with what is to be done. Whoever tells of themselves asks for nothing by that."""
    if _REQUESTS.search(text):
        return True
    return not _TELLS.match(text) and _BEGINS.search(text) is not None
