"""Our tree under a node of another app's: every spelling of docs/mounts.md, held against what Hydra itself does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sglang_hydra.compose.composer import Composer, Composition
from sglang_hydra.compose.overrides import Request
from sglang_hydra.run.before_hydra import as_typed, numbered, spell_no_choice
from sglang_hydra.text.errors import ConfigError
from tests.plans import written

PAGE = Path(__file__).parents[2] / "docs" / "mounts.md"
AT = "serving.sglang"
FILES = {
    "config.yaml": """\
defaults:
  - /sglang_hydra@serving.sglang
  - override /gpu@serving.sglang.gpu: h200
  - override /model@serving.sglang.model: qwen3_8b
  - _self_
rounds: 3
serving:
  sglang:
    context_length: 8192
""",
    "experiment/fast.yaml": "# @package _global_\nserving: {sglang: {tp_size: 8}}\n",
}

# What a spelling changes in the composed app, by key below the node (or from the root, with a dot in front).
TAKEN: Mapping[str, Mapping[str, Any]] = {
    "serving.sglang.tp_size=8": {"tp_size": 8},
    "++serving.sglang.tp_size=8": {"tp_size": 8},
    "serving.sglang={tp_size:8}": {"tp_size": 8, "context_length": 8192},
    "serving={sglang: {tp_size: 8}}": {"tp_size": 8, "context_length": 8192},
    "serving.sglang.cuda_graph_bs=[1,2]": {"cuda_graph_bs": [1, 2]},
    "serving.sglang.lora_paths={sql: /adapters/sql}": {"lora_paths": {"sql": "/adapters/sql"}},
    "serving.sglang.context_length=null": {"context_length": None},
    "serving.sglang.model_path=org/name": {"model_path": "org/name"},
    "gpu@serving.sglang.gpu=h100": {"gpu.name": "h100", "gpu.memory_mib": 81559},
    "model@serving.sglang.model=llama_3_1_8b": {"model.name": "llama_3_1_8b"},
    "engine@serving.sglang.engine=sglang": {"engine.name": "sglang"},
    "launch@serving.sglang.launch=slurm": {"launch.name": "slurm"},
    "topology@serving.sglang.topology=pd": {"topology.name": "pd"},
    "bench/workload@serving.sglang.bench.workload=1k1k": {"bench.input_len": 1024},
    "gpu@serving.sglang.gpu=": {"gpu.name": "none"},
    "gpu@serving.sglang.gpu=null": {"gpu.name": "none"},
    "~gpu@serving.sglang.gpu": {"gpu.name": "none"},
    "serving.sglang.gpu.count=2": {"gpu.count": 2, "gpu.name": "h200"},
    "serving.sglang.gpu={count: 2}": {"gpu.count": 2, "gpu.name": "h200"},
    "+serving.sglang.engine.env.NCCL_DEBUG=INFO": {"engine.env.NCCL_DEBUG": "INFO"},
    "serving.sglang.attn_dp_size=4": {"attn_dp_size": 4},
    "+experiment=fast": {"tp_size": 8},
    "rounds=9": {".rounds": 9},
}
REFUSED: Mapping[str, str] = {
    "+serving.sglang.x=1": "'x' is neither an argument of SGLang",
    "serving.sglang.tpsize=8": "did you mean serving.sglang.tp_size?",
    "tp_size=8": "did you mean serving.sglang.tp_size?",
    "gpu=h100": "Did you mean to override gpu@serving.sglang.gpu?",
    "+gpu@serving.sglang.gpu=h100": "appears more than once",
    "serving.sglang.gpu=h100": "gpu@serving.sglang.gpu=h100",
    "+serving.sglang.tp_size=8": "An item is already at",
    "~serving.sglang.tp_size": "an argument cannot be deleted",
    "serving.sglang.engine.env.NCCL_DEBUG=INFO": "To append to your config use +",
    "serving.sglang.tp_size=eight": "tp_size='eight' is not an int",
    "serving.sglang.schedule_policy=lmp": "is not among its 9 values",
    "gpu@serving.sglang.gpu=h2000": ": gpu=h2000 does not exist",
}
SINCE_HYDRA_1_4 = {"appears more than once": "without the +: gpu@serving.sglang.gpu=h100"}
WE_ALONE_REFUSE = ("+serving.sglang.x=1", "serving.sglang.schedule_policy=lmp")


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("app"), FILES)


def words_of(typed: str) -> list[str]:
    """What Hydra gets of a typed word: ``sglang_hydra.main`` has put the option for none into it."""
    words = [typed]
    spell_no_choice(words)
    return words


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        (
            "gpu@serving.sglang.gpu=h2000",
            "override 0: gpu@serving.sglang.gpu=h2000 does not exist",
            "gpu@serving.sglang.gpu=h200; or ",
        ),
        (
            "model@serving.sglang.model=qwen",
            "override 0: model@serving.sglang.model=qwen does not exist",
            "another model: model@serving.sglang.model=org/name",
        ),
        (
            "+experiment=fats",
            "override 0: experiment=fats does not exist",
            "experiment=fast; or experiment can be: fast",
        ),
        (
            "+recipe=gpt_oss_120b-h200-9",
            "override 0: recipe=gpt_oss_120b-h200-9 does not",
            "recipe can be: gpt_oss_120b-h200-8, ",
        ),
        ("serving.sglang.tpsize=8", "override 0: 'tpsize' is neither", "did you mean serving.sglang.tp_size?"),
    ],
)
def test_an_option_that_is_not_there_is_refused_by_the_word_that_chose_it(
    typed: str, message: str, hint: str, conf: Path
) -> None:
    requests = [Request(typed, "override 0")]
    with pytest.raises(ConfigError) as caught:
        Composer([conf], "config", hydra_syntax=True).compose(requests)
    (finding,) = (as_typed(item, requests) for item in caught.value.findings)
    assert finding.message.startswith(message)
    assert hint in (finding.hint or "")
    assert "search path" not in finding.message


def test_an_option_that_a_file_chooses_is_refused_by_its_name(tmp_path: Path) -> None:
    files = {"config.yaml": "defaults:\n  - sglang_hydra_schema\n  - gpu: h2000\n  - _self_\n"}
    with pytest.raises(ConfigError) as caught:
        Composer([written(tmp_path, files)], "config", hydra_syntax=True).compose([])
    (finding,) = (as_typed(item, []) for item in caught.value.findings)
    assert finding.message.endswith("config.yaml:3: gpu=h2000 does not exist")
    assert finding.hint is not None
    assert finding.hint.startswith("'gpu: h200' in that line; or gpu can be: ")


def test_an_override_of_a_group_that_is_in_no_list_names_its_line(tmp_path: Path) -> None:
    files = {
        "config.yaml": "defaults:\n  - sglang_hydra_schema\n  - experiment: a\n  - _self_\n",
        "experiment/a.yaml": "# @package _global_\ndefaults:\n  - override /nothing: x\n",
    }
    with pytest.raises(ConfigError) as caught:
        Composer([written(tmp_path, files)], "config", hydra_syntax=True).compose([])
    (finding,) = caught.value.findings
    assert "experiment/a.yaml:3: In 'experiment/a': " in finding.message
    assert "nothing" in finding.message  # in the words of this Hydra


def test_a_path_in_a_defaults_list_names_what_to_write(tmp_path: Path) -> None:
    files = {"config.yaml": "defaults:\n  - sglang_hydra_schema\n  - model: ./folder\n  - _self_\n"}
    with pytest.raises(ConfigError) as caught:
        Composer([written(tmp_path, files)], "config").compose([])
    (finding,) = caught.value.findings
    assert "'- model: unset' in it, and below it the key model_path: ./folder" in (finding.hint or "")


def by_hydra(conf: Path, typed: str) -> Any:
    with initialize_config_dir(str(conf), version_base=None):
        return compose("config", words_of(typed))


def by_us(conf: Path, typed: str) -> Composition:
    return Composer([conf], "config", hydra_syntax=True).compose(numbered(words_of(typed)))


@pytest.mark.corpus
@pytest.mark.parametrize("typed", TAKEN)
def test_a_spelling_that_hydra_takes_is_in_the_plan(typed: str, conf: Path) -> None:
    config, composition = by_hydra(conf, typed), by_us(conf, typed)
    for key, expected in TAKEN[typed].items():
        place = key[1:] if key.startswith(".") else f"{AT}.{key}"
        value = OmegaConf.select(config, place)
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        assert plain == expected, f"Hydra's own {place}"
        if key.startswith("."):
            continue
        ours: Any = {**composition.nodes.plain, **composition.intent}
        for name in key.split("."):
            ours = ours[name]
        assert ours == expected, f"our {key}"


@pytest.mark.corpus
@pytest.mark.parametrize("typed", REFUSED)
def test_a_spelling_that_says_nothing_is_refused_with_what_to_type(typed: str, conf: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        by_us(conf, typed)
    said = " ".join(f"{finding.message} {finding.hint}" for finding in caught.value.findings)
    assert REFUSED[typed] in said or SINCE_HYDRA_1_4.get(REFUSED[typed], REFUSED[typed]) in said
    if typed in WE_ALONE_REFUSE:
        by_hydra(conf, typed)
    else:
        with pytest.raises((HydraException, OmegaConfBaseException)):
            by_hydra(conf, typed)


def test_the_page_has_every_spelling_and_says_which_are_refused() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGE.read_text().partition("## What may be typed")[2], re.MULTILINE)
    assert {typed for typed, said in rows if said.startswith("refused")} == set(REFUSED)
    assert {typed for typed, said in rows if not said.startswith("refused")} == set(TAKEN)


def test_who_set_a_key_below_a_node_is_known_however_it_was_spelled(conf: Path) -> None:
    for typed in ("serving.sglang.tp_size=8", "serving.sglang={tp_size:8}", "serving={sglang: {tp_size: 8}}"):
        (origin,) = by_us(conf, typed).origins["tp_size"]
        assert (origin.layer, origin.place, origin.value) == ("cli", "override 1", 8)
    (origin,) = by_us(conf, "+experiment=fast").origins["tp_size"]
    assert origin.place.endswith("experiment/fast.yaml:2")
