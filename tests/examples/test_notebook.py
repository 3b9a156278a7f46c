"""The notebook, cell by cell in a kernel of its own, with the packaged LLM and shorter answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

TOUR = Path(__file__).parent.parent.parent / "examples" / "tour.ipynb"
SHORTER = {"max_new_tokens=24": "max_new_tokens=6", "max_new_tokens=16": "max_new_tokens=4"}
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, startup_timeout=120).execute()
nbformat.write(notebook, sys.argv[1])
"""


def test_it_is_saved_without_output() -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.llm
def test_it_runs(tmp_path: Path) -> None:
    source = TOUR.read_text(encoding="utf-8")
    for there, here in SHORTER.items():
        assert there in source
        source = source.replace(there, here)
    copy = tmp_path / "tour.ipynb"
    copy.write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, copy], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    printed = [
        "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        for cell in nbformat.read(copy, as_version=4).cells
        if cell.cell_type == "code"
    ]
    assert printed[0].startswith("kept 40 of 40 queries")
    assert printed[1].count(" -> ") == 5
    assert "retrieval" in printed[2]
    assert printed[3].startswith("tensor([[")
    assert printed[4].count(" -> ") == 4
    assert len(printed[5].splitlines()) == 2
    assert printed[6].startswith("tensor([[")
    assert (tmp_path / "tour" / "training" / "model" / "model.safetensors").is_file()
