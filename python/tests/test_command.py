"""The command `peri` that the package installs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import perihelion

PERI = Path(sysconfig.get_path("scripts")) / ("peri.exe" if os.name == "nt" else "peri")


def run(command: list[str | Path], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("command", [[PERI], [sys.executable, "-m", "perihelion"]], ids=["script", "module"])
def test_the_command_runs_under_both_names(command: list[str | Path]) -> None:
    if command == [PERI] and not PERI.exists():
        pytest.skip("the script is not installed")
    version = run(command, "--version")
    assert version.stdout.startswith(f"peri {perihelion.__version__} (")
    story = run(command, "generate", "Once upon a time", "--seed", "1", "-n", "5")
    assert story.returncode == 0 and story.stdout.startswith("Once upon a time"), story.stderr


def test_wrong_arguments_exit_with_2() -> None:
    result = run([sys.executable, "-m", "perihelion"], "generate", "--no-such-flag")
    assert result.returncode == 2
    assert result.stderr.startswith("peri: unexpected argument '--no-such-flag'"), result.stderr
    assert result.stderr.endswith("see `peri generate --help`\n")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_exits_with_130_and_no_traceback() -> None:
    command = [sys.executable, "-m", "perihelion", "generate", "Once", "-n", "2000", "--ignore-eos"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.read(20)
    child.send_signal(signal.SIGINT)
    since = time.monotonic()
    _, errors = child.communicate(timeout=20)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert time.monotonic() - since < 10
