"""A child program: the groups that a release's own code forms for given arguments, by its functions alone.

Standard input is JSON: ``folder``, the unpacked wheel, and ``cases``, arguments by name. It prints for each the groups
by name, and the arguments as the release resolves those of DP attention. The functions are taken out of the release's
files, without their imports; what they call of torch and of the rest of SGLang answers with nothing, and a group is the
list of its ranks. No module is imported.
"""

import ast
import builtins
import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

STATE, ATTENTION, CONTEXT = "distributed/parallel_state.py", "layers/dp_attention.py", "runtime_context.py"
HOOK = "arg_groups/parallel_hook.py"
GROUPS = ("_TP", "_PP", "_DCP", "_ATTN_CP", "_ATTN_TP", "_MOE_DP", "_MOE_EP", "_MOE_TP")
# The parameters of initialize_model_parallel up to 0.5.20, and what model_executor/model_runner.py passes for them.
PASSED: dict[str, Callable[[Any], int]] = {
    "tensor_model_parallel_size": lambda args: args.tp_size,
    "pipeline_model_parallel_size": lambda args: args.pp_size,
    "expert_model_parallel_size": lambda args: args.ep_size,
    "attention_data_parallel_size": lambda args: args.dp_size if args.enable_dp_attention else 1,
    "attention_context_model_parallel_size": lambda args: args.attn_cp_size,
    "moe_data_model_parallel_size": lambda args: args.moe_dp_size,
    "decode_context_parallel_size": lambda args: args.dcp_size,
}


class Nothing:
    """Answers every question with itself, and is false."""

    def __getattr__(self, name: str) -> "Nothing":
        return self

    def __call__(self, *args: Any, **named: Any) -> "Nothing":
        return self

    def __bool__(self) -> bool:
        return False


class Release:
    """The functions of one release."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder) / "sglang" / "srt"

    def has(self, file: str, name: str) -> bool:
        return name in _functions(self.folder / file)

    def function(self, file: str, name: str, **known: Any) -> Any:
        """A function without annotations and imports; its globals are ``known``, those that it sets are None."""
        code, space = _compiled(self.folder / file, name)
        space = {**space, **known}
        exec(code, space)
        return space[name]


@functools.cache
def _compiled(path: Path, name: str) -> tuple[Any, dict[str, Any]]:
    node = _functions(path)[name]
    node.returns = None
    for argument in (*node.args.args, *node.args.kwonlyargs):
        argument.annotation = None
    node = _WithoutImports().visit(node)
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - set(dir(builtins))
    space: dict[str, Any] = {each: Nothing() for each in names}
    for each in ast.walk(node):
        if isinstance(each, ast.Global):
            space |= dict.fromkeys(each.names)
    return compile(ast.fix_missing_locations(ast.Module([node], [])), f"{path}:{name}", "exec"), space


@functools.cache
def _functions(path: Path) -> dict[str, ast.FunctionDef]:
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    return {each.name: each for each in body if isinstance(each, ast.FunctionDef)}


class _WithoutImports(ast.NodeTransformer):
    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return ast.Assign([node.target], node.value) if node.value is not None else None


def groups_of(release: Release, values: Mapping[str, Any]) -> tuple[dict[str, list[list[int]]], dict[str, Any]]:
    """The ranks of each group of one copy of the server, and the resolved arguments."""
    args = SimpleNamespace(**values)
    if release.has(HOOK, "handle_deprecated_dp_attention"):
        move = release.function(
            HOOK,
            "handle_deprecated_dp_attention",
            resolving_view=lambda cfg: cfg,
            declare_resolution=lambda cfg, who, **changed: cfg.__dict__.update(changed),
        )
        move(args)
        args.enable_dp_attention = args.attn_dp_size > 1  # as its ServerArgs.resolved_dict reports it
    world = args.tp_size * args.pp_size
    known: dict[str, Any] = {
        "torch": SimpleNamespace(distributed=_distributed(world)),
        "is_cuda": lambda: True,
        "init_model_parallel_group": lambda ranks, *rest, **named: _Group(ranks),
    }
    widths = _widths(release, args, known)
    start = release.function(STATE, "initialize_model_parallel", **known)
    parameters = set(start.__code__.co_varnames[: start.__code__.co_argcount])
    passed = {name: value(args) for name, value in PASSED.items() if name in parameters}
    if not passed:
        published = SimpleNamespace(**{**vars(args), **widths}, override_permanently=lambda **built: None)
        start.__globals__["get_parallel"] = lambda: published
    start(**passed)
    found = {name: list(group) for name in GROUPS if (group := start.__globals__.get(name))}
    if "_ATTN_TP" not in found:  # before 0.5.9 layers/dp_attention.py forms it
        place = release.function(ATTENTION, "compute_dp_attention_world_info")
        size = place(args.enable_dp_attention, 0, args.tp_size, args.dp_size)[1]
        found["_ATTN_TP"] = [list(range(head, head + size)) for head in range(0, world, size)]
    return found, vars(args)


def _distributed(world: int) -> SimpleNamespace:
    return SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: world, get_backend=Nothing())


class _Group(list[list[int]]):
    """The ranks of each group of one kind, with the attributes that the code looks at."""

    rank_in_group = 1
    pynccl_comm = None


def _widths(release: Release, args: SimpleNamespace, known: dict[str, Any]) -> dict[str, Any]:
    """What the release derives from its arguments (0.5.20 and later); {} where it has no such function."""
    names = ("derive_attention_widths", "derive_attn_tp_size", "derive_parallel_widths", "parallel_widths_of")
    for name in (name for name in names if release.has(CONTEXT, name)):
        known[name] = release.function(CONTEXT, name, **known)
    derive = known.get("parallel_widths_of")
    return dict(derive(args)) if derive else {}


def main(lines: Iterable[str]) -> None:
    asked = json.loads("".join(lines))
    release = Release(asked["folder"])
    print(json.dumps([groups_of(release, values) for values in asked["cases"]]))


if __name__ == "__main__":
    main(sys.stdin)
