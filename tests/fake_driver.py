"""Builds the NVML of tests/fake_nvml.c, which reports the GPUs that a file names."""

import shutil
import subprocess
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake_nvml.c"


def build_fake_nvml(folder: Path, *options: str) -> Path:
    """The folder, with the library in it; skips the test where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing: .ci/headers installs it")
    folder.mkdir()
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *options]
    subprocess.run(
        [*command, "-Wl,-soname,libnvidia-ml.so.1", "-o", library, FAKE], check=True, timeout=60
    )
    return folder
