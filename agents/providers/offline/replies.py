"""Replies of the offline provider: what it says of itself, and how a text is fitted into the tokens of a request.

A token is counted as four bytes of UTF-8, rounded up.
"""

DESCRIPTION = "rule-based text matching; not a language model; finds only what its rules describe"
_BYTES_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def cut_to_fit(text: str, max_tokens: int) -> tuple[str, bool]:
    """Return the text, cut at the last token that fits, and whether it is whole."""
    if count_tokens(text) <= max_tokens:
        return text, True
    raw = text.encode("utf-8", "surrogatepass")
    return raw[: max(0, max_tokens) * _BYTES_PER_TOKEN].decode("utf-8", "ignore"), False


def first_that_fits(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """Return the fullest form that fits, and whether it is the first; part of an answer would be another answer."""
    return next(((text, text == texts[0]) for text in texts if count_tokens(text) <= max_tokens), ("", False))


def shortened(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}…"
