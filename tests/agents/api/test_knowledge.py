"""Documents, collections, search, playbooks, projects, precedents and memories through the API."""

from unittest.mock import patch

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile

from agents.api import fields, knowledge
from agents.engine.indexing import index_start, run_index
from agents.knowledge.documents import bytes_path
from agents.models import Attachment, Document, Memory, Playbook, Project
from agents.runner import run_session
from tests.embeddings_wire import embedding
from tests.factories import NOW, make_user

from .conftest import client_of
from .world import TEXT, as_made, make_document, make_world

pytestmark = pytest.mark.usefixtures("rolled_back")  # in place of django_db, which every test would begin anew
DOCUMENTS = "/api/v1/documents"
PLAYBOOKS = "/api/v1/playbooks"
PROJECTS = "/api/v1/projects"


@pytest.fixture(scope="module")
def made(module_database):
    return make_world()


@pytest.fixture
def world(made, rolled_back):
    return as_made(made)


@pytest.fixture
def api(world):
    return client_of(world.owner)


def public(row):
    return str(row.public_id)


def upload(api, data=b"A lease of two years.", name="new.txt", **more):
    return api.post(DOCUMENTS, {"file": SimpleUploadedFile(name, data, "text/plain"), **more}, format="multipart")


# --- documents ---


def test_a_document_is_uploaded_once_and_attached(api, world):
    collection = world.rows["collection"]
    first = upload(api, collection=public(collection))
    assert first.status_code == 201
    assert (first.json()["name"], first.json()["size"]) == ("new.txt", 21)
    assert first.json()["collections"] == [public(collection)]
    again = upload(api, name="other.txt")
    assert (again.status_code, again.json()["id"], again.json()["name"]) == (200, first.json()["id"], "new.txt")


def test_document_gets_the_given_name(api):
    assert upload(api, name="a.txt").json()["name"] == "a.txt"
    answer = api.post(
        DOCUMENTS,
        {"file": SimpleUploadedFile("b.txt", b"Another.", "text/plain"), "name": "lease.txt"},
        format="multipart",
    )
    assert answer.json()["name"] == "lease.txt"


def test_file_name_cannot_leave_its_folder(api):
    result = upload(api, name="../../etc/passwd.txt").json()
    assert "/" not in result["name"]


def test_a_document_that_is_too_large_is_refused(api, monkeypatch):
    monkeypatch.setattr(knowledge, "MAX_BYTES", 10)
    assert upload(api).json()["code"] == "too_large"
    monkeypatch.setattr(fields, "MAX_BYTES", 10)
    monkeypatch.setattr(fields, "FORM_OVERHEAD", 0)
    with patch.object(knowledge, "document_add") as add:
        answer = upload(api)
    assert (answer.status_code, answer.json()["code"], add.called) == (413, "too_large", False)


def test_a_file_that_cannot_be_read_is_named_with_what_to_do(api):
    answer = upload(api, b"\x89PNG rubbish", "scan.png")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert "scan.png: It is an image. Run text recognition (OCR)" in answer.text


def test_an_upload_without_a_file_is_refused(api):
    for body in [{}, {"file": "not a file"}, {"collection": "x"}]:
        answer = api.post(DOCUMENTS, body, format="multipart")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), body


def test_an_upload_as_json_is_refused(api):
    assert api.post(DOCUMENTS, {"file": "x"}, format="json").status_code == 415


def test_upload_into_a_foreign_collection_stores_nothing(api):
    theirs = make_world()
    before = Document.objects.count()
    assert upload(api, collection=public(theirs.rows["collection"])).status_code == 404
    assert Document.objects.count() == before


def test_a_broken_form_is_refused(api):
    answer = api.generic("POST", DOCUMENTS, b"--b\r\nnonsense", content_type="multipart/form-data; boundary=b")
    assert answer.status_code in {400, 422}
    answer = api.generic("POST", DOCUMENTS, b"x", content_type="multipart/form-data")
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")


def test_download_is_an_attachment(api, world):
    html = make_document(
        world.owner, data=b"<script>alert(1)</script>", name='a"\r\nX: y\u202e.html', media_type="text/html"
    )
    answer = api.get(f"{DOCUMENTS}/{public(html)}/download")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment;")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer["Content-Security-Policy"]
    assert "X" not in answer


