"""Inputs that went wrong in public reports, each with the answer that is right."""

import os
import subprocess
import sys

import pytest
from conftest import DATA

REPORTS = DATA / "reports"
CASES = sorted(path.stem for path in (REPORTS / "cases").glob("*.json"))


@pytest.mark.skipif(not CASES, reason="the shared data has no reports")
@pytest.mark.parametrize("case", CASES or [None])
def test_the_answer_is_right(case):
    run = subprocess.run(
        [sys.executable, REPORTS / "bug.py", case], env=os.environ | {"PERI_DATA": str(DATA)}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
