"""Groups of one name in an app and here, and the place of our schema in an app's defaults list."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from sglang_hydra.compose.composer import Composer
from sglang_hydra.text.errors import ConfigError
from tests.plans import written

OURS = "  - override /gpu@server.gpu: h200\n  - override /model@server.model: qwen3_8b\n"
FILES = {
    "experiment/fast.yaml": "# @package _global_\nserver: {tp_size: 8}\n",
    "experiment/other.yaml": "# @package _global_\nrounds: 2\n",
    "model/net.yaml": "width: 3\n",
}


def composed(folder: Path, primary: str, more: dict[str, str] | None = None) -> Composer:
    return Composer([written(folder, {**FILES, **(more or {}), "config.yaml": primary})], "config", hydra_syntax=True)


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("  - experiment: fast\n", "  - _self_\n", "tp_size"),
        ("  - _self_\n", "", "context_length"),
        ("  - experiment: other\n", "  - _self_\n", None),
        ("", "  - _self_\n  - experiment: fast\n", None),
    ],
)
def test_what_our_schema_would_overwrite_is_refused(before: str, after: str, lost: str | None, tmp_path: Path) -> None:
    primary = f"defaults:\n{before}  - /sglang_hydra@server\n{after}{OURS}"
    primary += "server: {context_length: 8192}\nrounds: 1\n"
    composer = composed(tmp_path, primary)
    if lost is None:
        assert composer.compose([]).intent["context_length"] == 8192
        return
    with pytest.raises(ConfigError) as caught:
        composer.compose([])
    (finding,) = caught.value.findings
    assert (finding.id, finding.fields) == ("CLI028", (lost,))
    assert f"{lost} overwritten by /sglang_hydra@server" in finding.message
    assert "put '- /sglang_hydra@server' before" in str(finding.hint)
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert compose("config").server[lost] != {"tp_size": 8, "context_length": 8192}[lost], "Hydra loses it silently"


def test_a_preset_of_ours_that_is_taken_for_the_apps_is_a_finding(tmp_path: Path) -> None:
    primary = f"defaults:\n  - /sglang_hydra@server\n  - model: gpt_oss_20b\n  - _self_\n{OURS}"
    (finding,) = composed(tmp_path, primary).compose([]).findings
    assert (finding.id, finding.level, finding.fields) == ("CLI029", "warning", ("model",))
    assert "model=gpt_oss_20b is a preset of sglang_hydra and is merged into model, outside" in finding.message


def test_an_option_of_the_app_that_hides_ours_is_a_finding(tmp_path: Path) -> None:
    primary = f"defaults:\n  - /sglang_hydra@server\n  - _self_\n{OURS}"
    mine = {"model/qwen3_8b.yaml": "name: qwen3_8b\nmodel_path: my-lab/other\n"}
    (finding,) = composed(tmp_path, primary, mine).compose([]).findings
    assert (finding.id, finding.level) == ("CLI029", "warning")
    assert "hides conf/model/qwen3_8b.yaml of sglang_hydra" in finding.message


def test_groups_of_one_name_whose_options_differ_stand_side_by_side(tmp_path: Path) -> None:
    primary = f"defaults:\n  - /sglang_hydra@server\n  - model: net\n  - _self_\n{OURS}"
    assert composed(tmp_path, primary).compose([]).findings == ()