def test_a_download_whose_bytes_are_gone_is_not_found(api, world):
    document = make_document(world.owner, data=b"Soon gone.")
    bytes_path(document.digest).unlink()
    assert api.get(f"{DOCUMENTS}/{public(document)}/download").status_code == 404


def test_document_is_detached_and_attached(api, world):
    document, collection = world.rows["document"], world.rows["collection"]
    body = {"collection": public(collection)}
    address = f"{DOCUMENTS}/{public(document)}"
    assert api.post(f"{address}/detach", body, format="json").json()["collections"] == []
    assert api.post(f"{address}/detach", body, format="json").status_code == 404
    assert api.post(f"{address}/attach", body, format="json").json()["collections"] == [public(collection)]
    assert Attachment.objects.count() == 2


def test_deleted_document_is_gone_from_all_lists(api, world):
    document = world.rows["document"]
    address = f"{DOCUMENTS}/{public(document)}"
    assert api.get("/api/v1/search?q=lease").json()["results"]
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404
    assert api.get(f"{address}/download").status_code == 404
    assert api.get("/api/v1/search?q=lease").json()["results"] == []
    assert api.get(f"/api/v1/collections/{public(world.rows['collection'])}/documents").json()["count"] == 0


def test_documents_are_filtered(api, world):
    found = api.get(f"{DOCUMENTS}?digest={world.rows['document'].digest}").json()
    assert [row["id"] for row in found["results"]] == [public(world.rows["document"])]
    assert api.get(f"{DOCUMENTS}?origin=artifact").json()["count"] == 0


# --- collections and search ---


def test_a_collection_is_made_renamed_and_deleted(api, world):
    made = api.post("/api/v1/collections", {"name": "NDAs"}, format="json")
    assert (made.status_code, made.json()["documents"]) == (201, 0)
    address = f"/api/v1/collections/{made.json()['id']}"
    assert api.patch(address, {"name": "Old NDAs"}, format="json").json()["name"] == "Old NDAs"
    assert api.patch(address, {}, format="json").status_code == 422
    assert api.patch(address, {"name": "Leases"}, format="json").status_code == 422
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


def test_a_collection_counts_and_lists_its_documents(api, world):
    collection, document = world.rows["collection"], world.rows["document"]
    assert api.get(f"/api/v1/collections/{public(collection)}").json()["documents"] == 1
    [result] = api.get(f"/api/v1/collections/{public(collection)}/documents").json()["results"]
    assert result["id"] == public(document)


def test_search_finds_only_own_documents(api, world):
    make_world()
    [hit] = api.get("/api/v1/search?q=lease").json()["results"]
    assert hit["document"] == public(world.rows["document"])
    assert TEXT.decode()[hit["start"] : hit["end"]]
    within = public(world.rows["collection"])
    assert len(api.get(f"/api/v1/search?q=lease&collection={within}").json()["results"]) == 1
    assert api.get(f"/api/v1/search?q=lease&collection={public(make_world().rows['collection'])}").status_code == 404
    assert client_of(make_user()).get("/api/v1/search?q=lease").json()["results"] == []


# --- playbooks ---


def test_a_playbook_is_made_and_edited_into_a_new_version(api):
    position = {"issue": "Term", "severity": "warn", "standard": "Two years.", "fallbacks": ["One year."]}
    made = api.post(PLAYBOOKS, {"name": "NDA", "positions": [position]}, format="json")
    assert made.status_code == 201
    assert made.json()["positions"][0]["fallbacks"] == ["One year."]
    address = f"{PLAYBOOKS}/{made.json()['id']}"
    edited = api.patch(address, {"positions": [{**position, "must_contain": ["two years"]}]}, format="json").json()
    assert (edited["version"], edited["positions"][0]["must_contain"]) == (2, ["two years"])
    assert api.patch(address, {"name": "NDA 2"}, format="json").json()["version"] == 3
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


