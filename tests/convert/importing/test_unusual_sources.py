"""Sources of unusual form: every flag is read, or is named as not known; nothing is complete that is not."""

from __future__ import annotations

import pytest

from sglang_hydra.convert.importing.expansion import fields_of
from sglang_hydra.convert.importing.importer import Imported, import_source
from sglang_hydra.convert.importing.launches import is_open
from sglang_hydra.convert.importing.shell import gpus_of_slurm
from sglang_hydra.convert.importing.sources import Source
from sglang_hydra.convert.importing.typed import Typed
from sglang_hydra.text.errors import ConfigError
from tests.convert.importing.importing import composer

RUN = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: sglang:v0.5.9\n"
TWO = {"tp_size": 2}


def imported(name: str, text: str, **variables: str) -> list[Imported]:
    return import_source(Source(name, text, variables=variables), Typed(), composer())


WHOLE: list[tuple[str, str, list[dict[str, object]]]] = [
    ("crlf.sh", f"{RUN} \\\r\n  --tp 2 \\\r\n  --port 1\r\n", [{**TWO, "port": 1}]),
    ("windows.bat", "python -m sglang.launch_server ^\r\n  --model-path Qwen/Qwen3-8B ^\r\n  --tp 2\r\n", [TWO]),
    ("power.ps1", "python -m sglang.launch_server `\n  --model-path Qwen/Qwen3-8B `\n  --tp 2\n", [TWO]),
    ("tabs.sh", f"\tif true; then\n\t\t{RUN}\t\\\n\t\t\t--tp\t2\n\tfi\n", [TWO]),
    (
        "pod.json",
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"sglang",'
        '"command":["python3","-m","sglang.launch_server"],"args":["--model-path","Qwen/Qwen3-8B","--tp","2"]}]}}',
        [TWO],
    ),
    (
        "entry.sh",
        "docker run --gpus all --entrypoint python3 lmsysorg/sglang:v0.5.9 -m sglang.launch_server "
        "--model-path Qwen/Qwen3-8B --tp 2",
        [TWO],
    ),
    ("login.sh", f'bash -lc "cd /x && exec {RUN} --tp 2"', [TWO]),
    ("uv.sh", "uvx --from sglang==0.5.9 sglang serve Qwen/Qwen3-8B --tp 2", [TWO]),
    ("env.sh", f"env -u X A=1 nice -n 5 numactl --membind=0 {RUN} --tp 2", [TWO]),
    ("heredoc.sh", f"cat > run.sh <<EOF\n{RUN} --tp 2\nEOF\nsbatch run.sh\n", [TWO]),
    ("remote.sh", f"ssh node1 'bash -s' <<'EOF'\n{RUN} --tp 2\nEOF\n", [TWO]),
    ("commented.sh", f'A=(\n  --tp 2 # two\n  # --dp 4\n)\nA+=(--port 1)\n{RUN} "${{A[@]}}"\n', [{**TWO, "port": 1}]),
    ("inline.sh", f"{RUN} --tp 2 `# all of them` --port 1\n", [{**TWO, "port": 1}]),
    ("keys.sh", f"declare -A T=([a]=2 [b]=4)\nK=a\n{RUN} --tp ${{T[$K]}}\n", [TWO]),
    ("counted.sh", f"G=(0 1 2 3)\n{RUN} --tp $(( ${{#G[@]}} / 2 ))\n", [TWO]),
    ("groups.sh", f"(cd /x && timeout 9 {RUN} --tp 2 &)\n{{ {RUN} --tp 4; }} | tee log\n", [TWO, {"tp_size": 4}]),
    ("tmux.sh", f'tmux new -d "{RUN} --tp 2"\nscreen -dmS s bash -c "{RUN} --tp 4"\n', [TWO, {"tp_size": 4}]),
    ("one.sh", f"export A=1 T=2; {RUN} --tp $T; echo done\n", [TWO]),
    ("Procfile", f"web: {RUN} --tp 2\n", [TWO]),
    ("below.yaml", "server:\n  model-path: Qwen/Qwen3-8B\n  tp: 2\n", [TWO]),
    ("below.json", '{"server_args": {"model_path": "Qwen/Qwen3-8B", "tp_size": 2}}', [TWO]),
    ("list.yaml", "servers: [{model: Qwen/Qwen3-8B, tp: 2}, {model: Qwen/Qwen3-8B, tp: 4}]\n", [TWO, {"tp_size": 4}]),
    ("flags.yaml", "--model-path: Qwen/Qwen3-8B\n--tp: 2\n", [TWO]),
    ("sky.yaml", f"envs: {{T: 2}}\nrun: |\n  {RUN} --tp $T\n", [TWO]),
    (
        "sky_gpus.yaml",
        f"resources:\n  accelerators: H100:2\nrun: |\n  {RUN} --tp $SKYPILOT_NUM_GPUS_PER_NODE\n",
        [TWO],
    ),
    (
        "isvc.yaml",
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: p}\nspec:\n  predictor:\n"
        "    model:\n      modelFormat: {name: huggingface}\n      runtime: kserve-sglang\n"
        "      storageUri: hf://Qwen/Qwen3-8B:main\n      args: [--tp-size, '2']\n",
        [TWO],
    ),
    ("dstack.yml", f"type: service\nenv: [T=2, HF_TOKEN]\ncommands:\n  - {RUN} --tp $T\n", [TWO]),
    ("workflow.yml", f"jobs:\n  t:\n    steps:\n      - run: |\n          {RUN} --tp 2 &\n", [TWO]),
    ("apptainer.sh", f"apptainer exec --nv --env SGLANG_A=1 x.sif {RUN} --tp 2", [TWO]),
    ("kubectl.sh", f"kubectl run s --image=lmsysorg/sglang:v0.5.9 --command -- {RUN} --tp 2", [TWO]),
    (
        "dynamo.sh",
        f"python3 -m dynamo.sglang --discovery-backend etcd {RUN[31:]} --tp 2 --router-mode kv --embedding-worker",
        [TWO],
    ),
    ("bom.sh", f"\ufeff{RUN} --tp 2", [TWO]),
    (
        "job.sh",
        f"#SBATCH --nodes=2\nsrun bash -c '{RUN} --tp 2 --nnodes $SLURM_NNODES --node-rank $SLURM_PROCID'",
        [{**TWO, "nnodes": 2}],
    ),
    (
        "ranks.sh",
        f'if [ "$R" -eq 0 ]; then\n {RUN} --tp 2 --nnodes 2 --node-rank 0\n'
        f"else\n {RUN} --tp 2 --nnodes 2 --node-rank 1\nfi\n",
        [{**TWO, "nnodes": 2}],
    ),
    ("quotes.sh", f'{RUN} --tp=2 --json-model-override-args \'{{"a": {{"b": 1}}}}\'', [TWO]),
    (
        "remarks.Dockerfile",
        'ARG V=v0.5.9\nFROM lmsysorg/sglang:${V} AS x\nARG MODEL="Qwen/Qwen3-8B"\nENV MODEL=${MODEL} TP=2\n'
        "CMD python3 -m sglang.launch_server --model-path $MODEL \\\n    # of all\n\n    --tp $TP \\\n    --port 1\n",
        [{**TWO, "port": 1}],
    ),
]


