"""Where a model's facts come from, and what is said when they cannot be had."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from sglang_hydra.facts.hub import cache_root, is_remote_url, read_model

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
READ = {**LLAMA, "intermediate_size": 11008, "num_key_value_heads": 32, "head_dim": 128, "tie_word_embeddings": False}
CODE = {"AutoConfig": "configuration.Config"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user whose cache is empty and who is offline."""
    return {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}


def written(folder: Path, config: Any = None, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(LLAMA if config is None else config)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def cached(env: Mapping[str, str], name: str, ref: str | None = "main") -> Path:
    """A repository in the cache as huggingface_hub lays it out."""
    base = Path(env["HF_HOME"]) / "hub" / f"models--{name.replace('/', '--')}"
    if ref:
        (base / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (base / "refs" / ref).write_text(COMMIT, encoding="utf-8")
    blob = written(base / "blobs", name="5d41402a")
    (base / "snapshots" / COMMIT).mkdir(parents=True)
    (base / "snapshots" / COMMIT / "config.json").symlink_to(blob / "5d41402a")
    return base


def test_a_folder_is_read_from_its_config(tmp_path: Path, env: dict[str, str]) -> None:
    folder = written(tmp_path / "model")
    facts, findings = read_model(str(folder), env=env)
    assert facts.config == READ
    assert facts.source == str(folder / "config.json")
    assert (facts.gguf, facts.revision, facts.unknown, findings) == (False, None, (), [])
    assert facts.extra["note"] == "the defaults of LlamaConfig of transformers 4.56.1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "b": }', "config.json:2:7: this is no JSON"),
        ("", "config.json:1:1: this is no JSON"),
        ("[1]", "holds a JSON list, not an object"),
        ("null", "holds a JSON NoneType, not an object"),
        ("[" * 100_000, "cannot be read"),
        ('{"a": ' + "9" * 5000 + "}", "cannot be read"),
    ],
)
def test_a_broken_config_is_an_error_that_says_where(tmp_path: Path, env: dict[str, str], text: str, said: str) -> None:
    facts, findings = read_model(str(written(tmp_path, text)), env=env)
    assert facts.config is None
    assert [(finding.level, finding.id) for finding in findings] == [("error", "HUB001")]
    assert said in findings[0].message


