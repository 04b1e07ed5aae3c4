"""What we know of Hydra and OmegaConf that they do not publish: each of these fails when a release changes it."""

from __future__ import annotations

import copy
import inspect
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode
from omegaconf import OmegaConf

from sglang_hydra.compose import hydra_apps, hydra_internals, hydra_jobs
from sglang_hydra.compose.hydra_internals import Repository, loader_of
from sglang_hydra.compose.presets import content_of
from sglang_hydra.compose.schema import Root, UnmadeSchema, register
from sglang_hydra.facts.resolvers import register_resolver
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.locations import conf_dir


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a preset of its own and one that has the name of ours."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "h100.yaml").write_text("defaults: [b200]\nname: mine\n")
    (tmp_path / "gpu" / "big.yaml").write_text("name: big\n")
    register()
    return tmp_path


def test_a_loader_searches_named_folders_before_ours_and_code_last(own: Path) -> None:
    sources = loader_of([own]).repository.get_sources()
    assert [(source.scheme(), source.path) for source in sources] == [
        ("file", str(own)),
        ("file", str(conf_dir())),
        ("structured", ""),
    ]


def test_a_repository_lists_options_and_the_file_that_counts(own: Path) -> None:
    repository = Repository(loader_of([own]), "sglang_hydra")
    assert {"big", "h100", "h200"} <= set(repository.options("gpu"))
    assert repository.options_by_source("gpu")[:2] == ["big", "h100"]
    assert sorted(repository.options_by_source("gpu")) == repository.options("gpu")
    files = [content.file for name in ("big", "h100") if (content := content_of(repository, f"gpu/{name}"))]
    assert files == [str(own / "gpu" / "big.yaml"), str(own / "gpu" / "h100.yaml")]


def test_a_repository_expands_a_defaults_list_and_merges_it(own: Path) -> None:
    repository = Repository(loader_of([own]), "sglang_hydra")
    choices = OverridesParser.create().parse_overrides(["gpu=h100", "model=qwen3_8b"])
    listed = repository.defaults(choices)
    paths = [default.config_path for default in listed.defaults]
    assert paths.index("gpu/b200") < paths.index("gpu/h100")
    config = repository.merged(listed.defaults)
    assert (config.gpu.name, config.gpu.memory_mib > 100_000) == ("mine", True)
    assert OmegaConf.is_struct(config)
    assert "hydra" not in config


