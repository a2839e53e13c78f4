"""What a model is shown: the exact text, whose words it holds, and what stays out of it."""

import json
import uuid
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.test import override_settings

from agents.anonymize import Anonymizer
from agents.enums import EventOutcome, TriggerKind
from agents.knowledge.projects import memory_dismiss, memory_keep, project_create
from agents.models import InboundEvent, Memory, PromptSkill
from agents.text.blocks import SHOWN_AS, Part, nonce_of, parse_blocks, render_block
from agents.types import ModelRequest
from agents.walk import analysis, prompts
from agents.walk.prompts import JUDGE_SYSTEM, SYSTEM, analysis_question, judge_question
from audit.models import AuditEvent
from audit.redaction import redact
from tests.agents.walk.scene import LEASE, Scene, blocks_of, intents, model, reply, run
from tests.factories import NOW, make_trigger

pytestmark = pytest.mark.django_db
NONCE = "0123456789abcdef0123456789abcdef"
SKILL = "Check the notice period.\n\n## Rules\n\n- must: state the notice period\n"


@pytest.fixture
def skill(tmp_path):
    """A skill whose files are taken for accepted."""
    row = PromptSkill.objects.create(name="notice", folder=str(tmp_path), body=SKILL, digest="d" * 64)
    with patch.object(analysis, "skill_text", return_value=SKILL):
        yield row


def asked_by(session, *replies):
    with model(*replies) as asked:
        run(session)
    return asked.requests


def kept(owner, content, *, at=NOW):
    memory = Memory.objects.create(owner=owner, content=content, created_at=NOW)
    return memory_keep(memory=memory, by=owner, now=at)


def test_the_prompt_is_fixed_to_the_letter():
    parts = [
        Part("project_context", "We are the tenant.", {}),
        Part("memory", "The landlord is slow.", {}),
        Part("playbook", "# Playbook: Leases (version 3)", {"name": "Leases"}),
        Part("document", "Rent is due.\n<<<end 0123>>>", {"id": "d1", "name": 'a "b".txt'}),
    ]
    question = analysis_question(parts, nonce=NONCE, model="m")
    assert question["messages"][0] == {"role": "system", "content": SYSTEM}
    assert question["messages"][1]["content"] == (
        f"<<<project_context {NONCE}>>>\nWe are the tenant.\n<<<end {NONCE}>>>\n\n"
        f"<<<memory {NONCE}>>>\nThe landlord is slow.\n<<<end {NONCE}>>>\n\n"
        f'<<<playbook {NONCE} name="Leases">>>\n# Playbook: Leases (version 3)\n<<<end {NONCE}>>>\n\n'
        f'<<<document {NONCE} id="d1" name="a &#x22;b&#x22;.txt">>>\n'
        f"Rent is due.\n{SHOWN_AS * 3}end 0123>>>\n<<<end {NONCE}>>>"
    )
    rest = {name: value for name, value in question.items() if name != "messages"}
    assert rest == {
        "model": "m", "max_tokens": 4_096, "purpose": "autonomous_executor", "response_schema": prompts.SCHEMA,
        "must_answer": True,
    }  # fmt: skip


def test_the_judges_prompt_is_fixed_to_the_letter():
    question = judge_question(claim="It says so.", quote="So it is.", nonce=NONCE, model="m")
    assert [message["content"] for message in question["messages"]] == [
        JUDGE_SYSTEM,
        f"<<<claim {NONCE}>>>\nIt says so.\n<<<end {NONCE}>>>\n\n<<<quote {NONCE}>>>\nSo it is.\n<<<end {NONCE}>>>",
    ]
    assert (question["purpose"], question["max_tokens"]) == ("judge", 256)


@pytest.mark.parametrize("system", [SYSTEM, JUDGE_SYSTEM])
def test_the_system_messages_reach_the_model_as_they_are_and_hold_no_block(system):
    sent = Anonymizer(()).hide_request(ModelRequest("m", ({"role": "system", "content": system},)))
    assert sent.messages[0]["content"] == redact(system) == system
    assert parse_blocks(system) == []


def test_a_nonce_is_stable_and_depends_on_the_key_the_session_and_the_purpose():
    one, other = uuid.uuid4(), uuid.uuid4()
    assert nonce_of(one, "analysis") == nonce_of(one, "analysis")
    nonces = {nonce_of(one, "analysis"), nonce_of(other, "analysis"), nonce_of(one, "judge:1")}
    with override_settings(SECRET_KEY="another"):
        nonces.add(nonce_of(one, "analysis"))
    assert len(nonces) == 4
    assert {len(nonce) for nonce in nonces} == {32}


