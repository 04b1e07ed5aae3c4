"""Nothing that others typed is lost: published servers, imported and exported, against an extraction of their flags
that shares no line with the importer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.importer import Imported, import_source
from sglang_hydra.convert.importing.proof import argv_of, requests_of
from sglang_hydra.convert.importing.report import record
from sglang_hydra.convert.importing.sources import Source
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.convert.upgrade.inputs import subjects_of
from sglang_hydra.convert.upgrade.upgraded import Upgrade, upgraded
from tests.convert.importing.importing import composer, the_one
from tests.convert.importing.importing import imported as imported_text
from tests.convert.importing.published_servers import Published, meant, published

_OF_THE_NODE = {"node_rank", "dist_init_addr"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Published]:
    return list(published(tmp_path_factory.mktemp("bash")))


def imported(source: Published) -> list[Imported]:
    return import_source(Source(source.name, source.text, variables=source.env), Typed(), composer())


def exported(server: Imported) -> list[str]:
    settings = {**server.choices, **server.overrides, **server.nodes}
    composition = composer().compose([item for item in requests_of(settings, "") if item.key != "gpu"])
    return list(argv_of(composition.intent, server.version) or ())


def lost(flags: list[str], after: list[str], server: Imported) -> dict[str, str]:
    """The flags that are not in the export; one of which it is said that the release ignores it may be missing."""
    said = [finding.message for finding in server.findings]
    wanted, found = meant(flags, server.version), meant(after, server.version)
    left_out = {*_OF_THE_NODE, *(message.split()[0] for message in said if " does nothing in SGLang " in message)}
    left_out |= {"model_path"} if any("is taken from" in message for message in said) else set()
    return {name: value for name, value in wanted.items() if found.get(name) != value and name not in left_out}


def test_the_sample_is_large_enough(sources: list[Published]) -> None:
    assert sum(len(source.flags) for source in sources) >= 230
    assert all(source.flags for source in sources)
    of_three = ("srt-slurm", "InferenceX", "ome")
    counts = {name: sum(len(one.flags) for one in sources if f"/{name} " in one.name) for name in of_three}
    assert min(counts.values()) >= 10
    assert sum(counts.values()) >= 90


@pytest.mark.corpus
@pytest.mark.parametrize("part", range(8))
def test_no_flag_is_lost_by_import_and_export(sources: list[Published], part: int) -> None:
    wrong = {}
    for source in sources[part::8]:
        servers = imported(source)
        assert len(servers) >= len(source.flags), source.name
        assert not source.is_decided or len(servers) == len(source.flags), source.name
        after = [(server, exported(server)) for server in servers]
        for flags in source.flags:
            tries = [lost(flags, words, server) for server, words in after]
            if min(tries, key=len):
                wrong[f"{source.name} {flags[:3]}"] = min(tries, key=len)
    assert wrong == {}


def unnamed(flags: list[str], start: str, made: Upgrade) -> list[str]:
    """The typed flags that are neither in the new command nor named with what became of them."""
    wanted, found = meant(flags, start), meant(list(made.plan.command), made.version)
    named = " ".join(
        [
            *(item.message for item in made.steps.broken),
            *(finding.message for finding in (*made.subject.findings, *made.plan.findings)),
            *(f"{item.key} {' '.join(item.before)}" for item in made.steps.respelled),
        ]
    )
    spoken = set(named.replace("--", " ").replace("-", "_").replace("=", " ").replace(":", " ").split())
    return [
        name
        for name, value in wanted.items()
        if found.get(name) != value and name.lstrip("-").replace("-", "_") not in {*spoken, *_OF_THE_NODE}
    ]


@pytest.mark.corpus
@pytest.mark.parametrize("part", range(8))
def test_no_flag_is_lost_by_an_upgrade_to_0_5_23(sources: list[Published], tmp_path: Path, part: int) -> None:
    wrong = {}
    for number, source in enumerate(sources[part::8]):
        file = tmp_path / f"{number}.{source.suffix}"
        file.write_text(source.text, encoding="utf-8")
        subjects = subjects_of([Request(str(file), "argument 1")], None, None, composer(), source.env)
        made = [upgraded(composer(), subject, "0.5.23", with_values=False) for subject in subjects]
        for flags in source.flags:
            least = min((unnamed(flags, one.start.version, one) for one in made), key=len)
            if least:
                wrong[f"{source.name} {flags[:3]}"] = least
    assert wrong == {}


def test_a_record_has_no_mark_of_ours() -> None:
    (server,) = import_source(
        Source("", "python -m sglang.launch_server --model-path $M --tp $TP"), Typed(), composer()
    )
    text = json.dumps(record("typed", [server]), ensure_ascii=False)
    assert not any("\ue000" <= char <= "\uf8ff" for char in text)
    assert not server.complete


def test_what_differs_is_named_with_its_reason() -> None:
    (server,) = import_source(
        Source("", "python -m sglang.launch_server --model-path a/b --tp $TP"), Typed(), composer()
    )
    assert [(item.name, item.why, item.harmless) for item in server.differences] == [
        ("tp_size", "only known where it runs", False)
    ]


def test_env_fills_the_variables_of_a_runtime() -> None:
    text = (
        "apiVersion: ome.io/v1beta1\nkind: ClusterServingRuntime\nmetadata: {name: r}\nspec:\n  runner:\n"
        "    image: lmsysorg/sglang:v0.5.5\n"
        "    command: [python3, -m, sglang.launch_server, --model-path, $(MODEL_PATH), --tp-size, '${TP}']\n"
    )
    given = {"MODEL_PATH": "Qwen/Qwen3-8B", "TP": "2"}
    (server,) = import_source(Source("r.yaml", text, variables=given), Typed(choices={"gpu": "h200"}), composer())
    assert server.complete
    assert (server.choices["model"], server.overrides["tp_size"], server.version) == ("qwen3_8b", 2, "0.5.5")


def test_a_variable_that_is_empty_by_default_is_unset() -> None:
    run = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
    server = the_one(f'T="${{T:-}}"\n{run} --chat-template "$T/a" --tp 2 ${{MORE:-}}')
    assert server.overrides == {"tp_size": 2}
    assert [item.name for item in server.differences] == ["chat_template"]


def test_the_nodes_of_a_dynamo_service_and_a_config_map_are_read() -> None:
    text = (
        "kind: ConfigMap\napiVersion: v1\ndata:\n  server.yaml: |\n    tp-size: 16\n    disable-radix-cache: true\n"
        "---\napiVersion: nvidia.com/v1\nkind: DynamoGraphDeployment\nmetadata: {name: d}\nspec:\n  services:\n"
        "    decode:\n      multinode: {nodeCount: 2}\n      extraPodSpec:\n        mainContainer:\n"
        "          image: x/sglang-runtime:1\n"
        "          command: [python3, -m, dynamo.sglang]\n"
        "          args: [--model-path, Qwen/Qwen3-8B, --config, /etc/server.yaml]\n"
    )
    (server,) = import_source(Source("d.yaml", text), Typed(), composer())
    assert server.overrides == {"tp_size": 16, "disable_radix_cache": True, "nnodes": 2}


def test_workers_with_other_flags_than_their_leader_stay_apart() -> None:
    run = "[python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B, --nnodes, '2', --node-rank, '%s'%s]"
    text = (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: l}\nspec:\n"
        "  leaderWorkerTemplate:\n    size: 2\n"
        "    leaderTemplate: {spec: {containers: [{name: a, command: %s}]}}\n"
        "    workerTemplate: {spec: {containers: [{name: a, command: %s}]}}\n"
    )
    same = import_source(Source("l.yaml", text % (run % (0, ""), run % (1, ""))), Typed(), composer())
    assert len(same) == 1
    listening = import_source(
        Source("l.yaml", text % (run % (0, ", --host, '0.0.0.0', --port, '40000'"), run % (1, ""))), Typed(), composer()
    )
    assert [server.overrides.get("port") for server in listening] == [40000]
    other = text % (run % (0, ""), run % (1, ", --tp, '4'"))
    variables = text % (run % (0, ""), run % (1, "") + ", env: [{name: SGLANG_USE_AITER, value: '1'}]")
    assert len(import_source(Source("l.yaml", variables), Typed(), composer())) == 2
    assert [server.name for server in import_source(Source("l.yaml", other), Typed(), composer())] == ["l", "l-worker"]


def assumed(server: Imported) -> str:
    return " | ".join(finding.message for finding in server.findings if finding.id == "IMP011")


RUN = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("text", "overrides", "named"),
    [
        (
            'if [ "$DP" = true ]; then\n  MODE=(--dp 8 --enable-dp-attention)\nelse\n  MODE=(--ep-size 8)\nfi\n'
            f'{RUN} --tp 8 "${{MODE[@]}}"\n',
            {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
            '[ "$DP" = true ]',
        ),
        (
            'if [ "$A" = 1 ]; then\n  X="--dp 8"\n  if [ "$B" = 1 ]; then Y=512; else Y=64; fi\n'
            f'else\n  X="--ep-size 8"; Y=8\nfi\n{RUN} --tp 8 $X --max-running-requests $Y\n',
            {"tp_size": 8, "dp_size": 8, "max_running_requests": 512},
            '[ "$A" = 1 ]; [ "$B" = 1 ]',
        ),
        (
            f"if [ $C -ge 512 ]; then M=0.8\nelif [ $C -ge 64 ]; then M=0.85\nelse M=0.9\nfi\n"
            f"(( C < 64 )) && T=1 || T=2\n{RUN} --mem-fraction-static $M --tp $T\n",
            {"mem_fraction_static": 0.8, "tp_size": 1},
            "[ $C -ge 512 ]",
        ),
        (
            f"case $S in\n small) TP=2 ;;\n b*|large) TP=8 ;;\n -h) echo usage; exit ;;\n *) TP=4 ;;\nesac\n"
            f"{RUN} --tp $TP\n",
            {"tp_size": 2},
            "$S = small",
        ),
        (
            f'[[ -n "$X" ]] && A="--dp 2"\n{RUN} --tp 2 $A\n',
            {"tp_size": 2, "dp_size": 2},
            '[[ -n "$X" ]]',
        ),
        (f"{RUN} --tp 2 ${{M:+--ep-size 2}}\n", {"tp_size": 2}, "M is not set"),
        (
            f'if [ "$C" = 1 ] || [ "$C" = 32 ]; then M=0.9\nelif [[ $C -eq 64 && $I -eq 1 ]]; then M=0.8\n'
            f"else echo no; exit 1; fi\nS=$([[ $C == 64 ]] && echo 0.5 || echo 0.1)\n"
            f"{RUN} --mem-fraction-static $M --swa-full-tokens-ratio $S --dp $(( 8 / 2 > 3 ? 4 : 3 ))\n",
            {"mem_fraction_static": 0.9, "swa_full_tokens_ratio": 0.5, "dp_size": 4},
            '[ "$C" = 1 ] || [ "$C" = 32 ]',
        ),
        (
            f'if [ "$A" = 1 ]; then\n  {RUN} --tp 4\nfi\n',
            {"tp_size": 4},
            '[ "$A" = 1 ]',
        ),
    ],
    ids=["if", "nested", "elif", "case", "joined", "set", "several", "around"],
)
def test_a_condition_of_the_caller_is_assumed_and_named(text: str, overrides: dict[str, object], named: str) -> None:
    server = the_one(text)
    assert server.overrides == overrides
    assert named in assumed(server)
    assert "--env NAME=VALUE decides" in assumed(server)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"for T in 2 4; do\n  {RUN} --tp $T &\ndone\n", "$T"),
        (f"go() {{\n  local tp=$1\n  {RUN} --tp $tp\n}}\ngo 2\ngo 4\n", "$1"),
    ],
    ids=["loop", "function"],
)
def test_the_body_of_a_loop_and_of_a_function_is_read_once_and_what_they_are_given_is_open(
    text: str, named: str
) -> None:
    server = the_one(text)
    assert server.overrides == {}
    assert any(named in finding.message for finding in server.findings if finding.id == "IMP005")
    assert not server.complete


def test_a_variable_that_is_given_decides() -> None:
    text = (
        f'if [ "$A" = 1 ]; then X="--dp 2"; else X="--ep-size 2"; fi\n'
        f"if (( C >= 64 )); then X+=' --enable-metrics'; fi\n{RUN} --tp 2 $X\n"
    )
    (server,) = import_source(Source("", text, variables={"A": "2", "C": "64"}), Typed(), composer())
    assert server.overrides == {"tp_size": 2, "ep_size": 2, "enable_metrics": True}
    assert assumed(server) == ""


def test_many_conditions_are_one_server() -> None:
    lines = [f"if [ $A{number} = 1 ]; then X+=' --tp {number + 1}'; fi" for number in range(300)]
    assert len(imported_text("\n".join(lines) + f"\n{RUN} $X\n")) == 1


def test_an_if_that_changes_no_flag_is_one_server() -> None:
    text = (
        'if [ "$A" = 1 ]; then echo a; else echo b; fi\n'
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 8\n"
    )
    assert len(imported_text(text)) == 1


def test_what_verl_calls_otherwise_is_translated() -> None:
    rollout = "actor_rollout_ref.rollout"
    server = the_one(
        f"python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B {rollout}.max_num_seqs=64 "
        f"{rollout}.data_parallel_size=2 {rollout}.expert_parallel_size=4 {rollout}.enforce_eager=True "
        f"+{rollout}.engine_kwargs.sglang.enable_metrics=True"
    )
    assert server.overrides == {
        "max_running_requests": 64,
        "dp_size": 2,
        "ep_size": 4,
        "disable_cuda_graph": True,
        "enable_metrics": True,
    }


@pytest.mark.parametrize(
    "text",
    [
        "python3 train.py --hf-checkpoint Qwen/Qwen3-8B --rollout-num-gpus-per-engine 2 --lr 1e-6 "
        "--sglang-mem-fraction-static 0.7 --sglang-router-ip 10.0.0.1 --sglang-enable-metrics",
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen3-8B "
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.gpu_memory_utilization=0.7 "
        "actor_rollout_ref.rollout.enforce_eager=False "
        "+actor_rollout_ref.rollout.engine_kwargs.sglang.enable_metrics=True",
    ],
    ids=["slime", "verl"],
)
def test_a_trainer_starts_its_own_servers(text: str) -> None:
    server = the_one(text)
    assert server.choices["model"] == "qwen3_8b"
    assert server.overrides == {"tp_size": 2, "mem_fraction_static": 0.7, "enable_metrics": True}
    assert server.complete


BY_RANK = f"R=${{NODE_RANK:-0}}\nif [ $R = 0 ]; then\n  {RUN} --port 1\nelse\n  {RUN} %s\nfi\n"
BY_ROLE = f"case ${{1:-prefill}} in\nprefill) {RUN} --port 1 ;;\ndecode) {RUN} --tp 2 ;;\nesac\n"


@pytest.mark.parametrize(
    ("text", "servers", "remark"),
    [
        (BY_RANK % "--tp 2", 1, "a server is not read: s.sh:5, which runs for another value of $NODE_RANK"),
        (BY_RANK % "--port 2 --node-rank $R", 1, ""),  # a further node of the server that is read
        (
            f"R=${{RANK:-0}}\nif ((R == 0)); then\n  {RUN}\nelif (( R == 1 )); then\n  {RUN} --tp 2\nfi\n",
            1,
            "a server is not read: s.sh:5, which runs for another value of $RANK",
        ),
        (BY_ROLE, 1, "a server is not read: s.sh:3, which runs for another value of $1"),
        (f"R=${{R:-0}}\n[ $R = 1 ] && {RUN}\n", 1, "conditions that are taken to hold: [ $R = 1 ]; "),
        (f"R=${{R:-0}}\nR=1\nif [ $R = 0 ]; then {RUN} --tp 2; else {RUN}; fi\n", 1, ""),
    ],
)
def test_a_server_that_a_default_passes_over_is_named(text: str, servers: int, remark: str) -> None:
    found = import_source(Source("s.sh", text), Typed(), composer())
    remarks = [each.message for each in found[0].findings if each.id == "IMP011"]
    assert len(found) == servers
    assert remarks[0].startswith(remark) if remark else remarks == []