@pytest.mark.parametrize(("name", "text", "servers"), WHOLE, ids=[row[0] for row in WHOLE])
def test_every_flag_is_read(name: str, text: str, servers: list[dict[str, object]]) -> None:
    found = imported(name, text)
    overrides = [{key: value for key, value in one.overrides.items() if key[:4] != "json"} for one in found]
    assert overrides == servers
    assert all(one.complete for one in found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("unit.service", f"[Service]\nExecStart=/usr/bin/{RUN} --tp 2\n"),
        ("supervisor.conf", f"[program:s]\ncommand={RUN} --tp 2\n"),
        ("Makefile", f"serve:\n\t{RUN} --tp $(TP)\n"),
        ("called.py", f'import os\nos.system("{RUN} "\n          "--tp 2")\n'),
        ("", f'import os\nos.system("{RUN} --tp 2")\n'),
        ("serve.py", f"subprocess.Popen({RUN.split()})\n"),
    ],
)
def test_a_file_with_rules_of_its_own_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="is a unit of systemd or supervisor, a makefile or a program") as caught:
        imported(name, text)
    assert "import 'COMMAND'" in (caught.value.findings[0].hint or "")


OPEN: list[tuple[str, str, dict[str, str]]] = [
    (
        "helm.yaml",
        f"{POD}    command: [python3, -m, sglang.launch_server]\n    args:\n    - --model-path\n"
        "    - {{ .Values.model | quote }}\n    - --tp={{ .Values.tp }}\n    {{- if .Values.on }}\n"
        "    - --enable-metrics\n    {{- end }}\n",
        {"model_path": "{{ .Values.model | quote }}", "tp_size": "{{ .Values.tp }}"},
    ),
    (
        "jinja.yaml",
        f"{POD}    command: [python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B]\n    args:\n"
        "    {% if mtp %}\n    - --enable-metrics\n    {% endif %}\n    - --tp={{ tp }}\n",
        {"tp_size": "{{ tp }}"},
    ),
    ("ansible.yaml", f"- tasks:\n  - shell: {RUN} --tp {{{{ tp }}}} --enable-metrics\n", {"tp_size": "{{ tp }}"}),
    ("matrix.yml", f"jobs:\n - run: |\n    {RUN} --tp ${{{{ m.tp }}}} --enable-metrics\n", {"tp_size": "${{ m.tp }}"}),
    (
        "inline.j2",
        f"{RUN} {{% if t %}}--tp {{{{ t }}}}{{% endif %}} {{% for k in f %}}--{{{{ k }}}} {{% endfor %}}"
        "--enable-metrics",
        {"tp_size": "{{ t }}", "{{ k }}": True},
    ),
    (
        "build.Dockerfile",
        f"FROM sglang:v0.5.9\nARG T\nENV T=${{T}}\nCMD {RUN} --tp $T --enable-metrics\n",
        {"tp_size": "${T}"},
    ),
    ("readme.md", f"```bash\n{RUN} --tp <number of GPUs> --enable-metrics\n```\n", {"tp_size": "<number of GPUs>"}),
]


