"""What is wrong with an agent.yaml: file, line, key, what was expected and what was found. Pure data."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agents.exceptions import Invalid

if TYPE_CHECKING:
    from agents.definitions.schema import AgentDefinition


@dataclass(frozen=True)
class Problem:
    """One thing to mend: `agent.yaml:12: autonomy.idle_timeout: expected a whole number …; got "soon"`."""

    file: str
    line: int
    key: str
    expected: str
    got: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.said}"

    @property
    def said(self) -> str:
        """The problem without its place."""
        key = f"{self.key}: " if self.key else ""
        return f"{key}expected {self.expected}{f'; got {self.got}' if self.got else ''}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "message": str(self)}


class DefinitionError(Invalid):
    """An agent.yaml cannot be taken as it is; every problem that was found is named."""

    def __init__(self, problems: tuple[Problem, ...], *, rest: "AgentDefinition | None" = None) -> None:
        """`rest` is what can be read of the text all the same, for who looks for more that is wrong."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
        self.rest = rest
