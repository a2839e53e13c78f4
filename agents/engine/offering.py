"""What a run works with, as its agent's definition says: the model it asks, and the skills that it is offered."""

from agents.conf import model_for
from agents.definitions.in_force import definition_of
from agents.models import Agent, SkillSetting
from agents.skills.registry import installed_skills
from agents.skills.skill import Skill


def model_of(agent: Agent | None) -> str:
    """The agent's own model, else the installation's."""
    chosen = definition_of(agent).model if agent else None
    return chosen or model_for("main")


def skills_of(agent: Agent | None) -> dict[str, Skill]:
    """Those that the definition names, else all that are installed; of either, those that are not disabled."""
    named = definition_of(agent).skills if agent else None
    disabled = set(SkillSetting.objects.filter(enabled=False).values_list("name", flat=True))
    offered = {name: skill for name, skill in installed_skills().items() if named is None or name in named}
    return {name: skill for name, skill in offered.items() if name not in disabled}