@pytest.mark.parametrize(("name", "text", "left_open"), OPEN, ids=[row[0] for row in OPEN])
def test_what_a_template_leaves_open_is_named(name: str, text: str, left_open: dict[str, str]) -> None:
    (server,) = imported(name, text)
    assert {item.name: item.before for item in server.differences} == left_open
    assert server.overrides["enable_metrics"] is True
    assert not server.complete


def test_a_template_is_filled_by_its_names() -> None:
    text = f"{POD}    command: [python3, -m, sglang.launch_server, --model-path, '{{{{ .Values.m }}}}', --tp, <tp>]\n"
    (server,) = imported("helm.yaml", text, m="Qwen/Qwen3-8B", tp="2")
    assert (server.choices["model"], server.overrides, server.complete) == ("qwen3_8b", TWO, True)


@pytest.mark.parametrize(
    ("path", "facts"), [("/mnt/models", "qwen3_8b"), ("/", None), ("org/another", None), ("./here", None)]
)
def test_a_path_of_another_machine_has_the_facts_of_the_name_that_is_served(path: str, facts: str | None) -> None:
    line = f"python -m sglang.launch_server --model-path {path} --served-model-name Qwen/Qwen3-8B --tp 2\n"
    (server,) = imported("served.sh", line)
    assert server.nodes.get("model.facts_from") == facts
    assert server.overrides["model_path"] == path
    assert server.complete


def test_a_patch_is_named() -> None:
    with pytest.raises(ConfigError) as failure:
        imported("patch.yaml", "- op: replace\n  path: /x\n  value: [--model-path, Qwen/Qwen3-8B, --tp, '2']\n")
    assert "kubectl kustomize . |" in (failure.value.findings[0].hint or "")


@pytest.mark.parametrize("words", ["{1..4}", "{8,16}", "$(seq 1 4)", "`seq 1 4`", "${A##*/}"])
def test_what_only_a_shell_makes_of_a_word_is_open(words: str) -> None:
    assert is_open(fields_of(words, {"A": "x/y"})[0])
    assert fields_of("'{8,16}'", {}) == ["{8,16}"]
    assert fields_of("${A:-1,2}", {}) == ["1,2"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "base_image: {image: lmsysorg/sglang:v0.5.8.post1}\ndocker_server:\n"
            "  start_command: python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B\n    --tp 2\n  port: 8000\n",
            "0.5.8.post1",
        ),
        ('pip install "sglang[all]==0.5.10"  # not sglang==0.5.4\n' + RUN + " --tp 2\n", "0.5.10"),
        (f"pip install sglang==0.5.10 || pip install sglang==0.5.9\n{RUN} --tp 2\n", None),
        ("sglang:\n  extraArgs:\n    - --model-path=Qwen/Qwen3-8B\n    - --tp-size=2\n  replicas: 2\n", None),
    ],
    ids=["a folded text", "a pin", "two pins", "a chart's values"],
)
def test_a_command_in_a_file_of_unknown_form_is_read_whole(text: str, version: str | None) -> None:
    (server,) = imported("values.yaml", text)
    assert (server.choices["model"], server.overrides["tp_size"], server.version) == ("qwen3_8b", 2, version)
    assert server.complete


def test_a_build_that_the_text_installs_is_no_release() -> None:
    text = f"pip install sglang==0.5.6.post2.dev8005+pr.15207.g39d5bd57a\n{RUN} --enable-mtp\n"
    (one,) = imported("README.sh", text)
    assert any("0.5.6.post2.dev8005+pr.15207.g39d5bd57a, which is not in" in item.message for item in one.findings)


def test_a_flag_of_a_test_run_starts_no_server() -> None:
    with pytest.raises(ConfigError, match="starts no SGLang"):
        imported("unit.sh", "bash ./run_unit.sh unit/ --cov=nemo_rl --hf-gated --sglang-only\n")


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("--gres=gpu:4", 4),
        ("--gres=gpu:h100:8", 8),
        ("--gpus-per-node=rtx-4090:2", 2),
        ("--gres=gpu:a100-sxm4-80gb:4", 4),
        ("--gpus-per-node 8", 8),
        ("--gpus=16", None),
        ("--gres=gpu", None),
    ],
)
def test_the_gpus_of_a_node_are_read_from_every_form_that_slurm_takes(line: str, gpus: int | None) -> None:
    assert gpus_of_slurm(f"#!/bin/bash\n#SBATCH {line}\n#SBATCH --time=1:00:00\nsrun true\n") == gpus
