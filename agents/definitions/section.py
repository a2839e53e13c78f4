"""What all sections of an agent.yaml have in common: no unknown keys, and a known one without a value counts as left
out."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {key: value for key, value in given.items() if value is not None or key not in cls.model_fields}
        return given
