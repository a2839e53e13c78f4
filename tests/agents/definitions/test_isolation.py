"""No agent can change its own limits: nothing that a model can call leads to a writer of definitions."""

from pathlib import Path

from agents.skills.registry import installed_skills
from tests.table import every_row

AGENTS = Path(__file__).resolve().parents[3] / "agents"
WRITERS = ("agents.roster.files", "agents.roster.agents ", "definition_write", "agent_import")
REACHED = ("guard", "skills", "builtin_skills", "engine", "walk", "loop", "sensors")


@every_row("part", REACHED)
def test_code_that_serves_a_model_imports_no_definition_writer(part):
    files = list((AGENTS / part).rglob("*.py"))
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not [writer for writer in WRITERS if writer in text], path


def test_no_skill_takes_agent_settings():
    held = {"autonomy", "definition", "guardrails", "token_budget_per_hour", "idle_timeout", "max_consecutive_turns"}
    for skill in installed_skills().values():
        assert not held & set(skill.arguments_model.model_fields), skill.name
