"""Changes of public files that broke a launch: each is found where it was made, and the file before it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gate.changes import findings, lines_of, sides, write

TABLE = Path(__file__).parents[1] / "data" / "broken_changes.yaml"
ROWS: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))


def test_the_table_has_fifty_changes_of_which_nine_in_ten_are_found() -> None:
    assert len(ROWS) == 50
    assert sum("missed" in row for row in ROWS) <= 5
    assert all(row["from"] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['from']} {row['args'].split()[1]}"[:60])
def test_a_change_that_breaks_a_launch_is_found_at_its_line(row: dict[str, Any], tmp_path: Path) -> None:
    """Without the release's wheel: where only it knows the answer, a rule of 0.5.2 warns (``level``)."""
    before, after = sides(row)
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    old = write(before, tmp_path / "before")
    known = findings(old, before["gpu"])
    assert [item for item in known if item.level == "error"] == []
    new = write(after, tmp_path / "after")
    level = row.get("level", "error")
    found = [item for item in findings(new, after["gpu"], str(old)) if item not in known and item.level == level]
    at_its_line = [item.id for item in found if item.line in lines_of(row, new)]
    assert bool(at_its_line) != bool(row.get("missed")), found
    if "says" in row:
        assert row["says"] in at_its_line
