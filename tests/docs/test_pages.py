"""The pages in docs/: none is stale, every link leads somewhere, every example of the pages written by hand is run."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.cli.id_pages import known_ids
from sglang_hydra.cli.invocation import read_invocation
from sglang_hydra.text.flags import VERBS
from tests.measure.sweep.place import make_fake_python, place_in
from tests.readme import REPOSITORY, Block, blocks, environment, run_block
from tests.run.launch.processes import free_port
from tools import reference_pages

DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXECUTED = (
    "index",
    "plan",
    "tutorial",
    "runbook",
    "own_repo",
    "ci",
    "architecture",
    "frameworks",
    "actual",
    "versions",
    "mounts",
    "verl",
)
"""Every example on these is run."""
OF_THE_SITE = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages of the site that come from elsewhere."""
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def page_name(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site makes them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_the_reference_is_what_the_code_says() -> None:
    stale = [
        name
        for name, content in reference_pages.pages().items()
        if (reference_pages.FOLDER / name).read_text(encoding="utf-8") != content
    ]
    assert stale == [], "stale: make generate"
    assert {file.name for file in reference_pages.FOLDER.iterdir()} == set(reference_pages.pages())


def test_a_stale_page_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference_pages, "FOLDER", tmp_path)
    assert reference_pages.main([]) == 0
    assert reference_pages.main(["--check"]) == 0
    (tmp_path / "rules.md").write_text("old")
    (tmp_path / "left_over.md").write_text("old")
    assert reference_pages.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "rules.md is stale: make generate" in said
    assert "left_over.md is left over" in said


def test_the_reference_has_every_argument_and_every_id() -> None:
    made = reference_pages.pages()
    headings = set(re.findall(r"^### (\w+)$", made["arguments.md"], re.MULTILINE))
    assert headings == set(FIELDS)
    told = " ".join(made[name] for name in ("rules.md", "checks.md", "findings.md"))
    told += (DOCS / "diagnosis.md").read_text(encoding="utf-8")
    assert {id for id in known_ids() if id not in told} == set()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in _LINK.findall(text):
        if target in OF_THE_SITE:
            assert (REPOSITORY / OF_THE_SITE[target]).is_file()
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), f"{page_name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page_name(page)} links to {target}#{anchor}"


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))

    def named(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        children = entry.values() if isinstance(entry, dict) else entry
        assert isinstance(children, (list, type({}.values())))
        return [name for child in children for name in named(child)]

    assert sorted(named(site["nav"])) == sorted([*map(page_name, PAGES), *OF_THE_SITE])


@pytest.mark.parametrize("name", EXECUTED)
def test_every_block_says_how_it_is_tested(name: str) -> None:
    known = re.compile(r"run(: (package|serving))?|shows|file: .+|screen: .+|tools/house\.py")
    assert [block for block in blocks(page=f"docs/{name}.md") if not known.fullmatch(block.kind)] == []


@pytest.mark.corpus
@pytest.mark.parametrize("name", [name for name in EXECUTED if blocks("run", page=f"docs/{name}.md")])
def test_its_examples_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    programs, workplace = tmp_path / "programs", tmp_path / "workplace"
    programs.mkdir()
    workplace.mkdir()
    env = environment(programs)
    before = printed = ""
    for block in blocks(page=f"docs/{name}.md"):
        if block.kind == "run" or block.kind.startswith("file: "):
            printed = run_block(block, workplace, env)
        elif block.kind == "shows" and before == "run":
            assert block.text == printed
        before = block.kind


JUDGED = ("plan", "check", "explain", "diff", "fit", "recipes", "export", "import")
"""Verbs that start nothing."""


def typed_on(page: str) -> list[str]:
    """The commands of ours in the bash blocks of a page, each on one line."""
    text = "\n".join(block.text.replace("\\\n", " ") for block in blocks(page=page) if block.language == "bash")
    return re.findall(r"^(?:sglang-hydra|python serve\.py) ([^#\n]+)", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["diagnosis", "export", "import", "launch", "slurm", "sweeps", "topology"])
def test_what_a_how_to_page_types_is_understood(name: str, tmp_path: Path) -> None:
    """Commands that start nothing are run, as far as the files that they name are there; of the others the words are
    read. Those that start something are run by the tests of their own rooms."""
    env = environment(tmp_path)
    commands = typed_on(f"docs/{name}.md")
    assert commands
    for command in commands:
        words = shlex.split(command)
        assert read_invocation(words).verb in VERBS
        named = {word for word in words[1:] if re.fullmatch(r"[\w./-]+\.(sh|sbatch|ya?ml|json|log)(#[\w-]+)?", word)}
        written_by_it = {word for option, word in itertools.pairwise(words) if option == "-o"}
        if words[0] in JUDGED and all((tmp_path / word).exists() for word in named - written_by_it):
            run_block(Block("run", "bash", f"sglang-hydra {command}\n"), tmp_path, env)


def without_numbers(text: str) -> list[str]:
    """The lines of a text with what differs from run to run, and from engine to engine, written alike; without those
    on measurements, which a busy machine may find invalid."""
    alike = (
        (r"[0-9a-f]{16}", "ID"),
        (r"SGLang [\d.]+|transformers serve", "ENGINE"),
        (r"(?<![\w.])/\S+", "PATH"),
        (r"python serve\.py", "sglang-hydra"),
        (r"\d[\d.,:-]*", "0"),
        (r" +", " "),
    )
    for pattern, written in alike:
        text = re.sub(pattern, written, text)
    measured = re.compile(r"0/0 (in)?valid|points done|best so far|0 points, 0 valid|^ *0 0|output tokens/s")
    return [line.strip() for line in text.splitlines() if not measured.search(line)]


@pytest.mark.thorough
def test_the_servers_of_the_tutorial_serve(tmp_path: Path) -> None:
    """With a stand-in for SGLang; the README's server is a real one, in make test-real."""
    port = str(free_port())
    programs = tmp_path / "programs"
    programs.mkdir()
    with place_in(tmp_path, make_fake_python(tmp_path)) as place:
        theirs = f"model=tiny gpu=cpu engine=sglang engine.python={place.python} attention_backend=torch_native"
        theirs += " grammar_backend=none launch.stop_timeout=5"
        env = environment(programs, forks=False) | place.env | {"SGLANG_HYDRA_STATE_DIR": str(tmp_path / "state")}
        before = printed = ""
        for block in blocks("run", "run: serving", "shows", page="docs/tutorial.md"):
            last, before = before, block.kind
            if block.kind == "shows" and last == "run: serving":
                missing = set(without_numbers(block.text)) - set(without_numbers(printed)) - {"..."}
                assert missing == set(), printed
            if block.kind != "run: serving":
                continue
            text = block.text.replace("30000", port).replace("model=tiny", theirs)
            text = text.replace("bench.concurrency", "bench.client=builtin bench.concurrency")
            printed = run_block(block._replace(text=text), tmp_path, env, timeout_s=250)
        assert place.alive() == []
    (result, *_) = (tmp_path / "first" / "points").glob("*/result.json")
    assert json.loads(result.read_text())["schema"] == "sglang_hydra.result/1"
    assert (tmp_path / "first" / "report.html").is_file()
