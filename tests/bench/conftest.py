"""The command's own world."""

from tests.cli.conftest import backbone_flags, queries, teacher_folder, verbosity

__all__ = ["backbone_flags", "queries", "teacher_folder", "verbosity"]