def test_a_repository_makes_the_nodes_of_our_schema_to_merge_them_alone(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(loader_of([own]), "sglang_hydra")
    with monkeypatch.context() as patch:
        patch.setattr(UnmadeSchema, "__deepcopy__", lambda self, memo: pytest.fail("its nodes are made"))
        listed = repository.defaults([])
        loaded = repository.load_config("sglang_hydra_schema")
    assert loaded is not None
    assert (OmegaConf.get_type(loaded.config), list(loaded.config)) == (Root, [])
    assert "tp_size" in repository.merged(listed.defaults)
    first, second = (ConfigStore.instance().load("sglang_hydra_schema.yaml").node for _ in range(2))
    first.tp_size = 2
    assert second.tp_size == 1
    twin = copy.deepcopy(ConfigStore.instance())
    assert twin.load("sglang_hydra_schema.yaml").node.tp_size == 1


def test_a_repository_adds_the_folders_of_a_search_path_override(own: Path) -> None:
    added = OverridesParser.create().parse_overrides([f"hydra.searchpath=[file://{own}]"])
    loader = loader_of([])
    assert "big" in Repository(loader, "sglang_hydra", added).options("gpu")
    assert "big" not in Repository(loader, "sglang_hydra").options("gpu")


@pytest.mark.parametrize(
    ("word", "after"),
    [
        ("a.b=2", {"a": {"b": 2}}),
        ("+a.c=x", {"a": {"b": 1, "c": "x"}}),
        ("++a.b=[1,2]", {"a": {"b": [1, 2]}}),
        ("~a.b", {"a": {}}),
    ],
)
def test_an_override_is_applied_as_hydra_does(word: str, after: object) -> None:
    config = OmegaConf.create({"a": {"b": 1}})
    OmegaConf.set_struct(config, True)
    (override,) = OverridesParser.create().parse_overrides([word])
    hydra_internals.apply_override(override, config)
    assert config == after


def test_the_package_of_a_header() -> None:
    assert hydra_internals.header_package("# @package bench\na: 1\n") == "bench"
    assert hydra_internals.header_package("a: 1\n") is None
    with pytest.raises(ValueError, match="header"):
        hydra_internals.header_package("# @package\n")


def test_yaml_is_read_as_omegaconf_reads_it() -> None:
    loader = hydra_internals.yaml_loader()
    text = "a: 1e5\nb: 2020-01-01\nc: 1.5\nd: ~\ne: on\n"
    assert yaml.load(text, Loader=loader) == OmegaConf.to_container(OmegaConf.create(text))
    assert yaml.load(text, Loader=loader)["a"] == 1e5
    with pytest.raises(yaml.MarkedYAMLError, match="duplicate key a"):
        yaml.load("a: 1\na: 2\n", Loader=loader)


def test_a_resolver_knows_the_key_and_the_text_of_its_node() -> None:
    found = []

    def note(*, _node_: object) -> str:
        found.append(hydra_internals.key_and_text(_node_))  # type: ignore[arg-type]
        return "x"

    register_resolver("note_its_node", note)
    try:
        config = OmegaConf.create({"a": {"b": "p-${note_its_node:}"}, "c": ["${note_its_node:}"]})
        assert OmegaConf.to_container(config, resolve=True) == {"a": {"b": "p-x"}, "c": ["x"]}
    finally:
        OmegaConf.clear_resolver("note_its_node")
    assert found == [("a.b", "p-${note_its_node:}"), ("c[0]", "${note_its_node:}")]
    assert hydra_internals.key_and_text(None) == ("", "")


def test_a_tree_resolves_against_its_parent() -> None:
    config = OmegaConf.create({"a": "${b.c}"})
    hydra_internals.set_parent(config, OmegaConf.create({"b": {"c": 3}}))
    assert OmegaConf.to_container(config, resolve=True) == {"a": 3}


def test_a_job_of_hydra_runs_over_the_named_folders_then_ours(own: Path) -> None:
    seen = []

    def task(config: object) -> None:
        seen.append([source.path for source in HydraConfig.get().runtime.config_sources])

    hydra = hydra_jobs.hydra_over("test", [str(own)])
    try:
        words = ["gpu=big", "model=qwen3_8b", f"hydra.run.dir={own / 'run'}", "hydra.mode=RUN"]
        hydra.run("sglang_hydra", task, words, with_log_configuration=False)
    finally:
        GlobalHydra.instance().clear()
    assert seen == [["hydra.conf", str(own), str(conf_dir()), ""]]


def test_a_launcher_gets_hydra_s_loader_and_callbacks(own: Path) -> None:
    hydra = hydra_jobs.hydra_over("test", [])
    try:
        words = ["gpu=h200", "model=qwen3_8b", "hydra/launcher=basic", f"hydra.sweep.dir={own / 'jobs'}"]
        config = hydra.compose_config("sglang_hydra", words, run_mode=RunMode.MULTIRUN)
        context = hydra_jobs.context_of(hydra, config)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=lambda task_config: task_config.port, config=config
        )
        (job,) = launcher.launch([["gpu=h200", "model=qwen3_8b", "port=1234"]], initial_job_idx=0)
    finally:
        GlobalHydra.instance().clear()
    assert job.return_value == 1234


def test_the_error_of_a_job_is_known_without_a_word_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    job, failure = JobReturn(), ValueError("no")
    job.status, job.return_value = JobStatus.FAILED, failure
    assert hydra_jobs.error_of(job) is failure
    assert capsys.readouterr() == ("", "")