def test_invalid_playbook_is_refused(api):
    for body in [
        {"name": "x"},
        {"name": "", "positions": []},
        {"name": "x", "positions": [{}]},
        {"name": "x", "positions": [{"issue": "x", "isue": "y"}]},
        {"name": "x", "positions": [{"issue": "x", "fallbacks": "y"}]},
        {"name": "x", "positions": {"issue": "x"}},
        {"name": "x", "positions": [{"issue": "x" * 201}]},
        {"name": "x", "positions": [{"issue": "x"}], "version": 7},
    ]:
        assert api.post(PLAYBOOKS, body, format="json").status_code == 422, body


def test_a_patch_with_half_a_position_is_refused(api, world):
    for position in [{}, {"severity": "warn"}, {"issue": None}, {"issue": ""}, {"fallbacks": []}, 7, None]:
        address = f"{PLAYBOOKS}/{public(world.rows['playbook'])}"
        assert api.patch(address, {"positions": [position]}, format="json").status_code == 422, position


def test_exported_playbook_imports_unchanged(api, world):
    out = api.get(f"{PLAYBOOKS}/{public(world.rows['playbook'])}/export")
    assert out["Content-Type"].startswith("application/yaml")
    assert out["Content-Disposition"] == 'attachment; filename="Lease.yaml"'
    assert yaml.safe_load(out.content)["name"] == "Lease"
    same = api.post(f"{PLAYBOOKS}/import", out.content, content_type="application/yaml")
    assert (same.status_code, same.json()["version"]) == (200, 1)
    changed = out.content.decode().replace("Two years.", "Three years.")
    assert api.post(f"{PLAYBOOKS}/import", {"yaml": changed}, format="json").json()["version"] == 2
    assert Playbook.objects.count() == 1


def test_yaml_that_is_no_playbook_is_refused(api):
    for text in [
        "!!python/object/apply:os.system ['id']",
        "name: [",
        "- a",
        "",
        "&a [*a]",
        "name: x\npositions: 7",
        "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]",
        "name: x\nname: y",
        "\x00",
    ]:
        answer = api.post(f"{PLAYBOOKS}/import", text.encode(), content_type="application/yaml")
        assert answer.status_code == 422, (text, answer.content)


def test_yaml_that_is_no_text_is_refused(api):
    answer = api.post(f"{PLAYBOOKS}/import", b"\xff\xfe", content_type="application/yaml")
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")


# --- projects, agents, precedents, proposals, memories ---


