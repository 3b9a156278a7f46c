"""The scripts beside the package start: what they import is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    "name", ["quality.py", "time_to_quality.py", "search.py", "serving.py", "peers/compare.py", "peers/ours.py"]
)
def test_a_script_finds_what_it_imports(name: str) -> None:
    code = f"import runpy; assert 'main' in runpy.run_path({str(SCRIPTS / name)!r}, run_name='imported')"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