def test_a_config_that_is_no_text_is_an_error(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff\xfe"}')
    _, findings = read_model(str(tmp_path), env=env)
    assert (findings[0].id, "cannot be read" in findings[0].message) == ("HUB001", True)


def test_a_folder_without_a_config_is_an_error(tmp_path: Path, env: dict[str, str]) -> None:
    facts, findings = read_model(str(tmp_path), env=env)
    assert facts.config is None
    assert (findings[0].level, findings[0].id) == ("error", "HUB002")
    assert "is a folder without config.json" in findings[0].message


def test_a_file_that_is_no_gguf_is_an_error(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "model.bin").write_bytes(b"PK\3\4")
    _, findings = read_model(str(tmp_path / "model.bin"), env=env)
    assert findings[0].id == "HUB002"


@pytest.mark.parametrize("path", ["s3://bucket/model", "redis://host:1/model", "a://", "https://host/x/y"])
def test_a_remote_url_is_left_alone(env: dict[str, str], path: str) -> None:
    assert is_remote_url(path)
    facts, findings = read_model(path, env=env)
    assert (facts.config, facts.gguf) == (None, False)
    assert [(finding.level, finding.id) for finding in findings] == [("warning", "HUB004")]


@pytest.mark.parametrize("path", ["org/name", "://x", "/models/s3:/x"])
def test_other_paths_are_no_remote_urls(path: str) -> None:
    assert not is_remote_url(path)


@pytest.mark.parametrize(("name", "content"), [("m.gguf", b""), ("m.bin", b"GGUF\3\0"), ("m", b"GGUF")])
def test_a_gguf_file_is_recognised_by_ending_or_header(
    tmp_path: Path, env: dict[str, str], name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    facts, findings = read_model(str(tmp_path / name), env=env)
    assert facts.gguf
    assert facts.config is None
    assert findings[0].id == "HUB004"
    assert "its header is cut off" in findings[0].message or "does not begin with GGUF" in findings[0].message


def test_a_config_beside_a_gguf_file_is_used_and_told(tmp_path: Path, env: dict[str, str]) -> None:
    (written(tmp_path) / "m.gguf").write_bytes(b"GGUF")
    facts, findings = read_model(str(tmp_path / "m.gguf"), env=env)
    assert (facts.gguf, facts.config) == (True, READ)
    assert "SGLang reads the GGUF header instead" in facts.extra["note"]
    assert findings == []


def test_a_named_config_serves_a_gguf_file(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    named = written(tmp_path / "other")
    facts, _ = read_model(str(tmp_path / "m.gguf"), facts_from=str(named), env=env)
    assert (facts.gguf, facts.config) == (True, READ)


def test_a_hub_id_is_read_from_the_local_cache(env: dict[str, str]) -> None:
    cached(env, "org/name")
    facts, findings = read_model("org/name", env=env)
    assert (facts.config, facts.revision, findings) == (READ, COMMIT, [])
    assert facts.source == f"org/name in the local cache, revision {COMMIT[:12]}"


FORMAT = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}}


def test_the_format_that_stands_beside_the_config_is_read_too(tmp_path: Path, env: dict[str, str]) -> None:
    folder = written(tmp_path / "model")
    written(folder, FORMAT, "hf_quant_config.json")
    written(cached(env, "org/name") / "snapshots" / COMMIT, FORMAT, "hf_quant_config.json")
    for name, named in ((str(folder), None), ("org/name", None), ("org/other", str(folder))):
        facts, _ = read_model(name, facts_from=named, env=env)
        assert facts.config == {**READ, "quantization_config": {"quant_method": "modelopt", **FORMAT["quantization"]}}
        assert json.loads(facts.extra["files"]["hf_quant_config.json"]) == FORMAT


def test_a_format_that_the_config_states_itself_stays(tmp_path: Path, env: dict[str, str]) -> None:
    folder = written(tmp_path / "model", {**LLAMA, "quantization_config": {"quant_method": "fp8"}})
    written(folder, FORMAT, "hf_quant_config.json")
    config = read_model(str(folder), env=env).facts.config
    assert config is not None
    assert config["quantization_config"] == {"quant_method": "fp8"}


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"quantization": 4}'])
def test_a_broken_format_beside_the_config_is_an_error(tmp_path: Path, env: dict[str, str], text: str) -> None:
    folder = written(written(tmp_path / "model"), text, "hf_quant_config.json")
    facts, (finding,) = read_model(str(folder), env=env)
    assert facts.config is None
    assert (finding.id, "hf_quant_config.json cannot be read" in finding.message) == ("HUB001", True)


@pytest.mark.parametrize(("ref", "asked"), [("v1.0", "v1.0"), ("refs/pr/3", "refs/pr/3"), (None, COMMIT)])
def test_a_revision_is_a_ref_or_a_commit(env: dict[str, str], ref: str | None, asked: str) -> None:
    cached(env, "org/name", ref)
    assert read_model("org/name", revision=asked, env=env).facts.config == READ


def test_another_revision_than_the_cached_one_is_unknown(env: dict[str, str]) -> None:
    cached(env, "org/name")
    facts, findings = read_model("org/name", revision="v2", env=env)
    assert facts.config is None
    assert "no config.json of org/name@v2" in findings[0].message


