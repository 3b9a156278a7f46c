"""Saving to the hub."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterword.errors import AfterwordError, SettingError, WorkError
from afterword.model.card import render_card
from afterword.model.config import ModelConfig

CARD = "README.md"


def push_model(
    save: Callable[[str], None],
    config: ModelConfig,
    repo_id: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    commit_message: str = "Afterword model",
    revision: str | None = None,
    create_pr: bool = False,
    evaluation: str | Path | None = None,
) -> str:
    """Save a model to a repository on the hub, with a card that says how to load it from there.

    Args:
        save: Writes the model into a folder.
        config: The model's.
        repo_id: Name on the hub, `owner/name`; the repository is made if it is not there.
        token: Token of the hub; by default the one that you are logged in with.
        private: Whether a new repository is private.
        commit_message: What its history says.
        revision: Branch to save to, made if it is not there.
        create_pr: Propose it to the owner instead.
        evaluation: A report in Markdown for the card, such as the `report.md` of `afterword evaluate`.

    Returns:
        The address of the repository, or of the proposal.

    Raises:
        SettingError: The hub does not let you, or the name cannot be one.
        WorkError: The hub could not be reached, or failed.
    """
    report = Path(evaluation).read_text(encoding="utf-8") if evaluation is not None else None
    push = Push(repo_id, commit_message, revision, create_pr)
    return push.carry_out(save, render_card(config, repo_id, report), token, private)


@dataclass(frozen=True)
class Push:
    """What is done on the hub.

    Attributes:
        repo_id: Name of the repository, made if it is not there.
        message: What its history says.
        revision: Branch, made if it is not there; None for the main one.
        create_pr: Propose it to the owner instead.
    """

    repo_id: str
    message: str
    revision: str | None = None
    create_pr: bool = False

    def carry_out(self, save: Callable[[str], None], card: str, token: str | None, private: bool | None) -> str:
        """Upload what `save` writes, under another card, and return the address.

        Raises:
            SettingError: The hub does not let this user do it; or the name of the repository cannot be one.
            WorkError: The hub could not be reached, or failed.
        """
        from huggingface_hub import HfApi

        with tempfile.TemporaryDirectory() as folder:
            save(folder)
            (Path(folder) / CARD).write_text(card, encoding="utf-8")
            try:
                return self._upload(HfApi(token=token), folder, private)
            except Exception as error:  # of whichever of the libraries behind the hub's client
                raise self._said(error) from error

    def _upload(self, api: Any, folder: str, private: bool | None) -> str:
        api.create_repo(self.repo_id, private=private, exist_ok=True)
        if self.revision is not None and not self.create_pr:
            api.create_branch(self.repo_id, branch=self.revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=self.repo_id,
            folder_path=folder,
            commit_message=self.message,
            revision=self.revision,
            create_pr=self.create_pr,
        )
        return str(commit.pr_url if self.create_pr else commit.repo_url)

    def _said(self, error: Exception) -> AfterwordError:
        """Say an error of the hub in our words: whose fault it is decides the class."""
        reason = str(error).strip() or type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            return SettingError(
                f"the hub does not let you write to {self.repo_id}: log in with `hf auth login`, or give a token that "
                f"may write ({reason})"
            )
        if isinstance(error, ValueError) or status in (400, 404):
            return SettingError(f"the hub does not take {self.repo_id}: {reason}")
        return WorkError(f"saving to {self.repo_id} on the hub failed, nothing was lost here: {reason}")
