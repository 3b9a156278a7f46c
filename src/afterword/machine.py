"""The machine that something was made or measured on, in words: what a reader needs to judge a figure."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_INFO = Path("/proc/cpuinfo")


def describe_machine(device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """Return what speed and rounding depend on besides the work.

    Args:
        device: Where the LLM runs.
        dtype: Type of its weights.

    Returns:
        `processor`, `cores`, `threads`, `device`, `dtype`, and the versions of Python and of the packages; on a CUDA
        device its name as `accelerator`.
    """
    import torch

    accelerator = {"accelerator": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return {
        "processor": processor_name(),
        "cores": str(os.cpu_count()),
        **accelerator,
        "threads": str(torch.get_num_threads()),
        "device": str(device),
        "dtype": str(dtype).removeprefix("torch."),
        **package_versions(),
    }


def processor_name() -> str:
    """Return the processor's name as its maker writes it, where the system tells it; else the architecture."""
    with suppress(OSError):
        for line in _INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    if sys.platform == "darwin":  # platform.processor() is "arm" there
        with suppress(OSError, subprocess.SubprocessError):
            asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    return platform.processor() or platform.machine()


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide what a stage produces, without importing them."""
    found = {"python": platform.python_version()}
    for package in ("torch", "transformers", "afterword"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
