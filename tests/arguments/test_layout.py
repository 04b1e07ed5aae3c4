"""The layout of a server: what each release's arguments mean, read in one place and held against its own groups."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sglang_hydra.arguments.layout import _ROWS, Layout, arguments_saying, layout_of, names_of
from sglang_hydra.arguments.tables.table import known_versions, release

PACKAGE = Path(__file__).resolve().parents[2] / "sglang_hydra"
MEANINGS = (
    *("attention_groups", "copies", "attention_contexts", "decode_contexts", "experts", "expert_groups"),
    *("redundant", "dense", "divided_head", "no_graphs", "graph_backend", "graph_sizes", "largest_graph"),
)
NAMES = {name for meaning in MEANINGS for name in names_of(meaning)}
# 0.5.2's own rules read 0.5.2's own names; ports.py has the rule for its ports.
OWN_RULES = ("rules/", "arguments/layout.py", "arguments/ports.py")


def _reads(source: str) -> set[str]:
    """The arguments of ``NAMES`` that a module reads out of something: x[name], x.get(name), x.pop(name), x.name."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found |= {node.slice.value} if isinstance(node.slice, ast.Constant) else set()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            found |= {argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    return {name for name in found if name in NAMES}


def test_no_other_module_reads_the_arguments_of_the_layout() -> None:
    readers = {
        place: names
        for path in PACKAGE.rglob("*.py")
        if not (place := path.relative_to(PACKAGE).as_posix()).startswith(OWN_RULES)
        and (names := _reads(path.read_text(encoding="utf-8")))
    }
    assert readers == {}


def test_what_reads_an_argument_is_found() -> None:
    source = 'a["dp_size"]; b.get("ep_size", 1); c.attn_dp_size; d = {"moe_dp_size": 1}; e["dcp_size"] = 2'
    assert _reads(source) == {"dp_size", "ep_size", "attn_dp_size"}


@pytest.mark.parametrize("meaning", [*MEANINGS, "tp", "stages", "nodes", "all_to_all", "steps", "drafted"])
def test_each_release_has_what_the_table_says_that_it_has(meaning: str) -> None:
    rows, versions = _ROWS[meaning], known_versions()
    assert all(row.source and row.argument in release(row.since).arguments for row in rows)
    for version in versions[versions.index(rows[-1].since) :]:
        for name in arguments_saying(version, **{meaning: 2}):
            assert name in release(version).arguments


@pytest.mark.parametrize(
    ("version", "values", "wanted"),
    [
        ("0.5.2", {"tp_size": 8, "dp_size": 4}, Layout(tp=8, copies=4)),
        ("0.5.2", {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}, Layout(tp=8, attention_groups=4)),
        # What a release that does not have them cannot mean.
        ("0.5.2", {"tp_size": 8, "attn_dp_size": 4, "dcp_size": 2}, Layout(tp=8)),
        ("0.5.21", {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, Layout(tp=8, attention_groups=8)),
        # 0.5.22 and later say that it is on, and count its groups in an argument of their own.
        (
            "0.5.23",
            {"tp_size": 8, "dp_size": 1, "attn_dp_size": 8, "enable_dp_attention": True},
            Layout(tp=8, attention_groups=8),
        ),
        # As it is typed, before the release moves it.
        (
            "0.5.23",
            {"tp_size": 8, "dp_size": 8, "attn_dp_size": 1, "enable_dp_attention": True},
            Layout(tp=8, attention_groups=8),
        ),
        ("0.5.23", {"tp_size": 2, "dp_size": 4, "attn_dp_size": 1}, Layout(tp=2, copies=4)),
        ("0.0.0.dev1", {"tp_size": 8, "attn_dp_size": 8}, Layout(tp=8, attention_groups=8)),
        ("0.5.23", {"tp_size": 8, "moe_dp_size": 2, "ep_size": 4}, Layout(tp=8, expert_groups=2, experts=4)),
        ("0.5.2", {"tp_size": 8, "moe_a2a_backend": "deepep"}, Layout(tp=8, experts=8, all_to_all=True)),
        ("0.5.2", {"tp_size": 0, "dp_size": None}, Layout(possible=False)),
    ],
)
def test_the_same_layout_by_each_releases_own_names(version: str, values: dict[str, object], wanted: Layout) -> None:
    assert layout_of(values, version) == wanted


def test_graphs_by_each_releases_own_names() -> None:
    old = layout_of({"cuda_graph_bs": [1, 2], "cuda_graph_max_bs": 2}, "0.5.13").graphs
    config = {"decode": {"backend": "full", "bs": [1, 2], "max_bs": 2}}
    assert old == layout_of({"cuda_graph_config": config, "disable_cuda_graph": False}, "0.5.23").graphs
    none = {"cuda_graph_config": {"decode": {"backend": "disabled", "bs": None}}}
    assert not layout_of(none, "0.5.23").graphs.made
    assert not layout_of({"disable_cuda_graph": True}, "0.5.2").graphs.made


def test_what_to_type_is_the_releases_own_argument() -> None:
    assert arguments_saying("0.5.23", attention_groups=8) == {"attn_dp_size": 8}
    assert arguments_saying("0.5.21", attention_groups=8) == {"dp_size": 8, "enable_dp_attention": True}
    assert arguments_saying("0.5.23", {"enable_dp_attention"}, attention_groups=8, tp=8) == {
        "dp_size": 8,
        "enable_dp_attention": True,
        "tp_size": 8,
    }
    assert arguments_saying("0.5.23", largest_graph=64) == {"cuda_graph_max_bs_decode": 64}
    assert arguments_saying("0.5.2", largest_graph=64, tp=2) == {"cuda_graph_max_bs": 64, "tp_size": 2}
    with pytest.raises(KeyError):
        arguments_saying("0.5.2", decode_contexts=2)
