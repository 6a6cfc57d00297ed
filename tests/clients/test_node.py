"""Clients on Node.js: `node.mjs` runs them."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
def test_every_flow_works(server):
    script = Path(__file__).parent / "node.mjs"
    result = subprocess.run(["node", script, server], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