@pytest.mark.parametrize(
    ("variables", "root"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/d"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({}, str(Path.home() / ".cache/huggingface/hub")),
        ({"HF_HOME": ""}, str(Path.home() / ".cache/huggingface/hub")),
    ],
)
def test_the_cache_lies_where_the_environment_says(variables: dict[str, str], root: str) -> None:
    assert cache_root(variables) == root


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "yes"}, "HF_HUB_OFFLINE is set"),
        ({"HF_HUB_OFFLINE": "0", "SGLANG_USE_MODELSCOPE": "true"}, "SGLANG_USE_MODELSCOPE"),
        ({"HF_HUB_OFFLINE": "0"}, "huggingface_hub is not installed"),
    ],
)
def test_an_unknown_model_says_what_was_tried_and_what_to_do(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    facts, findings = read_model("org/name", env={**env, **variables})
    assert facts.config is None
    assert len(facts.extra["tried"]) == 2
    assert [(finding.level, finding.id) for finding in findings] == [("warning", "HUB004")]
    assert said in findings[0].message
    assert env["HF_HOME"] in findings[0].message
    assert "model.facts_from" in str(findings[0].hint)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A hub on this machine that answers with the status put here, and a huggingface_hub that downloads from it.

    ``requests`` of the module lists what was asked of either.
    """
    status = [200]
    module: Any = ModuleType("huggingface_hub")
    module.requests = []
    module.file = None

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            module.requests.append((self.command, self.path))
            self.send_response(status[0])
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    def download(repo_id: str, filename: str, revision: str | None, **options: Any) -> str:
        module.requests.append(("download", repo_id, filename, revision))
        if module.file is None:
            raise RuntimeError(f"{repo_id} is gated\nand a long story")
        return str(module.file)

    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    module.hf_hub_url = lambda repo_id, filename, revision: (
        f"http://127.0.0.1:{server.server_port}/{repo_id}/resolve/{revision or 'main'}/{filename}"
    )
    module.hf_hub_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield status
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def online(env: dict[str, str]) -> dict[str, str]:
    return {**env, "HF_HUB_OFFLINE": "0"}


def hub() -> Any:
    return sys.modules["huggingface_hub"]


@pytest.mark.parametrize("status", [200, 401])
def test_a_model_that_is_not_cached_is_fetched_where_the_hub_may_be_asked(
    tmp_path: Path, online: dict[str, str], answers: list[int], status: int
) -> None:
    answers[0] = status
    hub().file = written(tmp_path / "snapshots" / COMMIT) / "config.json"
    facts, findings = read_model("org/name", revision="v2", env=online)
    assert (facts.config, facts.revision, findings) == (READ, COMMIT, [])
    assert facts.source == f"org/name on the hub, revision {COMMIT[:12]}"
    assert hub().requests == [
        ("HEAD", "/org/name/resolve/v2/config.json"),
        ("download", "org/name", "config.json", "v2"),
    ]


def test_a_refused_download_says_why(online: dict[str, str], answers: list[int]) -> None:
    facts, findings = read_model("org/name", env=online)
    assert facts.config is None
    assert "(RuntimeError: org/name is gated)" in findings[0].message


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_is_out_of_order_is_asked_once(online: dict[str, str], answers: list[int], status: int) -> None:
    answers[0] = status
    facts, findings = read_model("org/name", env=online)
    assert facts.config is None
    assert hub().requests == [("HEAD", "/org/name/resolve/main/config.json")]
    assert f"HTTP Error {status}" in findings[0].message


def test_a_hub_that_cannot_be_reached_is_asked_once(
    online: dict[str, str], answers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x"
        monkeypatch.setattr(hub(), "hf_hub_url", lambda *_, **__: url)
        facts, findings = read_model("org/name", env=online)
    assert facts.config is None
    assert hub().requests == []
    assert "the hub gave no config.json of org/name (URLError" in findings[0].message


def test_a_hub_that_answers_with_a_broken_config_is_an_error(
    tmp_path: Path, online: dict[str, str], answers: list[int]
) -> None:
    hub().file = written(tmp_path / COMMIT, "<html>") / "config.json"
    assert read_model("org/name", env=online).findings[0].id == "HUB001"


def test_a_named_config_comes_before_the_hub(tmp_path: Path, online: dict[str, str], answers: list[int]) -> None:
    named = written(tmp_path / "named") / "config.json"
    facts, findings = read_model("org/name", facts_from=str(named), env=online)
    assert (facts.config, hub().requests, findings) == (READ, [], [])
    assert facts.source == f"model.facts_from={named}"


def test_the_models_own_config_comes_before_the_named_one(tmp_path: Path, env: dict[str, str]) -> None:
    own = written(tmp_path / "own", {**LLAMA, "hidden_size": 1})
    named = written(tmp_path / "named")
    assert read_model(str(own), facts_from=str(named), env=env).facts.config["hidden_size"] == 1  # type: ignore[index]


def test_a_named_config_serves_a_folder_that_has_none(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "own").mkdir()
    facts, findings = read_model(str(tmp_path / "own"), facts_from=str(written(tmp_path / "named")), env=env)
    assert (facts.config, findings) == (READ, [])
    assert "config.json is not there" in facts.extra["note"]


@pytest.mark.parametrize("path", ["org/name", "s3://bucket/model", "./missing"])
def test_a_named_config_that_is_not_there_is_an_error(tmp_path: Path, env: dict[str, str], path: str) -> None:
    facts, findings = read_model(path, facts_from=str(tmp_path / "none.json"), env=env)
    assert facts.config is None
    assert [(finding.level, finding.id, finding.fields) for finding in findings] == [
        ("error", "HUB003", ("model.facts_from",))
    ]


@pytest.mark.parametrize(
    "path",
    ["./missing", "../missing", "/no/such/folder", "~/model", "a/b/c", "", "a b", "a\\b", "x\0y", "org/" + "n" * 97],
)
def test_a_path_that_is_no_hub_id_is_not_looked_for_elsewhere(env: dict[str, str], path: str) -> None:
    facts, findings = read_model(path, env={**env, "HF_HUB_OFFLINE": "0"})
    assert facts.config is None
    assert facts.extra["tried"] == [f"{path} is not on this machine"]
    assert findings[0].id == "HUB004"


def test_a_newer_dtype_is_known_under_the_name_that_sglang_reads(tmp_path: Path, env: dict[str, str]) -> None:
    config = {"dtype": "bfloat16", "text_config": {"dtype": "float16"}, "vision_config": {"torch_dtype": "float32"}}
    facts, _ = read_model(str(written(tmp_path, config)), env=env)
    assert facts.config is not None
    assert facts.config["torch_dtype"] == "bfloat16"
    assert facts.config["text_config"]["torch_dtype"] == "float16"
    assert facts.config["vision_config"] == {"torch_dtype": "float32"}


def test_a_config_with_its_own_code_is_remarked(tmp_path: Path, env: dict[str, str]) -> None:
    folder = str(written(tmp_path, {**LLAMA, "auto_map": {"AutoConfig": "configuration.Config"}}))
    assert read_model(folder, env=env).facts.config_class == "LlamaConfig"
    trusted = read_model(folder, trust_remote_code=True, env=env).facts
    assert (trusted.config_class, trusted.config) == (
        None,
        {**LLAMA, "auto_map": {"AutoConfig": "configuration.Config"}},
    )
    assert "no known config class reads it" in trusted.extra["note"]


def test_fields_that_a_config_leaves_out_are_remarked(tmp_path: Path, env: dict[str, str]) -> None:
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"hidden_size": 5376}}
    config |= {"model_type": "gemma3"}
    facts, findings = read_model(str(written(tmp_path, config)), env=env)
    assert facts.unknown == ()
    assert [(finding.level, finding.id) for finding in findings] == [("info", "HUB006")]
    assert "states no text_config.num_hidden_layers" in findings[0].message
    assert "vision_config: the defaults of Gemma3Config of transformers 4.56.1 hold" in findings[0].message