def test_newer_project_context_is_not_overwritten(api, world):
    address = f"{PROJECTS}/{public(world.rows['project'])}"
    assert api.patch(address, {"context_md": "One.", "seen_version": 0}, format="json").json()["context_version"] == 1
    answer = api.patch(address, {"context_md": "Two.", "seen_version": 0}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_transition")
    assert Project.objects.get(pk=world.rows["project"].pk).context_md == "One."


def test_agent_with_sessions_cannot_be_deleted(api, world):
    from tests.factories import make_session

    agent = world.rows["agent"]
    make_session(owner=world.owner, agent=agent)
    address = f"/api/v1/agents/{public(agent)}"
    assert api.delete(address).status_code == 409
    assert (
        api.patch(address, {"enabled": False, "max_cost_per_day_usd": "1.5"}, format="json").json()["enabled"] is False
    )
    assert api.patch(address, {"mode": "auto"}, format="json").status_code == 403
    assert api.post("/api/v1/agents", {"name": agent.name}, format="json").status_code == 422


def test_precedent_reaches_context_when_accepted(api, world):
    precedent, project = world.rows["precedent"], world.rows["project"]
    answer = api.post(f"/api/v1/precedents/{public(precedent)}/promote", {"project": public(project)}, format="json")
    assert (answer.status_code, answer.json()["status"]) == (201, "proposed")
    project.refresh_from_db()
    assert project.context_md == ""
    address = f"/api/v1/proposals/{answer.json()['id']}"
    assert api.post(f"{address}/accept").json()["applied_version"] == 1
    project.refresh_from_db()
    assert "No term" in project.context_md
    assert api.post(f"{address}/retire").json()["retired_version"] == 2
    assert api.post(f"{address}/accept").status_code == 409


def test_precedents_are_compared_and_merged(api, world):
    row, into = world.rows["precedent"], world.similar
    into.summary = "There is no term"
    into.save()
    address = f"/api/v1/precedents/{public(row)}"
    assert [one["id"] for one in api.get(f"{address}/similar").json()["results"]] == [public(into)]
    merged = api.post(f"{address}/merge", {"into": public(into)}, format="json").json()
    assert (merged["ended_as"], merged["merged_into"]) == ("merged", public(into))
    kept = api.get(f"/api/v1/precedents/{public(into)}").json()
    assert (kept["observed_count"], kept["ended_as"]) == (2, "")
    assert 0 <= kept["weight"] <= 2
    assert api.post(f"{address}/merge", {"into": public(into)}, format="json").status_code == 409
    foreign = public(make_world().rows["precedent"])
    assert api.post(f"/api/v1/precedents/{public(into)}/merge", {"into": foreign}, format="json").status_code == 404


def test_line_of_a_proposal_is_changed_until_it_is_accepted(api, world):
    address = f"/api/v1/proposals/{public(world.rows['proposal'])}"
    assert api.patch(address, {"text": "Cap\nit."}, format="json").json()["text"] == "Cap it."
    api.post(f"{address}/accept")
    assert api.patch(address, {"text": "Too late."}, format="json").status_code == 409
    world.rows["project"].refresh_from_db()
    assert world.rows["project"].context_md == "Cap it."


def test_precedent_cannot_go_to_a_foreign_project(api, world):
    theirs = make_world().rows["project"]
    address = f"/api/v1/precedents/{public(world.rows['precedent'])}/promote"
    assert api.post(address, {"project": public(theirs)}, format="json").status_code == 404


def test_a_proposal_is_traced_to_the_runs_that_read_it(api, world):
    from tests.factories import make_session

    proposal = world.rows["proposal"]
    api.post(f"/api/v1/proposals/{public(proposal)}/accept")
    read = make_session(owner=world.owner, project=world.rows["project"], context_version=1)
    make_session(owner=world.owner, project=world.rows["project"])
    make_session(project=world.rows["project"], context_version=1)
    found = api.get(f"/api/v1/proposals/{public(proposal)}/trace").json()["results"]
    assert [row["id"] for row in found] == [public(read)]


def test_memory_is_kept_reworded_dismissed_and_deleted(api, world):
    memory = world.rows["memory"]
    address = f"/api/v1/memories/{public(memory)}"
    kept = api.post(f"{address}/keep", {"content": "Prefers two years."}, format="json").json()
    assert (kept["state"], kept["content"]) == ("kept", "Prefers two years.")
    assert api.get("/api/v1/memories?state=kept").json()["count"] == 1
    assert api.post(f"{address}/dismiss").json()["state"] == "dismissed"
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404
    assert api.post(f"{address}/keep").status_code == 404
    assert Memory.objects.get().deleted_at is not None


# --- search by meaning ---


def test_search_by_meaning_asks_once_and_says_what_found_each_hit(api, world):
    with embedding() as server:
        session = index_start(owner=world.owner, by=None, now=NOW)
        assert run_session(session.pk, run_index, owner="worker-1")
        asked = len(server.requests)
        query = "quit lease"
        posted = api.post("/api/v1/search", {"q": query}, format="json").json()
        again = api.get("/api/v1/search", {"q": query}).json()
        assert len(server.requests) == asked + 1
    assert posted["words_only"] == again["words_only"] == ""
    assert posted["results"] == again["results"]
    assert posted["results"][0]["found_by"] == "both"


def test_search_by_meaning_falls_back_to_words_and_says_so(api, world):
    with embedding():
        found = api.post("/api/v1/search", {"q": "lease"}, format="json").json()
    assert found["words_only"] == "no document is indexed yet"
    assert found["results"][0]["found_by"] == "words"


def test_search_by_meaning_needs_the_permission_to_start_runs(world):
    viewer = client_of(make_user())
    assert viewer.post("/api/v1/search", {"q": "lease"}, format="json").status_code == 403
    assert viewer.get("/api/v1/search", {"q": "lease"}).status_code == 200