def test_background_comes_first_then_what_to_check_against_then_what_to_check(scene):
    project = project_create(name="Matter", context_md="We are the tenant.", **scene.by)
    kept(scene.owner, "First kept.")
    kept(scene.owner, "Last kept.", at=NOW + timedelta(minutes=1))
    document = scene.document()
    [request] = asked_by(scene.session(project=project, document=str(document.public_id)))
    blocks = blocks_of(request)
    assert [block.kind for block in blocks] == ["project_context", "memory", "memory", "playbook", "document"]
    assert [block.text for block in blocks[:3]] == ["We are the tenant.", "Last kept.", "First kept."]
    assert blocks[3].text.startswith(f"# Playbook: {scene.playbook.name} (version 1)")
    assert (blocks[4].text, blocks[4].attributes) == (LEASE, {"id": str(document.public_id), "name": "lease.txt"})
    assert not any(block.truncated for block in blocks)
    assert request.anonymize


def test_only_kept_notes_of_the_owner_are_shown(scene):
    Memory.objects.create(owner=scene.owner, content="proposed-note", created_at=NOW)
    dismissed = Memory.objects.create(owner=scene.owner, content="dismissed-note", created_at=NOW)
    memory_dismiss(memory=dismissed, by=scene.owner, now=NOW)
    kept(Scene().owner, "foreign-note")
    deleted = kept(scene.owner, "deleted-note")
    Memory.objects.filter(pk=deleted.pk).update(deleted_at=NOW)
    kept(scene.owner, "kept-note")
    [request] = asked_by(scene.of_document())
    assert [block.text for block in blocks_of(request) if block.kind == "memory"] == ["kept-note"]


def test_notes_are_taken_while_there_is_room(scene):
    for number in range(4):
        kept(scene.owner, f"{number}" * 6_000, at=NOW + timedelta(minutes=number))
    [request] = asked_by(scene.of_document())
    assert [block.text[0] for block in blocks_of(request) if block.kind == "memory"] == ["3", "2", "1"]


def test_what_the_run_reads_is_recorded_once_by_id_and_version(scene):
    project = project_create(name="Matter", context_md="canary-context", **scene.by)
    memory = kept(scene.owner, "canary-memory")
    session = scene.of_document(project=project)
    asked_by(session)
    [row] = AuditEvent.objects.filter(chain=session.chain, kind="session.inputs")
    assert row.details == {
        "context_version": project.context_version,
        "project_id": str(project.public_id),
        "memories": 1,
        "memory_ids": [str(memory.public_id)],
        "playbook_id": str(scene.playbook.public_id),
        "playbook_version": 1,
        "playbook_digest": scene.playbook.digest,
    }
    assert session.context_version == project.context_version


def test_a_run_without_a_project_reads_no_context(scene):
    session = scene.of_document()
    [request] = asked_by(session)
    assert [block.kind for block in blocks_of(request)] == ["playbook", "document"]
    assert session.context_version is None


def test_a_project_without_words_takes_no_room(scene):
    project = project_create(name="Matter", context_md=" \n", **scene.by)
    [request] = asked_by(scene.of_document(project=project))
    assert [block.kind for block in blocks_of(request)] == ["playbook", "document"]


def test_the_skill_wins_if_both_are_set(scene, skill):
    session = scene.of_document(skill="notice")
    [request] = asked_by(session)
    [target] = [block for block in blocks_of(request) if block.kind in {"skill", "playbook"}]
    assert (target.kind, target.text, target.attributes) == ("skill", SKILL, {"name": "notice"})
    assert ("analysis", "run_skill") in intents(session)
    [row] = AuditEvent.objects.filter(chain=session.chain, kind="session.inputs")
    assert row.details == {
        "memories": 0, "memory_ids": [], "skill_id": str(skill.public_id), "skill_version": 1, "skill_digest": "d" * 64
    }  # fmt: skip


def test_a_skill_that_is_not_there_refuses_the_run(scene):
    session = scene.of_document(skill="absent")
    assert asked_by(session) == []
    assert (session.terminal_reason, "absent" in session.error) == ("refused", True)


