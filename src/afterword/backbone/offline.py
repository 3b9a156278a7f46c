"""Whether the hub can be asked, found out once.

The hub's client asks again and again before it takes what is cached, and a model is many files: without a network,
loading took seven minutes. One question that nobody answers is enough to know.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

PATIENCE = 5.0
"""Seconds to wait for an answer."""


def from_cache_only(name: str) -> bool:
    """Return whether a model is to be taken from the cache as it is: it has a name on the hub, and the hub is silent.

    Args:
        name: A folder, or a name on the hub.
    """
    return not Path(name).expanduser().is_dir() and hub_is_silent()


@cache
def hub_is_silent() -> bool:
    """Return whether the hub is switched off by `HF_HUB_OFFLINE`, or does not answer."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return True
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # of whichever library the client stands on: none of them is an answer
        return True
    return False