def test_an_app_that_starts_is_known_once(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hydra

    main = sys.modules["hydra.main"]
    seen = []

    def task(config: object) -> None:
        seen.extend([hydra_apps.take_starting_app(), hydra_apps.take_starting_app()])

    (own / "app.yaml").write_text("port: 1\n")
    monkeypatch.delitem(sys.modules, "sglang_hydra.run.hydra_app", raising=False)  # or the plugin takes it first
    monkeypatch.setattr("sys.argv", ["app.py", "port=2", f"hydra.run.dir={own}/run", "--config-name", "app"])
    monkeypatch.setattr(main, "_run_hydra", inspect.unwrap(main._run_hydra))
    hydra_apps.watch_apps(lambda failure, words: None)
    watched = main._run_hydra
    hydra_apps.watch_apps(lambda failure, words: None)
    assert main._run_hydra is watched
    assert hydra_apps.take_starting_app() is None
    hydra.main(version_base="1.3", config_path=str(own), config_name="another")(task)()
    app, again = seen
    assert app is not None
    assert (app.task, app.config_name, app.args.overrides[0]) == (task, "app", "port=2")
    assert (again, hydra_apps.take_starting_app()) == (None, None)


def test_an_app_that_starts_is_checked_before_hydra_composes_it(own: Path) -> None:
    (own / "app.py").write_text(
        "import hydra, sglang_hydra\n"
        "@hydra.main(version_base='1.3', config_path='.', config_name='app')\n"
        "@sglang_hydra.main\n"
        "def run(plan): print(plan.server_id)\n"
        "run()\n"
    )
    (own / "app.yaml").write_text("defaults: [sglang_hydra_schema, gpu: h200, model: qwen3_8b, engine: sglang]\n")
    done = subprocess.run([sys.executable, "app.py", "tp_sise=2"], cwd=own, capture_output=True, text=True)
    assert done.returncode == 2
    assert "CLI001  override 1: 'tp_sise' is neither" in done.stderr, done.stderr


def test_the_tests_that_the_docstring_names_are_here() -> None:
    named = re.findall(r"\b(test_[a-z_]+\*?)(?![\w/.])", f"{hydra_internals.__doc__} {hydra_jobs.__doc__}")
    assert len(named) >= 10
    for name in named:
        assert any(fnmatch(test, name) for test in globals()), name


@pytest.mark.parametrize("folder", ["{conf}/../mine", "{mine}"])
def test_a_folder_beside_ours_keeps_its_own_rules(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that only begins like ours is a stranger's: its primary config adds no search path."""
    ours, mine = tmp_path / "conf", tmp_path / "mine"
    shutil.copytree(conf_dir(), ours)
    mine.mkdir()
    (mine / "run.yaml").write_text("defaults: [sglang_hydra_schema]\nhydra: {searchpath: ['pkg://theirs']}\n")
    monkeypatch.setattr("sglang_hydra.compose.hydra_internals.conf_dir", lambda: ours)
    place = folder.format(conf=ours, mine=mine)
    assert not hydra_internals.is_own_file(f"{place}/run.yaml")
    with pytest.raises(ConfigError, match="searchpath"):
        Repository(loader_of([place]), "run")


def test_a_search_path_that_is_added_to_our_primary_config_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, more = tmp_path / "conf", tmp_path / "more"
    shutil.copytree(conf_dir(), ours)
    (more / "gpu").mkdir(parents=True)
    (more / "gpu" / "mine.yaml").write_text("defaults: [b200]\nname: mine\n")
    primary = ours / "sglang_hydra.yaml"
    before, after = loader_of([ours]), loader_of([ours])
    monkeypatch.setattr("sglang_hydra.compose.hydra_internals.conf_dir", lambda: ours)
    assert hydra_internals.is_own_file(str(primary))
    assert "mine" not in Repository(before, "sglang_hydra", trusts_files=True).options("gpu")
    primary.write_text(f"{primary.read_text()}hydra: {{searchpath: ['file://{more}']}}\n")
    assert "mine" in Repository(after, "sglang_hydra", trusts_files=True).options("gpu")
