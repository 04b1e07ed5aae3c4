"""What tools/audit_upstream.py finds in a checkout: what SGLang's parser refuses, by the release that a file names."""

from __future__ import annotations

from pathlib import Path

from sglang_hydra.compose.composer import Composer
from tools.audit_upstream import PAGE, page, rows_of

GONE = "docker run lmsysorg/sglang:v0.5.23 python3 -m sglang.launch_server --model-path $M --cuda-graph-max-bs $C\n"
GOOD = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 1\n"


def test_a_flag_that_is_gone_is_found_with_its_line_and_a_good_file_has_none(tmp_path: Path) -> None:
    (tmp_path / "good.sh").write_text(GOOD)
    (tmp_path / "gone.md").write_text(f"# A recipe\n\n```bash\n{GONE}```\n")
    (tmp_path / "other.md").write_text("nothing here\n")
    rows = {row["file"]: row for row in rows_of(Composer(), tmp_path)}
    assert rows.keys() == {"good.sh", "gone.md"}
    assert rows["good.sh"]["defects"] == []
    (defect,) = rows["gone.md"]["defects"]
    assert (rows["gone.md"]["release"], defect["id"]) == ("0.5.23", "ARG011")
    assert "--cuda-graph-max-bs-decode" in defect["hint"]
    assert defect["line"] == 4


def test_the_page_of_defects_is_what_was_recorded() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "stale: make generate"
