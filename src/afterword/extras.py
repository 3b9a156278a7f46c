"""Optional packages: one check, one message."""

from __future__ import annotations

from importlib.util import find_spec

from afterword.errors import MissingExtraError


def require_extra(extra: str, *modules: str) -> None:
    """Make sure that the modules of an extra can be imported.

    Args:
        extra: Name of the extra in `pyproject.toml`, such as `"demo"`.
        modules: Top-level modules that the extra brings.

    Raises:
        MissingExtraError: Names the missing modules and the command that installs them.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        raise MissingExtraError(f"this needs {names}, which is not installed: pip install 'afterword[{extra}]'")
