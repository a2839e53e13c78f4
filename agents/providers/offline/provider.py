"""The built-in model provider: rule-based text matching that says so. Deterministic; no network, no clock, no chance.

It reads the marked blocks of a request: `document` is what to check, `playbook` and `skill` what to check it against.
A `goal` is beyond it, and it says so; documents that come with one are still looked over for markings of privilege.
Text outside of a playbook or skill block instructs it in nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from agents.definitions.playbook_text import Position, Rule, parse_playbook, parse_rules
from agents.enums import Purpose
from agents.providers.base import ProviderError
from agents.providers.offline import offline_asides, offline_turns
from agents.providers.offline.matching import Matcher
from agents.providers.offline.offline_checks import DEVIATES, MISSING, Verdict, check_position, check_rule, is_checkable
from agents.providers.offline.offline_document import Document, looks_english
from agents.providers.offline.offline_reply import Analysis, Finding, finding_of, markings, rendered, tokens
from agents.providers.offline.text import words_of
from agents.text.blocks import Block, parse_blocks
from agents.types import ModelReply, ModelRequest, Usage

UNDECIDED = "undecided"
NO_GOALS = (
    "That takes a language model: the offline analyst compares texts with rules, and does nothing else. Configure a "
    "model, or ask for a playbook or a skill over a document or a collection."
)
NO_DOCUMENT = "No document was sent in a marked block: nothing was checked."
NO_RULES = "No playbook position and no checkable rule was sent in a marked block: nothing was checked."
EMPTY = "The document holds no words: nothing could be checked."
FOREIGN = "The document does not look like English, which is all that the rules can read: silence here means nothing."
CUT_OFF = "The document was cut off before its end: what follows was not checked."
MOST_CHARS = 1_000_000  # of one document


class OfflineProvider:
    """Answers every purpose but embeddings by rules. What it answers depends on the request alone."""

    name = "offline"

    def complete(self, request: ModelRequest) -> ModelReply:
        if request.purpose == Purpose.EMBEDDING:
            raise ProviderError("The offline provider makes no embeddings: configure a model.", contacted=False)
        texts = list(offline_asides.texts_of(request))
        if offline_turns.takes_turn(request):
            said, calls = offline_turns.turn(request)
            usage = Usage(sum(map(tokens, texts)), offline_turns.spent(said, calls))
            return ModelReply(said, usage, "tool_use", self.name, calls=calls)
        aside = _ASIDES.get(request.purpose)
        text, whole = aside(texts, request.max_tokens) if aside else _analysis(texts, request.max_tokens)
        usage = Usage(sum(map(tokens, texts)), tokens(text))
        return ModelReply(text, usage, "end_turn" if whole else "max_tokens", self.name)


_ASIDES: dict[str, Callable[[list[str], int], tuple[str, bool]]] = {
    Purpose.JUDGE: offline_asides.judge,
    Purpose.PRECHECK: offline_asides.precheck,
    Purpose.SIGNAL: offline_asides.signal,
    Purpose.SIMULATION: offline_asides.simulation,
    Purpose.COMPACTION: offline_asides.compaction,
    Purpose.CHAT: offline_asides.chat,
}


def _analysis(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    blocks = [block for text in texts for block in parse_blocks(text)]
    documents = [block for block in blocks if block.kind == "document"]
    analysis = Analysis()
    goal = any(block.kind == "goal" for block in blocks)
    if goal:
        analysis.findings.append(Finding("The goal was not worked towards", "warn", NO_GOALS, "", verdict=UNDECIDED))
    positions = [one for block in blocks if block.kind == "playbook" for one in parse_playbook(block.text).positions]
    rules: list[Rule] = []
    for block in blocks:
        if block.kind == "skill":
            read = parse_rules(block.text)
            rules += filter(is_checkable, read.rules)
            unread = [*read.ignored, *(f"{rule.form} {rule.text}" for rule in read.rules if not is_checkable(rule))]
            analysis.notes += [f"Rule not understood, and not checked: {line}" for line in unread]
    if documents or positions or rules or not goal:  # with a goal alone nothing was to be checked
        analysis.notes += [NO_DOCUMENT] * (not documents) + [NO_RULES] * (not positions and not rules)
    analysis.privilege = list(dict.fromkeys(shown for block in documents for shown in markings(block.text)))
    if documents and (positions or rules):
        counts: Counter[str] = Counter()
        for number, block in enumerate(documents, 1):
            name = block.attributes.get("id", f"document-{number}")
            for finding, kind in _document(block, name, positions, rules):
                counts[kind] += 1
                analysis.findings += [finding] if finding else []
        analysis.counts = dict(sorted(counts.items()))
    return rendered(analysis, max_tokens=max_tokens)


def _document(
    block: Block, name: str, positions: list[Position], rules: list[Rule]
) -> Iterator[tuple[Finding | None, str]]:
    """Each decision on one document, with the finding that it gives rise to, if any."""
    document = Document(block.text[:MOST_CHARS])
    if not document.words:
        yield _undecided(name, "Empty document", EMPTY), UNDECIDED
        return
    if block.truncated or len(block.text) > MOST_CHARS:
        yield _undecided(name, "Document cut off", CUT_OFF), UNDECIDED
    foreign = not document.is_english
    if foreign:
        yield _undecided(name, "Document not in English", FOREIGN), UNDECIDED
    for verdict, english in _verdicts(Matcher(document), positions, rules):
        if foreign and english and not (verdict.kind == DEVIATES and verdict.start < verdict.end):
            yield None, UNDECIDED
        elif verdict.kind in {DEVIATES, MISSING}:
            yield finding_of(verdict, document_id=name, text=block.text), verdict.kind
        else:
            yield None, verdict.kind


def _verdicts(matcher: Matcher, positions: list[Position], rules: list[Rule]) -> Iterator[tuple[Verdict, bool]]:
    """Verdicts, each with whether what was asked for is worded in English."""
    for position in positions:
        wanted = f"{position.issue} {position.standard}"
        only_phrases = not position.standard and (position.must_contain or position.must_not_contain)
        english = not only_phrases and looks_english([word.text for word in words_of(wanted)])
        yield check_position(matcher, position), english
    for rule in rules:
        yield check_rule(matcher, rule), not rule.phrases and looks_english([word.text for word in words_of(rule.text)])


def _undecided(name: str, title: str, content: str) -> Finding:
    return Finding(title, "info", content, name, verdict=UNDECIDED)
