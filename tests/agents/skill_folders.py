"""A folder of skills of the test's own."""

import pytest

BODY = '# Read\n\nRead the report.\n\n## Rules\n\n- must mention: "date"\n'


def skill_md(name, body=BODY, **front):
    lines = [f"{key}: {value}" for key, value in {"name": name, "description": "Reads reports.", **front}.items()]
    return "\n".join(["---", *lines, "---", body])


@pytest.fixture
def root(tmp_path, settings):
    folder = tmp_path / "skills"
    folder.mkdir()
    settings.LQOPS_SKILL_FOLDERS = [folder]
    return folder


@pytest.fixture
def write_skill(root):
    """Writes a skill's folder: SKILL.md with the given front matter and body, and any further files."""

    def write(name="reader", *, files=None, text=None, **more):
        folder = root / name
        folder.mkdir(exist_ok=True)
        (folder / "SKILL.md").write_text(skill_md(name, **more) if text is None else text, encoding="utf-8")
        for path, content in (files or {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        return folder

    return write
