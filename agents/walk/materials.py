"""What a run is to judge by and to judge: its project, kept notes, its playbook, skill or goal, the event, documents.

Read from rows as they are now; which versions were read is told with them, by id.
"""

from dataclasses import replace
from hashlib import sha256
from typing import Final

from agents.exceptions import NotFound
from agents.knowledge.playbooks import playbook_rendered, playbook_runnable, skill_text
from agents.models import AgentSession, Memory, PromptSkill
from agents.sessions.transcripts import Inputs
from agents.walk.calls import Slice
from agents.walk.intake import event_of, reading_of
from agents.walk.prompts import Part

MOST_MEMORIES: Final = 50
MEMORY_CHARS: Final = 20_000


def assembled(work: Slice) -> tuple[list[Part], Inputs]:
    """Background first, then what to check against, then what to check."""
    session, project = work.session, work.session.project
    inputs, parts = Inputs(), []
    if project is not None:
        inputs = Inputs(context_version=project.context_version, project_id=str(project.public_id))
        parts += [Part("project_context", project.context_md, {})] if project.context_md.strip() else []
    memories = _memories(session)
    parts += [Part("memory", memory.content, {}) for memory in memories]
    targets, inputs = _targets(work, replace(inputs, memory_ids=tuple(str(memory.public_id) for memory in memories)))
    event = event_of(session)
    documents = [
        Part("document", passage.text, {"id": passage.document_id, "name": passage.name})
        for passage in reading_of(work).passages
    ]
    return [*parts, *targets, *([event] if event else []), *documents], inputs


def _targets(work: Slice, inputs: Inputs) -> tuple[list[Part], Inputs]:
    """What to work towards, what to check against, or both."""
    goal = work.param("goal")
    if goal:
        inputs = replace(inputs, goal_digest=sha256(goal.encode()).hexdigest())
    parts = [Part("goal", goal, {})] if goal else []
    if goal and not work.param("skill") and not work.param("playbook"):
        return parts, inputs
    standard, inputs = _standard(work, inputs)
    return [*parts, standard], inputs


def _standard(work: Slice, inputs: Inputs) -> tuple[Part, Inputs]:
    """What to check against. If both are set, the skill wins."""
    if name := work.param("skill"):
        skill = PromptSkill.objects.filter(name=name).first()
        if skill is None:
            raise NotFound(f"There is no skill named {name!r}; the run cannot follow it.")
        part = Part("skill", skill_text(skill), {"name": skill.name})
        return part, replace(inputs, skill_id=str(skill.public_id), skill_digest=skill.digest)
    playbook = playbook_runnable(owner_id=work.session.owner_id, public_id=work.param("playbook"))
    used = replace(
        inputs,
        playbook_id=str(playbook.public_id),
        playbook_version=playbook.version,
        playbook_digest=playbook.digest,
    )
    return Part("playbook", playbook_rendered(playbook), {"name": playbook.name}), used


def _memories(session: AgentSession) -> list[Memory]:
    """Kept notes of the owner, newest kept first, as many as there is room for."""
    chosen, room = [], MEMORY_CHARS
    for memory in Memory.objects.filter(owner_id=session.owner_id).kept()[:MOST_MEMORIES]:
        room -= len(memory.content)
        if room < 0:
            break
        chosen.append(memory)
    return chosen
