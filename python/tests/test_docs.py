"""The Python blocks of the pages run; the blocks of a page share a namespace."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/python.md", "docs/coming-from.md"]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert blocks
    names: dict[str, object] = {"array": np.ones(3, "float32")}
    (tmp_path / "model.graph").write_text("graph twice(%x: f32[n]) { %y = add(%x, %x) return %y }")
    for block in blocks:
        # So that tracebacks show the line of the page.
        before = text[: block.start(1)].count("\n")
        exec(compile("\n" * before + block[1], page, "exec"), names)
