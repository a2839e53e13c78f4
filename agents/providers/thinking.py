"""What a model thinks before it answers, taken out of the text of its reply."""

from typing import Final

OPENING: Final = "<think>"
CLOSING: Final = "</think>"
UNOPENED: Final = "unopened"


class ThoughtFilter:
    """Drops `<think>…</think>` at the beginning of a text that comes in pieces.

    `reasoning` is what is declared of the model: False takes the text as it is; "unopened" begins inside the thinking,
    for chat templates that write the opening tag into the prompt.
    """

    def __init__(self, reasoning: object = None) -> None:
        self._begins = reasoning is not False  # nothing of the answer has come yet
        self._held = ""
        self.is_open = reasoning == UNOPENED
        self.has_any = self.is_open

    def note(self, thought: str) -> None:
        """Take note of thinking that came apart from the text: then the text is the answer."""
        if thought:
            self.has_any = True
            self.is_open = False

    def feed(self, text: str) -> str:
        """Return what is certain to belong to the answer."""
        self._held += text
        while True:
            if self.is_open:
                _, closing, rest = self._held.partition(CLOSING)
                self._held = rest if closing else self._held[1 - len(CLOSING) :]
                self.is_open = not closing
            if self.is_open:
                return ""
            begun = self._held.lstrip()
            if self._begins and begun.startswith(OPENING):
                self._held = begun.removeprefix(OPENING)
                self.is_open = self.has_any = True
            elif self._begins and OPENING.startswith(begun):
                return ""  # it may become the tag
            else:
                return self._release()

    def close(self) -> str:
        """Return what was held back, when no more comes."""
        return "" if self.is_open else self._release()

    def _release(self) -> str:
        text = self._held.lstrip() if self._begins and self.has_any else self._held
        self._held = ""
        self._begins = False
        return text