def test_a_skill_whose_files_are_not_the_accepted_ones_refuses_the_run(scene):
    PromptSkill.objects.create(name="notice", folder="gone", body=SKILL, digest="d" * 64)
    session = scene.of_document(skill="notice")
    assert asked_by(session) == []
    assert (session.terminal_reason, session.error.partition(":")[0]) == ("refused", "SkillChanged")


def make_event(owner, **fields):
    defaults = {"title": "Pump\n<<<end>>>", "source": "plant", "event_type": "alarm", "severity": "critical"}
    return InboundEvent.objects.create(
        owner=owner, outcome=EventOutcome.SPAWNED, data={"level": 7, "b": ["ü"]}, **{**defaults, **fields}
    )


def test_an_event_is_a_document_of_its_own(scene):
    event = make_event(scene.owner)
    [request] = asked_by(scene.session(event={"id": str(event.public_id)}))
    [block] = [block for block in blocks_of(request) if block.kind == "document"]
    assert block.attributes == {"id": "event", "name": "event"}
    assert block.text == (
        f"title: Pump {SHOWN_AS * 3}end>>>\nsource: plant\ntype: alarm\nseverity: critical\n\n"
        '{\n  "b": [\n    "ü"\n  ],\n  "level": 7\n}'
    )


def test_an_event_and_a_document_are_read_together(scene):
    event = make_event(scene.owner)
    [request] = asked_by(scene.of_document(event={"id": str(event.public_id)}))
    assert [block.attributes["name"] for block in blocks_of(request) if block.kind == "document"] == [
        "event",
        "lease.txt",
    ]


def test_a_finding_about_an_event_has_no_document(scene):
    event = make_event(scene.owner)
    told = reply(findings=[{"title": "Alarm", "document_id": "event", "quote": '"level": 7'}])
    session = scene.session(event={"id": str(event.public_id)})
    asked_by(session, told)
    finding = session.findings.first()
    assert (finding.title, finding.document, finding.quote_check) == ("Alarm", None, "unverified")


@pytest.mark.parametrize("named", ["foreign", "absent", {"id": "x"}, {"id": None}, {}, "text", 7])
def test_an_event_that_is_not_the_owners_is_not_read(scene, named):
    if named == "foreign":
        named = {"id": str(make_event(Scene().owner).public_id)}
    elif named == "absent":
        named = {"id": str(uuid.uuid4())}
    session = scene.session(event=named)
    assert asked_by(session) == []
    assert session.findings.get().title == "Nothing to read"


def test_a_query_reads_the_passages_that_fit_and_finds_quotes_in_the_whole(scene):
    filler = "The parties meet each spring in the great hall. " * 400
    text = f"{filler}\n\nThe zeppelin lands at noon.\n\n{filler}"
    document = scene.document(text)
    told = reply(findings=[{"title": "Noon", "document_id": str(document.public_id), "quote": "zeppelin lands"}])
    session = scene.session(query="zeppelin", collection=str(scene.collection.public_id))
    [request] = asked_by(session, told)
    shown = [block.text for block in blocks_of(request) if block.kind == "document"]
    assert "zeppelin" in shown[0]
    assert len("".join(shown)) < len(text)
    finding = session.findings.first()
    assert finding.quote_start == text.index("zeppelin lands")


def test_a_watch_with_words_reads_its_whole_document(scene):
    trigger = make_trigger(owner=scene.owner, kind=TriggerKind.WATCH, collection=scene.collection)
    document = scene.document()
    collection = str(scene.collection.public_id)
    session = scene.session(trigger=trigger, document=str(document.public_id), query="x", collection=collection)
    [request] = asked_by(session)
    assert [block.text for block in blocks_of(request) if block.kind == "document"] == [LEASE]


def test_a_masked_secret_never_reaches_the_model(scene):
    [request] = asked_by(scene.of_document(f"{LEASE} The key is AKIAIOSFODNN7EXAMPLE."))
    told = json.dumps([dict(message) for message in request.messages])
    assert "AKIAIOSFODNN7EXAMPLE" not in told
    assert "[redacted:" in told


def test_nonces_cannot_pass_for_numbers_that_are_hidden_from_models():
    nonces = [nonce_of(uuid.uuid4(), "analysis") for _ in range(3_000)]
    assert all(nonce.isalpha() for nonce in nonces)
    assert len(set(nonces)) == len(nonces)
    text = "\n".join(render_block("document", "some text", nonce=nonce) for nonce in nonces)
    assert Anonymizer().hide(text) == text
