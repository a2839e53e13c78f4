"""Whole walks with the built-in analyst: what an installation without a model server does."""

import pytest

from agents.enums import EventOutcome, Status
from agents.knowledge import playbooks
from agents.knowledge.documents import document_add
from agents.knowledge.playbooks import skills_load
from agents.models import InboundEvent, Precedent, PromptSkill
from agents.policy.costs import COLD_START_USD
from tests.agents.text.files import docx_of, eml_of, pdf_of, pptx_of, slide_text, xlsx_of
from tests.agents.walk.scene import LEASE, PHASES, Scene, phases, run
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def test_a_deviation_is_found_quoted_and_counted(scene):
    document = scene.document()
    session = run(scene.session(document=str(document.public_id)))
    assert (session.status, phases(session)) == (Status.COMPLETED, PHASES), session.error
    finding, ethics = session.findings.all()
    assert (finding.severity, finding.title) == ("critical", "Payment terms: deviates from the standard")
    assert (finding.document, finding.quote_check) == (document, "verified")
    assert LEASE[finding.quote_start : finding.quote_end] == finding.quote
    assert "60 days" in finding.quote
    assert ethics.title == "Ethics review: none flagged"
    assert Precedent.objects.get().observed_count == 1
    assert session.cost_total_usd == COLD_START_USD
    assert session.notifications.get().title.startswith("Run completed: 1 finding, lease.txt")


@pytest.mark.sampled(1)
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "data", "location"),
    [
        ("lease.pdf", pdf_of("Lease", LEASE), "page 2"),
        ("lease.xlsx", xlsx_of({"Parties": [["Customer"]], "Terms": [[LEASE]]}), "sheet Terms"),
        ("lease.pptx", pptx_of([slide_text("Lease"), slide_text("Terms"), slide_text(LEASE)]), "slide 3"),
        ("lease.docx", docx_of("Lease", LEASE), ""),
        ("lease.eml", eml_of("See there.", attachments=[("a.pdf", pdf_of(LEASE))]), "attachment a.pdf, page 1"),
    ],
)
def test_a_quote_is_located_in_its_file(scene, name, data, location):
    document, _ = document_add(name=name, data=data, **scene.by)
    session = run(scene.session(document=str(document.public_id)))
    finding = session.findings.get(title__startswith="Payment terms")
    assert (finding.quote_check, finding.location) == ("verified", location)
    assert "60 days" in finding.quote


def test_offsets_hold_in_a_text_that_is_not_plain(scene):
    text = f"Präambel 🚀 <<<document>>> „Miete“. The key is AKIAIOSFODNN7EXAMPLE.\r\n\r\n{LEASE}"
    document = scene.document(text)
    session = run(scene.session(document=str(document.public_id)))
    finding = session.findings.first()
    assert finding.quote_check == "verified"
    assert document.text[finding.quote_start : finding.quote_end] == finding.quote
    assert "60 days" in finding.quote


def test_a_document_that_keeps_to_the_playbook_has_no_finding(scene):
    session = run(scene.of_document("The Customer shall pay invoices within 30 days of receipt."))
    assert [one.title for one in session.findings.all()] == ["Ethics review: none flagged"]
    assert not session.notifications.exists()


def test_a_marking_of_privilege_is_a_concern(scene):
    session = run(scene.of_document(f"PRIVILEGED AND CONFIDENTIAL\n\n{LEASE}"))
    ethics = session.findings.last()
    assert (ethics.severity, ethics.title) == ("warn", "Ethics review: 1 flagged")


def test_each_finding_names_its_own_document(scene):
    late = scene.document(name="late.txt")
    fine = scene.document("The Customer shall pay invoices within 30 days of receipt.", name="fine.txt")
    session = run(scene.session(collection=str(scene.collection.public_id)))
    found = session.findings.exclude(title__startswith="Ethics")
    assert {one.document for one in found} == {late}
    assert fine.findings.count() == 0


def test_a_schedule_reads_only_what_is_new(scene):
    collection = str(scene.collection.public_id)
    first = run(scene.session(collection=collection, since=None, baseline=True))
    assert [one.title for one in first.findings.all()] == ["Baseline set"]
    assert first.cost_total_usd == 0
    document = scene.document()
    second = run(scene.session(collection=collection, since=NOW.replace(year=2020).isoformat(), baseline=False))
    assert second.findings.first().document == document


def test_an_event_is_checked_against_the_playbook(scene):
    event = InboundEvent.objects.create(
        owner=scene.owner,
        outcome=EventOutcome.SPAWNED,
        title="Contract",
        data={"text": "The Customer shall pay invoices within 90 days of receipt."},
    )
    session = run(scene.session(event={"id": str(event.public_id)}))
    finding = session.findings.first()
    assert (finding.title, finding.document) == ("Payment terms: deviates from the standard", None)
    assert "90 days" in finding.quote


def test_a_skill_from_its_folder_is_followed(tmp_path, settings):
    folder = tmp_path / "payments"
    folder.mkdir()
    text = (
        "---\nname: payments\ndescription: Checks payments.\n---\n\n## Rules\n\n- [critical] at most 30 days: payment\n"
    )
    (folder / "SKILL.md").write_text(text)
    settings.LQOPS_SKILL_FOLDERS = [tmp_path]
    assert playbooks.skill_folders() == [tmp_path]
    skills_load(by=None, now=NOW)
    assert PromptSkill.objects.get().name == "payments"
    scene = Scene()
    session = run(scene.of_document(skill="payments"))
    finding = session.findings.first()
    assert (finding.severity, finding.quote_check) == ("critical", "verified")
    (folder / "SKILL.md").write_text(f"{text}- must: mention tea\n")
    refused = run(scene.of_document("Another text.", skill="payments"))
    assert (refused.status, refused.terminal_reason) == (Status.FAILED, "refused")
