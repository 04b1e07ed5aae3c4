"""Every form of a source leads to the arguments that it holds. The shapes: tests/data/import/README.md."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_hydra.convert.importing.sources import read_source
from sglang_hydra.text.errors import ConfigError
from tests.convert.importing.importing import DATA, ids, imported, of_file, states, the_one

KEY = "${oc.env:SGLANG_HYDRA_API_KEY}"
TOKEN = {"engine.env.HF_TOKEN": "${oc.env:HF_TOKEN}"}

# file -> for each server: its name, the choices, the overrides, the nodes
CASES: list[tuple[str, list[tuple[str, dict[str, str], dict[str, Any], dict[str, Any]]]]] = [
    (
        "command_env.txt",
        [
            (
                "",
                {"model": "deepseek_v3"},
                {
                    "trust_remote_code": True,
                    "host": "0.0.0.0",
                    "port": 30000,
                    "chunked_prefill_size": 8192,
                    "tp_size": 8,
                    "api_key": KEY,
                },
                {"engine.env.SGLANG_ENABLE_JIT_DEEPGEMM": "1", **TOKEN},
            )
        ],
    ),
    (
        "command_serve.txt",
        [
            (
                "",
                {"model": "qwen3_32b"},
                {"mem_fraction_static": 0.8, "tp_size": 2},
                {"engine.version": "0.5.9", "enable_piecewise_cuda_graph": True},
            )
        ],
    ),
    (
        "script_arrays.sh",
        [
            (
                "",
                {"model": "gpt_oss_120b"},
                {"disable_radix_cache": True, "max_running_requests": 256, "tp_size": 4, "log_level": "warning"},
                {"engine.env.NCCL_DEBUG": "WARN"},
            ),
        ],
    ),
    (
        "script_two_nodes.sh",
        [
            (
                "",
                {"model": "qwen3_235b_a22b"},
                {"tp_size": 16, "dist_init_addr": "10.1.0.4:5000", "nnodes": 2},
                {},
            )
        ],
    ),
    (
        "script_heredoc.sh",
        [("", {"model": "qwen3_8b"}, {"port": 31001, "enable_metrics": True, "cuda_graph_bs": [1, 2, 4]}, {})],
    ),
    (
        "docker_run.sh",
        [
            (
                "",
                {"gpu": "b200", "model": "llama_3_1_70b"},
                {"host": "0.0.0.0", "tp_size": 2},
                {"engine.version": "0.5.2", "engine.env.SGLANG_USE_MODELSCOPE": "false", "gpu.count": 2},
            )
        ],
    ),
    (
        "docker_amd.sh",
        [
            (
                "",
                {"gpu": "mi355x", "model": "deepseek_v3"},
                {"tp_size": 8, "attention_backend": "aiter"},
                {"engine.version": "0.5.9", "engine.env.SGLANG_USE_AITER": "1"},
            )
        ],
    ),
    (
        "compose_single.yaml",
        [
            (
                "chat",
                {"model": "llama_3_1_8b"},
                {"context_length": 16384, "host": "0.0.0.0", "port": 30000},
                {"engine.version": "0.5.2", "engine.env.NCCL_DEBUG": "WARN", **TOKEN},
            )
        ],
    ),
    (
        "compose_pd.yaml",
        [
            (
                "first",
                {"model": "qwen3_32b"},
                {"port": 30001, "tp_size": 2, "disaggregation_mode": "prefill"},
                {"engine.version": "0.5.2"},
            ),
            (
                "second",
                {"model": "qwen3_32b"},
                {"port": 30002, "tp_size": 2, "disaggregation_mode": "decode"},
                {"engine.version": "0.5.2", "engine.env.SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "600"},
            ),
        ],
    ),
    (
        "k8s_deployment.yaml",
        [
            (
                "chat",
                {"gpu": "h200", "model": "kimi_k2"},
                {"tp_size": 4, "trust_remote_code": True, "api_key": "${oc.env:SERVER_KEY}"},
                {"engine.version": "0.5.2", "gpu.count": 4},
            )
        ],
    ),
    (
        "k8s_lws.yaml",
        [
            (
                "r1",
                {"gpu": "h100", "model": "deepseek_v3"},
                {"tp_size": 16, "nnodes": 2},
                {"engine.version": "0.5.2", "engine.env.NCCL_IB_GID_INDEX": "3", "launch.head_port": 20000},
            )
        ],
    ),
    (
        "k8s_shell.yaml",
        [
            (
                "wide",
                {},
                {
                    "model_path": "/models/Qwen3-8B",
                    "tp_size": 2,
                    "dist_init_addr": "wide-0.wide:5000",
                    "nnodes": 2,
                },
                {},
            )
        ],
    ),
    (
        "srtctl_pd.yaml",
        [
            (
                "prefill",
                {"gpu": "gb200", "model": "kimi_k2"},
                {
                    "mem_fraction_static": 0.8,
                    "tp_size": 8,
                    "trust_remote_code": True,
                    "nnodes": 2,
                    "disaggregation_mode": "prefill",
                },
                {"engine.version": "0.5.4", "engine.env.SGLANG_ENABLE_JIT_DEEPGEMM": "false"},
            ),
            (
                "decode",
                {"gpu": "gb200", "model": "kimi_k2"},
                {
                    "tp_size": 16,
                    "dp_size": 16,
                    "enable_dp_attention": True,
                    "trust_remote_code": True,
                    "nnodes": 4,
                    "disaggregation_mode": "decode",
                },
                {"engine.version": "0.5.4", "engine.env.NCCL_MNNVL_ENABLE": "1"},
            ),
        ],
    ),
    (
        "srtctl_base.yaml",
        [
            (
                "aggregated",
                {"gpu": "b200", "model": "deepseek_v3"},
                {"kv_cache_dtype": "fp8_e4m3", "max_running_requests": 512, "tp_size": 8, "ep_size": 1},
                {},
            ),
            *(
                (
                    f"aggregated-small-{at}",
                    {"gpu": "b200", "model": "deepseek_v3"},
                    {"kv_cache_dtype": "fp8_e4m3", "max_running_requests": most, "tp_size": 8, "ep_size": 1},
                    {},
                )
                for at, most in enumerate((1, 8))
            ),
        ],
    ),
    (
        "config_dashes.yaml",
        [("", {"model": "llama_3_1_8b"}, {"host": "0.0.0.0", "tp_size": 2, "enable_metrics": True}, {})],
    ),
    (
        "config_names.yaml",
        [
            (
                "",
                {"model": "qwen3_8b"},
                {"mem_fraction_static": 0.82, "tool_call_parser": "qwen25", "lora_paths": ["sql=/adapters/sql"]},
                {},
            )
        ],
    ),
    (
        "log_052.log",
        [
            (
                "",
                {"model": "qwen3_8b"},
                {
                    "custom_weight_loader": [],
                    "mem_fraction_static": 0.8,
                    "page_size": 1,
                    "chunked_prefill_size": 8192,
                    "schedule_policy": "lpm",
                    "device": "cuda",
                    "tp_size": 2,
                    "enable_metrics": True,
                    "sampling_backend": "flashinfer",
                    "grammar_backend": "xgrammar",
                    "ep_dispatch_algorithm": "static",
                    "expert_distribution_recorder_buffer_size": 1000,
                },
                {"engine.version": "0.5.2"},
            )
        ],
    ),
    (
        "log_0523.log",
        [
            (
                "",
                {"model": "qwen3_8b"},
                {
                    "mem_fraction_static": 0.87,
                    "device": "cuda",
                    "tp_size": 2,
                    "api_key": KEY,
                },
                {"engine.version": "0.5.23", "pp_max_micro_batch_size": 4},
            )
        ],
    ),
]


@pytest.mark.parametrize(("file", "wanted"), CASES, ids=[file for file, _ in CASES])
def test_each_form_leads_to_its_servers(file: str, wanted: list[tuple[Any, ...]]) -> None:
    servers = imported((DATA / file).read_text()) if file.endswith(".txt") else of_file(file)
    assert [(made.name, dict(made.choices), dict(made.overrides), dict(made.nodes)) for made in servers] == wanted
    assert all(made.complete and made.equal for made in servers)


def test_every_file_of_the_folder_is_a_case() -> None:
    assert {file for file, _ in CASES} == {path.name for path in DATA.iterdir()} - {"README.md"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("hello world", "looked for a command (python -m sglang.launch_server"),
        ("python -m vllm.entrypoints.api_server --model x", "starts no SGLang server"),
        ("python -m sglang_router.launch_router --worker-urls http://a", "starts no SGLang server"),
        ("python3 -m sglang.bench_serving --model x --num-prompts 3", "starts no SGLang server"),
        ("kind: Service\napiVersion: v1\nspec: {}\n", "starts no SGLang server"),
        ("a: [1\nb: }", "starts no SGLang server"),
        ("{{ if .Values.x }}\napiVersion: v1\n{{ end }}", "starts no SGLang server"),
    ],
)
def test_what_starts_no_server_says_what_was_looked_for(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        imported(text)
    (finding,) = caught.value.findings
    assert finding.id == "IMP001"
    assert said in finding.message


@pytest.mark.parametrize("word", ["/nowhere/serve.sh", "missing.yaml", str(DATA)])
def test_a_source_that_cannot_be_read_is_named(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_source(word)
    assert caught.value.findings[0].id == "IMP002"
    assert word in caught.value.findings[0].message


LAUNCH = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        (f"A=2; {LAUNCH} --tp $A", "tp_size", 2),
        (f"{LAUNCH} --tp ${{A:-4}}", "tp_size", 4),
        (f"A=; {LAUNCH} --tp ${{A:-4}}", "tp_size", 4),
        (f"A='--tp 2 --dp 2'; {LAUNCH} $A", "dp_size", 2),
        (f'A=(--tp 2); A+=(--pp 2); {LAUNCH} "${{A[@]}}"', "pp_size", 2),
        (f"{LAUNCH} \\\n  --tp 2 \\  \n  --pp-size 2", "pp_size", 2),
        (f"{LAUNCH} --served-model-name 'a \"b\" $c'", "served_model_name", 'a "b" $c'),
        (f"{LAUNCH} --served-model-name a\\ b", "served_model_name", "a b"),
        (f"{LAUNCH} --tp $((2 * (1 + 3)))", "tp_size", 8),
        (f"exec env -u X Y=1 nice -n 5 {LAUNCH} --tp 2", "tp_size", 2),
        (f"if true; then {LAUNCH} --tp 2; fi", "tp_size", 2),
        (f"sh -c 'exec {LAUNCH} --tp \"$1\"' zero 2", "tp_size", 2),
        (f"bash <<'EOF'\n{LAUNCH} --tp 2\nEOF", "tp_size", 2),
        (f"{LAUNCH} --tp 2 2>&1 | tee log", "tp_size", 2),
        (f"{LAUNCH} --tp 2 &> log &", "tp_size", 2),
        ("--model-path Qwen/Qwen3-8B --tp 2", "tp_size", 2),
        ("/opt/venv/bin/python /srv/sglang/launch_server.py --model Qwen/Qwen3-8B --tensor-par 2", "tp_size", 2),
    ],
)
def test_a_script_is_read_as_the_shell_reads_it(text: str, name: str, value: Any) -> None:
    server = the_one(text)
    assert server.arguments[name] == value
    assert server.complete


def test_a_comment_ends_a_continued_command() -> None:
    server = the_one(f"{LAUNCH} \\\n  --tp 2 \\\n  # --dp 2\n  --pp-size 2\n")
    assert "pp_size" not in server.arguments
    assert ids(server, ["warning"]) == ["IMP011"]


@pytest.mark.parametrize(
    ("text", "name", "id"),
    [
        (f"{LAUNCH} --host $(hostname -i) --tp 2", "host", "IMP005"),
        (f"{LAUNCH} --tp 2 --port $PORT", "port", "IMP005"),
        (f"{LAUNCH} --tp 2 --nnodes 2 --node-rank $RANK", "node_rank", "IMP005"),
    ],
)
def test_what_only_the_machine_knows_is_left_out_and_said(text: str, name: str, id: str) -> None:
    server = the_one(text)
    assert states(server)[name] == "open"
    assert name not in server.overrides
    assert server.overrides["tp_size"] == 2
    assert id in ids(server)


def test_flags_that_a_variable_may_hold_are_said() -> None:
    server = the_one(f"{LAUNCH} --tp 2 $EXTRA")
    assert "$EXTRA may hold more flags" in " ".join(finding.message for finding in server.findings)
