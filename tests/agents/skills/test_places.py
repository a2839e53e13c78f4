"""What isolated skills may read: what Python imports from, and never what is private."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.skills.places import private_places, readable_places, search_path, without_private


@pytest.fixture
def project(tmp_path, monkeypatch, settings):
    """A folder on the search path, as that of an installation, with its var folder inside."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), ""])
    for name in ("package", "space/inner", "data", "var/media", "deep/kept"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("package/__init__.py", "space/inner/module.py", "deep/module.py", "deep/kept/key", "deep/other.py"):
        (tmp_path / name).write_text("")
    for name in ("module.py", ".env", "notes.txt", "data/rows.csv", "var/key", "var/module.py", "zipped.zip"):
        (tmp_path / name).write_text("")
    settings.VAR_DIR = tmp_path / "var"
    settings.MEDIA_ROOT = tmp_path / "var" / "media"
    monkeypatch.setenv("LQOPS_SHOP_FILE", str(tmp_path / "deep" / "kept"))
    return tmp_path


def inside(project, places):
    return sorted(str(Path(place).relative_to(project)) for place in places if Path(place).is_relative_to(project))


def test_modules_and_packages_may_be_read_and_nothing_else(project):
    found = inside(project, readable_places("nothing"))
    assert found == ["deep/module.py", "deep/other.py", "module.py", "package", "space", "zipped.zip"]


def test_linked_package_may_be_read_where_it_is(project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "module.py").write_text("")
    (project / "linked").symlink_to(elsewhere)
    (project / "backdoor").symlink_to(project / "var")
    (project / "deep" / "again").symlink_to(project / "deep")

    places = readable_places("nothing")

    assert str(elsewhere) in places
    assert not [place for place in inside(project, places) if place.startswith(("var", "backdoor"))]


def test_archive_on_the_search_path_may_be_read(project, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(project / "zipped.zip"), str(project / "nowhere")])
    assert inside(project, readable_places("nothing")) == ["zipped.zip"]


def test_package_that_is_installed_from_elsewhere_may_be_read(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "editable", SimpleNamespace(__path__=[str(tmp_path / "source")]))
    monkeypatch.setitem(sys.modules, "single", SimpleNamespace(__file__=str(tmp_path / "single.py")))
    assert str(tmp_path / "source") in readable_places("editable.skills")
    assert str(tmp_path / "single.py") in readable_places("single")


def test_private_places_are_taken_out_of_declared_folders(project):
    assert inside(project, without_private([str(project / "deep")])) == ["deep/module.py", "deep/other.py"]
    assert without_private([str(project / "var")]) == []
    assert inside(project, without_private([str(project / "data")])) == ["data"]


@pytest.mark.parametrize(("engine", "listed"), [("django.db.backends.sqlite3", True), ("…postgresql", False)])
def test_database_file_is_private(settings, monkeypatch, tmp_path, engine, listed):
    monkeypatch.setitem(settings.DATABASES, "other", {"ENGINE": engine, "NAME": str(tmp_path / "rows")})
    assert ((tmp_path / "rows") in private_places()) == listed


def test_search_path_begins_with_lqops():
    assert (Path(search_path()[0]) / "agents" / "skills" / "places.py").exists()
    assert len(search_path()) == len(set(search_path()))
