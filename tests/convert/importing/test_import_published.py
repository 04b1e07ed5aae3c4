"""Published launches come back as the flags that really start their servers, and as a file that plans to the same."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.convert.importing.importer import Imported
from sglang_hydra.convert.importing.report import yaml_of
from sglang_hydra.planning.making.make import plan
from tests.convert.importing.importing import ids, imported, states, the_one
from tests.convert.importing.published import PUBLISHED, Case

MODEL = "--model-path Qwen/Qwen3-8B"
RUN = f"python3 -m sglang.launch_server {MODEL}"


@pytest.mark.parametrize("case", PUBLISHED, ids=[case.name for case in PUBLISHED])
def test_a_published_launch_has_the_flags_that_start_its_servers(case: Case) -> None:
    servers = imported(case.text)
    assert [flags_of(server) for server in servers] == [parse_argv(shlex.split(flags)) for flags in case.flags]
    assert all(server.complete and server.equal for server in servers)


def flags_of(server: Imported) -> dict[str, object]:
    return parse_argv(server.argv or ())


@pytest.mark.parametrize("case", PUBLISHED[::7], ids=[case.name for case in PUBLISHED[::7]])
def test_its_file_plans_to_the_same_server(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for server, flags in zip(imported(case.text, "gpu=h200"), case.flags, strict=True):
        folder = tmp_path / "conf" / "experiment"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "one.yaml").write_text(yaml_of(server))
        made = plan(["experiment=one"], config_dirs=[tmp_path / "conf"], seed=42)
        words = parse_argv(shlex.split(flags))
        direct = plan(["gpu=h200", *(f"{name}={value!r}" for name, value in words.items())], seed=42)
        assert made.values == direct.values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"TP=2\nwhile read x; do TP=8; done\n{RUN} --tp $TP", "read x"),
        (f'A=(--tp 2)\ngrep x y && A+=(--log-level debug)\n{RUN} "${{A[@]}}"', "grep x y"),
        (f"X=1\nfor a in $(ls); do X=2; done\nY=$X\n{RUN} --tp $Y", "a in $(ls)"),
    ],
)
def test_what_a_condition_decides_is_said(text: str, said: str) -> None:
    assert any(said in finding.message for finding in the_one(text).findings if finding.id == "IMP011")


@pytest.mark.parametrize(
    "text",
    [
        f"if true; then\n  TP=2\nfi\n{RUN} --tp $TP",
        f"export A=1 && {RUN} --tp 2",
        f"S=big\nTP=2\nif [ $S = big ]; then TP=8; fi\n{RUN} --tp $TP",
        f"A=4\nif ((A * 2 > 7 && A != 5)); then TP=8; else TP=2; fi\n{RUN} --tp $TP",
        f'if [ -z "$MODEL" ]; then echo usage; exit 1; fi\n{RUN} --tp 2',
        f'[[ -n "$MODEL" ]] || {{ echo usage; exit 1; }}\n{RUN} --tp 2',
    ],
)
def test_what_nothing_else_sets_needs_no_word(text: str) -> None:
    assert "IMP011" not in ids(the_one(text))


def test_servers_that_stand_together_are_of_one_release() -> None:
    text = (
        "backend:\n  sglang_config:\n"
        "    prefill: {model-path: m, disable-flashinfer-autotune: true, disaggregation-mode: prefill}\n"
        "    decode: {model-path: m, disaggregation-decode-polling-interval: 8, disaggregation-mode: decode}\n"
    )
    assert [server.version for server in imported(text)] == ["0.5.23", "0.5.23"]


def test_a_release_is_guessed_by_flags_and_choices_together() -> None:
    server = the_one(f"{RUN} --disable-flashinfer-autotune --moe-a2a-backend flashinfer")
    assert server.complete
    assert server.overrides["moe_a2a_backend"] == "flashinfer"
    assert server.nodes["disable_flashinfer_autotune"] is True


@pytest.mark.parametrize("flags", ["\u2013tp 2", "\u2014tp 2"])
def test_a_dash_of_a_text_program_is_named(flags: str) -> None:
    (first, *_) = [finding for finding in the_one(f"{RUN} {flags}").findings if finding.level == "error"]
    assert first.hint is not None
    assert "--tp" in first.hint


@pytest.mark.parametrize(
    "variable",
    [
        "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=1024",
        "TOKENIZERS_PARALLELISM=false",
        "SGLANG_USE_AITER_FP8_PER_TOKEN=1",
    ],
)
def test_tokens_of_a_text_are_no_secret(variable: str) -> None:
    name, _, value = variable.partition("=")
    server = the_one(f"{variable} {RUN}")
    assert server.nodes == {f"engine.env.{name}": value}
    assert "IMP009" not in ids(server)


@pytest.mark.parametrize("text", [f"{RUN} --tp $TP", "python3 -m sglang.launch_server --model-path $HOME/m"])
def test_home_is_known_and_nothing_else_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    server = the_one(text)
    assert "HOME" in text or states(server)["tp_size"] == "open"
    assert "HOME" not in text or server.arguments["model_path"] == "/home/ada/m"


def test_the_home_of_a_container_is_its_own() -> None:
    server = the_one("docker run lmsysorg/sglang:v0.5.2 bash -c 'python3 -m sglang.launch_server --model-path $HOME/m'")
    assert states(server)["model_path"] == "open"


def test_a_password_in_the_url_of_a_variable_is_a_secret() -> None:
    server = the_one(f"docker run -e http_proxy=http://ada:hush@proxy:3128 lmsysorg/sglang:v0.5.2 {RUN}")
    assert server.nodes == {"engine.version": "0.5.2", "engine.env.http_proxy": "${oc.env:http_proxy}"}
    assert "hush" not in yaml_of(server)


ADDRESSES = {
    "a model": ("--model-path redis://ada:hush@h/m", "model_path"),
    "an adapter": (f"{MODEL} --lora-paths a=https://ada:hush@h/a b=/b", "lora_paths"),
    "inside JSON": (f'{MODEL} --hicache-storage-backend-extra-config \'{{"u": "redis://:hush@h"}}\'', None),
    "an at sign in it": (f"{MODEL} --tokenizer-path https://ada:hu@hush@h/t", "tokenizer_path"),
}


@pytest.mark.parametrize("case", ADDRESSES)
def test_an_argument_with_a_password_in_its_url_is_referred_to(case: str) -> None:
    flags, name = ADDRESSES[case]
    server = the_one(f"python3 -m sglang.launch_server {flags}", "gpu=h200")
    name = name or "hicache_storage_backend_extra_config"
    assert server.overrides[name] == f"${{oc.env:SGLANG_HYDRA_{name.upper()}}}"
    assert ids(server, ("error", "warning")) == ["IMP009"]
    assert "hush" not in f"{yaml_of(server)} {server}"


UNREAD = [
    "--tp http://ada:hush@h",
    "--x http://ada:hush@$H",
    "--tokenizer-path http://ada:hush@$H",
    "--y http://a:hush@h",
]


@pytest.mark.parametrize("flags", UNREAD)
def test_a_password_is_not_shown_of_a_flag_that_is_left_out(flags: str) -> None:
    server = the_one(f"{RUN} {flags}", "gpu=h200")
    assert ids(server, ("error", "warning"))
    assert "hush" not in f"{yaml_of(server)} {server}"


def test_a_password_in_a_logged_argument_is_not_shown() -> None:
    path = "redis://ada:hush@h/m"
    server = the_one(f"server_args=ServerArgs(model_path='{path}', tokenizer_path='{path}', tp_size=2)", "gpu=h200")
    assert server.overrides["model_path"] == "${oc.env:SGLANG_HYDRA_MODEL_PATH}"
    assert "hush" not in f"{yaml_of(server)} {server}"
