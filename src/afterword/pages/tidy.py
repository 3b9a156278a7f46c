"""Texts that others wrote, made safe to show."""

from __future__ import annotations

import unicodedata


def tidy(text: str) -> str:
    """Return a text on one line that is safe to print: no control, direction or escape codes, no lone surrogates."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    plain = (" " if unicodedata.category(sign) == "Cc" else sign for sign in whole if not _turns(sign))
    return " ".join("".join(plain).split())


def _turns(sign: str) -> bool:
    """Tell whether a sign changes the direction of writing."""
    return "\u202a" <= sign <= "\u202e" or "\u2066" <= sign <= "\u2069"
