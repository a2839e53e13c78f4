"""Reports as Markdown. The text is given back and stored nowhere."""

from typing import Annotated, Final

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from agents.enums import Level
from agents.skills.skill import skill
from agents.text.clean import one_line

HEADING_CHARS: Final = 200
TEXT_CHARS: Final = 50_000
MOST_SECTIONS: Final = 50


class Section(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc] # how pydantic is told

    heading: Annotated[str, Field(min_length=1, max_length=HEADING_CHARS)]
    text: Annotated[str, Field(max_length=TEXT_CHARS, description="Markdown.")]


@skill(level=Level.SAFE, side_effects=False, local=True)
def render_report(
    title: Annotated[str, Field(min_length=1, max_length=HEADING_CHARS)],
    sections: Annotated[list[Section], Field(min_length=1, max_length=MOST_SECTIONS)],
) -> str:
    """Puts a title and sections together into one Markdown text, and gives it back. It keeps and sends nothing."""
    parts = [f"# {_line(title)}"]
    for section in sections:
        parts.append(f"## {_line(section['heading'])}")
        if text := section["text"].strip():
            parts.append(text)
    return "\n\n".join(parts) + "\n"


def _line(text: str) -> str:
    """A heading is one line, and does not begin with a sign that makes another heading of it."""
    return one_line(text, HEADING_CHARS).lstrip("# ") or "(untitled)"
