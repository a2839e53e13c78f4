"""Drafting, ethics review and delivery: store what the analysis says, flag concerns, notify the owner.

Each item is stored by a guarded call of its own, those of a phase together. Nothing is made up: a failed analysis gives
one warning and nothing else, and a run that had nothing to do says why. Drafts are saved only if the run was told to.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from agents.engine.prompting import journaled_call
from agents.enums import Outcome, Risk, RunResult, ToolIntent, WaitingOn
from agents.knowledge.playbooks import playbook_issues
from agents.ledger.trigger_health import CUT_OFF_RUN, NO_TARGET_RUN, PARTIAL_RUN, UNANSWERED_RUN, UNREAD_RUN
from agents.models import Collection
from agents.people.outbox import receipt_path
from agents.sessions.reads import by_severity, counted, purposes, stored_results
from agents.sessions.transcripts import result_notes, session_note_new
from agents.text.clean import one_line
from agents.text.wording import label, text_key
from agents.types import End, ToolResult, Waiting
from agents.walk.analysis import ISSUES, Reply, reply_of
from agents.walk.citations import Cited, Votes, cited, votes_of
from agents.walk.intake import Item, NotStored, Reading, Slice, store
from agents.walk.parsing import CONTENT_CHARS, TITLE_CHARS, Analysis, ParsedArtifact, ParsedFinding, ParsedPrecedent
from agents.walk.sections import ENDLESS
from agents.walk.sections import UNREADABLE as UNREADABLE_ANSWER
from audit.redaction import contains_marker, redact

SHOWN_ERROR: Final = 500
REASON_CHARS: Final = 200
SHOWN_RANGES: Final = 50
FAILED: Final = "note:failed"
UNREAD: Final = "note:unread"
CUT_OFF: Final = "note:cut_unreadable"
PARTIAL: Final = "note:partial"
NO_TARGET: Final = "note:no_target"
UNCLOSED: Final = "note:missing_unchecked"
LEFT_OUT: Final = "note:left_out"
_UNREADABLE: Final = frozenset({UNREADABLE_ANSWER, ENDLESS})  # asked again, the same model would answer like this


@dataclass(frozen=True)
class Note:
    """A finding about the run itself rather than about a document."""

    key: str
    severity: str
    title: str
    content: str


def drafting(work: Slice) -> End | None:
    reading, reply = work.reading, reply_of(work)
    items: list[Item] = []
    saved: list[Note] = []
    if reply.analysis is not None:
        analysis = _with_texts(work, reply.analysis)
        items += _proposed(work, analysis)
        if analysis.artifacts:
            store(work.session, items)
            items = []
            saved += _save_drafts(work, analysis.artifacts)
        saved += _about_goal(work, analysis)
    for note in (*_notes(work, reading, reply), *saved):
        params = {"severity": note.severity, "title": note.title, "content": note.content, "about_run": True}
        items.append((ToolIntent.EMIT_FINDING, note.key, params))
    store(work.session, items)
    return None


def _with_texts(work: Slice, analysis: Analysis) -> Analysis:
    """Make a text that a goal asked for a finding, unless drafts are saved."""
    if not work.spec.goal or work.spec.emit_artifacts:
        return analysis
    texts = [ParsedFinding(one.name[:TITLE_CHARS], "info", one.content[:CONTENT_CHARS]) for one in analysis.artifacts]
    return replace(analysis, findings=(*analysis.findings, *texts), artifacts=())


def _about_goal(work: Slice, analysis: Analysis) -> Iterator[Note]:
    if work.spec.goal and analysis.is_structured and not analysis.findings and not analysis.artifacts:
        text = "The model says neither what it reached nor what it did not. What it did is in the session's transcript."
        yield Note("note:no_result", "warn", "The goal has no result", text)


def found_of(work: Slice) -> list[Cited]:
    """Return the findings of the answer, each with the place of its quote."""
    answer = reply_of(work).analysis
    if answer is None:
        return []
    if "found" not in work.kept:
        analysis = _with_texts(work, answer)
        cite = (
            cited(work.session, analysis, work.reading) if analysis.is_structured else [Cited(_unstructured(analysis))]
        )
        work.kept["found"] = cite
    found: list[Cited] = work.kept["found"]
    return found


def _proposed(work: Slice, analysis: Analysis) -> Iterator[Item]:
    session, found, votes = work.session, found_of(work), votes_of(work.session)
    playbook = "" if work.spec.skill else work.spec.playbook
    issues = work.kept.get(ISSUES) or (playbook_issues(session.owner_id, playbook) if playbook and found else ())
    for number, one in enumerate(found):
        params = _finding_params(one, votes.get(number, Votes()))
        if position := _position(one.finding, issues):
            params |= {"playbook": playbook, "position": position}
        yield ToolIntent.EMIT_FINDING, f"finding:{number}", params
    for number, content in enumerate(analysis.memories):
        yield ToolIntent.PROPOSE_MEMORY, f"memory:{number}", {"content": content}
    for number, seen in enumerate(_distinct(analysis.precedents)):
        params = {"pattern_kind": seen.pattern_kind, "summary": seen.summary, "same_as": seen.same_as}
        yield ToolIntent.PROPOSE_PRECEDENT, f"precedent:{number}", params


def _distinct(precedents: Iterable[ParsedPrecedent]) -> list[ParsedPrecedent]:
    """Return each pattern once: a run is one sighting, however often its answer repeats it."""
    return list(
        {one.same_as or (label(one.pattern_kind, limit=64), text_key(one.summary)): one for one in precedents}.values()
    )


def _unstructured(analysis: Analysis) -> ParsedFinding:
    beginning = f"its beginning, without the last {analysis.left_out} characters" if analysis.left_out else "its text"
    return ParsedFinding(f"The answer had no structure; this is {beginning}", "info", analysis.raw)


def _finding_params(one: Cited, votes: Votes) -> dict[str, Any]:
    finding = one.finding
    params: dict[str, Any] = {"severity": finding.severity, "title": finding.title, "content": finding.content}
    if one.document_id:
        params["document"] = one.document_id
    if finding.quote:
        params["quote"] = finding.quote
    if one.start is not None:
        params["quote_start"] = one.start
    if votes.asked:
        params |= {"judges_for": votes.agreed, "judges_asked": votes.asked}
    return params


def _position(finding: ParsedFinding, issues: Iterable[str]) -> str:
    """Return the position of the playbook that the model names, else the longest whose name is in the title."""
    names = {label(issue, limit=TITLE_CHARS): issue for issue in issues}
    if named := names.get(label(finding.position, limit=TITLE_CHARS)):
        return named
    title = f"_{label(finding.title, limit=TITLE_CHARS)}_"
    return max((issue for name, issue in names.items() if f"_{name}_" in title), key=len, default="")


# --- Drafts ---


def saves_drafts(work: Slice) -> bool:
    """Return whether files are written, and not only rows."""
    analysis = reply_of(work).analysis
    return work.spec.emit_artifacts and analysis is not None and bool(analysis.artifacts)


def _save_drafts(work: Slice, artifacts: tuple[ParsedArtifact, ...]) -> list[Note]:
    if not artifacts or not work.spec.emit_artifacts:
        return []
    collection = _collection(work)
    if not collection:
        text = f"The analysis came with {len(artifacts)} drafts, but the run has no collection to save them into."
        return [Note("note:no_collection", "info", "Drafts were not saved", text)]
    results = []
    for number, draft in enumerate(artifacts):
        params = {"collection": collection, "name": draft.name, "content": draft.content}
        results.append(journaled_call(work.session, ToolIntent.EMIT_ARTIFACT, f"artifact:{number}", params))
    return list(_about_drafts(results))


def _about_drafts(results: list[ToolResult]) -> Iterator[Note]:
    drafts = [result.data if result.ok else {"reason": result.error} for result in results]
    lost = [draft for draft in drafts if not draft.get("stored")]
    cut = sum(bool(draft.get("stored") and draft.get("truncated")) for draft in drafts)
    if lost:
        text = f"{len(lost)} of {len(drafts)} drafts could not be saved: {str(lost[0].get('reason'))[:SHOWN_ERROR]}"
        yield Note("note:unsaved", "warn", "Drafts could not be saved", text)
    if cut:
        text = f"{cut} of {len(drafts)} drafts were longer than a saved document may be; their ends are missing."
        yield Note("note:truncated", "info", "Drafts were cut", text)


def _collection(work: Slice) -> str:
    """Return the collection of the run, else that of its trigger."""
    if named := work.spec.collection:
        return named
    rows = Collection.objects.filter(triggers__sessions=work.session.pk, deleted_at__isnull=True)
    return str(rows.values_list("public_id", flat=True).first() or "")


# --- Notes ---


def _notes(work: Slice, reading: Reading, reply: Reply) -> Iterator[Note]:
    if reply.failed:
        key = CUT_OFF if reply.failed in _UNREADABLE else FAILED
        text = f"The model could not be asked, or gave no usable answer: {reply.failed[:SHOWN_ERROR]}"
        yield Note(key, "warn", "Analysis failed: nothing was produced", f"{text}\n\nNothing was checked.")
        return
    if reply.analysis is None:
        yield _reason_not_asked(work, reading)
    else:
        yield from _about(reply, reply.analysis)
    if reading.left_out:
        yield _left_out(reading)
    if reading.put_off:
        text = "Together with those that came in before them they pass the limit of one run; none of them is lost."
        yield Note("note:put_off", "info", f"Documents left for the next run: {reading.put_off}", text)
    if reading.words_only:
        text = f"Passages that say the same in other words may be missing: {reading.words_only}."
        yield Note("note:words_only", "info", "The documents were searched by words alone", text)


def _left_out(reading: Reading) -> Note:
    total = reading.documents + reading.left_out
    text = (
        f"{reading.documents} of {total} documents were read: all together they pass the limit of one run. "
        "To have the others read, run over a smaller collection, by a query, or over single documents."
    )
    return Note(LEFT_OUT, "warn", f"{reading.left_out} of {total} documents were not read", text)


def _reason_not_asked(work: Slice, reading: Reading) -> Note:
    """Return why there was no model request."""
    if not work.spec.has_target:
        text = "The run has no playbook, skill or goal. Give its trigger a playbook or a skill."
        return Note(NO_TARGET, "warn", "Nothing to check against", f"{text}\n\nNothing was checked.")
    if work.spec.baseline:
        text = f"This first run sets the baseline: the next one reads {_new_to(work)} from now on."
        return Note("note:baseline", "info", "Baseline set", f"{text} Nothing was analysed.")
    if reading.failed:
        text = f"What the run was to read could not be fetched: {reading.failed[:SHOWN_ERROR]}"
        return Note(UNREAD, "warn", "The documents could not be read", f"{text}\n\nNothing was checked.")
    if not reading.passages and (reading.left_out or reading.put_off):
        text = "There are documents, but none of them could be read in this run."
        return Note(UNREAD, "warn", "The documents were not read", f"{text}\n\nNothing was checked.")
    if work.spec.since and not reading.passages:
        text = f"The run was to read {_new_to(work)} since the last run, and there is nothing. Nothing was analysed."
        return Note("note:nothing_new", "info", "Nothing new since the last run", text)
    text = "The run was given no document, or documents without text. Nothing was analysed."
    return Note("note:nothing_to_read", "info", "Nothing to read", text)


def _new_to(work: Slice) -> str:
    """Describe what a run of a schedule reads."""
    what = "what fits its query in documents that are" if work.spec.query else "what is"
    return f"{what} put into {'the' if work.spec.collection else 'a'} collection"


def _about(reply: Reply, analysis: Analysis) -> Iterator[Note]:
    """Return what a reader has to know about the answer that the findings come from."""
    if reply.unread:
        missing = sum(one.end - one.start for one in reply.unread)
        lines = [f"- {one}" for one in reply.unread[:SHOWN_RANGES]]
        lines += [f"- and {len(reply.unread) - SHOWN_RANGES} more"] if len(reply.unread) > SHOWN_RANGES else []
        text = "Nothing is known about these parts. What a document lacks is only judged when all of it was read:"
        title = f"{missing:,} characters of the documents were not checked"
        yield Note(PARTIAL, "warn", title, "\n".join([text, *lines]))
    elif reply.unclosed:
        text = (
            f"All sections were checked, but not whether anything is missing from them: {reply.unclosed[:SHOWN_ERROR]}."
        )
        yield Note(UNCLOSED, "warn", "What is missing was not checked", text)
    if analysis.dropped:
        counts = ", ".join(f"{count} of {name}" for name, count in analysis.dropped.items())
        text = f"Items of the answer were repeated, without a text of their own, or too many: {counts}."
        yield Note("note:dropped", "info", "Parts of the answer were left out", text)
    if analysis.notes:
        listed = "\n".join(f"- {note}" for note in analysis.notes)
        yield Note("note:analyst", "info", "Notes of the analyst", listed)


# --- Delivery: a notification with counts and a link to the receipt; of content only names ---
#
# A run that found nothing but its own notes sends nothing: a baseline, nothing new, or documents without a fault. A
# run whose flagged concerns require approval waits here; without approval nothing is sent.


NOTIFY_KEY: Final = "delivery:notify"
PURPOSE_CHARS: Final = 120
TALLY: Final = "tally"  # in what a slice keeps
_FAULTS: Final = {
    FAILED: UNANSWERED_RUN,
    UNREAD: UNREAD_RUN,
    CUT_OFF: CUT_OFF_RUN,
    NO_TARGET: NO_TARGET_RUN,
    **dict.fromkeys((PARTIAL, UNCLOSED, LEFT_OUT), PARTIAL_RUN),
}
READ_BY_ANOTHER_VERSION: Final = "It was checked by another version of lqops; its findings say what came of it."
_WORDS: Final = {RunResult.PARTIAL: "Run partly done", RunResult.FAILED: "Run failed"}
_PROPOSED: Final = {  # singular, plural
    ToolIntent.PROPOSE_MEMORY: ("memory proposed", "memories proposed"),
    ToolIntent.PROPOSE_PRECEDENT: ("precedent noted", "precedents noted"),
    ToolIntent.EMIT_ARTIFACT: ("draft saved", "drafts saved"),
}


@dataclass(frozen=True)
class Tally:
    """Counts for the notification."""

    findings: Counter[str]  # about documents and the goal; the run's own notes and the review are none
    proposed: Counter[str]
    warnings: int
    concerns: int
    is_judged: bool  # the model's answer says of everything whether there is a concern
    result: RunResult
    reason: str
    fault: str  # why something was not checked that should have been

    @property
    def is_empty(self) -> bool:
        return not (self.findings or self.proposed or self.concerns)

    @property
    def is_quiet(self) -> bool:
        return self.is_empty and not self.warnings


def delivery_notes(work: Slice) -> dict[str, Any]:
    """Return what is noted when delivery begins: what came of the run and, if that is told, the run's name.

    The name is noted once: rows are renamed, and an approval holds for the words that were shown.
    """
    tally = _tally(work)
    notes = result_notes(tally.result, tally.reason, empty=tally.is_empty, fault=tally.fault)
    if _owner_is_notified(work, tally) and "purpose" not in work.session.metadata:
        notes["purpose"] = one_line(purposes([work.session])[work.session.pk], PURPOSE_CHARS)
    return notes


def delivery(work: Slice) -> End | None:
    session_note_new(work.session, delivery_notes(work))  # they stand there, unless it was entered long ago
    tally = _tally(work)
    if not _owner_is_notified(work, tally):
        return None
    risk = Risk.HIGH if _needs_review(work, tally) else None
    sent = journaled_call(work.session, ToolIntent.NOTIFY, NOTIFY_KEY, _notification(work, tally), risk=risk)
    if sent.outcome == Outcome.APPROVAL_PENDING:
        return Waiting(WaitingOn.APPROVAL)
    if sent.outcome not in {Outcome.SUCCESS, Outcome.DENIED}:
        raise NotStored(f"The notification could not be written ({sent.outcome}): {sent.error}")
    return None


def _needs_review(work: Slice, tally: Tally) -> bool:
    return work.spec.review_flagged and bool(tally.concerns or not tally.is_judged)


def _owner_is_notified(work: Slice, tally: Tally) -> bool:
    """Of an input that is tried several times the owner hears after the first run and after the last."""
    is_retried = tally.result == RunResult.FAILED and work.session.is_retry
    return not is_retried and (_needs_review(work, tally) or not tally.is_quiet)


def _tally(work: Slice) -> Tally:
    if TALLY not in work.kept:
        work.kept[TALLY] = _tally_of(work)
    tally: Tally = work.kept[TALLY]
    return tally


def _tally_of(work: Slice) -> Tally:
    results = stored_results(work.session)
    findings = by_severity(one.severity for one in results if one.key.startswith("finding:"))
    proposed = Counter(one.intent for one in results if one.intent in _PROPOSED)
    fault = next((_FAULTS[one.key] for one in results if one.key in _FAULTS), "")
    reply = reply_of(work)
    analysis = reply.analysis
    result, reason = _result(work, reply, found=bool(findings or proposed[ToolIntent.EMIT_ARTIFACT]), fault=fault)
    return Tally(
        findings=findings,
        proposed=proposed,
        warnings=sum(one.key.startswith("note:") and one.severity == "warn" for one in results),
        concerns=len(analysis.concerns) if analysis else 0,
        is_judged=reply.is_judged and not _was_read_by_another_version(reply, fault),
        result=result,
        reason=reason,
        fault=fault,
    )


def _result(work: Slice, reply: Reply, *, found: bool, fault: str) -> tuple[RunResult, str]:
    """Return the result of the run, and why, in words."""
    read = RunResult.FINDINGS if found else RunResult.OK
    if _was_read_by_another_version(reply, fault):
        return (RunResult.PARTIAL if fault else read), READ_BY_ANOTHER_VERSION
    if reply.failed:
        return RunResult.FAILED, f"Nothing was checked: {one_line(reply.failed, REASON_CHARS)}"
    if reply.analysis is None:
        why = _reason_not_asked(work, work.reading)
        return (RunResult.FAILED if why.severity == "warn" else RunResult.EMPTY), f"{why.title}."
    if fault:
        return RunResult.PARTIAL, _why_partial(work, reply)
    if work.spec.goal:
        return read, _of_goal(reply.analysis, found=found)
    return read, "Everything was checked." if found else "Everything was checked, and there is nothing to report."


def _was_read_by_another_version(reply: Reply, fault: str) -> bool:
    """Return whether drafting, which says so if nothing was checked, had an answer that cannot be read any more."""
    return bool(reply.failed) and fault not in {UNANSWERED_RUN, CUT_OFF_RUN}


def _of_goal(analysis: Analysis, *, found: bool) -> str:
    if not analysis.is_structured:
        return "The model answered in words of its own. Nothing in them was verified."
    return "The goal has a result." if found else "The goal has no result."


def _why_partial(work: Slice, reply: Reply) -> str:
    if reply.unread:
        first = one_line(str(reply.unread[0]), REASON_CHARS)
        others = len(reply.unread) - 1
        more = f"; and {others} more part{'' if others == 1 else 's'}" if others else ""
        return f"Not checked: {first}{more}"
    if reply.unclosed:
        return f"What is missing was not checked: {one_line(reply.unclosed, REASON_CHARS)}"
    return f"{work.reading.left_out} documents were not read."


def _notification(work: Slice, tally: Tally) -> dict[str, Any]:
    result = "nothing was checked" if tally.result == RunResult.FAILED else _counts(tally)
    lines = [f"Findings: {counted(tally.findings)}."]
    lines += [f"{count} {_PROPOSED[ToolIntent(intent)][count != 1]}." for intent, count in tally.proposed.items()]
    lines += [f"Privilege or scope concerns: {tally.concerns}."] if tally.concerns else []
    lines += [f"Warnings about the run itself: {tally.warnings}."] if tally.warnings else []
    lines += [f"Receipt: {receipt_path(work.session)}"]
    lines[:0] = [f"Result: {tally.result}. {tally.reason}"] if tally.fault else []
    ended = _WORDS.get(tally.result, "Run completed")
    return {"title": _title(work, f"{ended}: {result}"), "body": "\n".join(lines)}


def _counts(tally: Tally) -> str:
    counts = {"finding": tally.findings.total(), "concern": tally.concerns}
    told = [f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items() if count]
    return ", ".join(told) or "no findings"


def _title(work: Slice, result: str) -> str:
    """Name what the run was for, so that notifications can be told apart."""
    title = f"{result}, {work.session.metadata['purpose']}"
    return result if contains_marker(redact(title)) else title  # a call with a masked secret would be refused


# --- Ethics review: one finding with the privilege and scope concerns that the model raised ---
#
# It shows what the model flagged and judges nothing itself. A run without a model's answer has nothing to review.


REVIEW_KEY: Final = "ethics"
CAVEAT: Final = "A light review: these are the model's own concerns, not an independent judgement."
NONE: Final = "The model flagged no privilege or scope concern."
NO_VERDICT: Final = "The answers do not say of everything whether there is a concern: a person has to look."


def ethics_review(work: Slice) -> End | None:
    reply = reply_of(work)
    if reply.analysis is not None:
        review = _review(reply.analysis, is_judged=reply.is_judged)
        store(work.session, [(ToolIntent.EMIT_FINDING, REVIEW_KEY, review)])
    return None


def _review(analysis: Analysis, *, is_judged: bool) -> dict[str, Any]:
    if not analysis.concerns and not is_judged:
        return {
            "severity": "warn",
            "title": "Ethics review: no readable verdict",
            "content": f"{NO_VERDICT}\n\n{CAVEAT}",
        }
    if not analysis.concerns:
        text = f"{NONE}\n\n{CAVEAT}"
        return {"severity": "info", "title": "Ethics review: none flagged", "content": text, "about_run": True}
    parts = [
        "\n".join([f"{label}:", *(f"- {concern}" for concern in concerns)])
        for label, concerns in (("Privilege", analysis.privilege_concerns), ("Scope", analysis.scope_concerns))
        if concerns
    ]
    title = f"Ethics review: {len(analysis.concerns)} flagged"
    return {"severity": "warn", "title": title, "content": "\n\n".join([*parts, CAVEAT])}
