"""What verl refuses of its own rollout node, and what of that node never reaches SGLang, reported before it starts.

Source: verl-project/verl@005f273 verl/workers/config/rollout.py (RolloutConfig.__post_init__); @00c3c04
verl/workers/rollout/sglang_rollout/async_sglang_server.py (SGLangHttpServer); @065ef9b verl/workers/rollout/replica.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.convert.verl.passed import Tree
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.findings import Finding

_SIZES = ("tensor_model_parallel_size", "data_parallel_size", "expert_parallel_size", "pipeline_model_parallel_size")

# verl's defaults of keys that only its other engines read, and what SGLang calls the same.
_UNREAD: Mapping[str, tuple[object, str]] = {
    "max_num_batched_tokens": (8192, "chunked_prefill_size"),
    "enable_chunked_prefill": (True, "chunked_prefill_size"),
    "enable_prefix_caching": (True, "disable_radix_cache"),
    "cudagraph_capture_sizes": (None, "cuda_graph_bs"),
    "scheduling_policy": ("fcfs", "schedule_policy"),
}


def unplannable(tree: Tree) -> list[Finding]:
    """Returns the errors that leave nothing to plan: no rollout, another engine, invalid sizes."""
    rollout = tree.get("rollout")
    if not isinstance(rollout, dict) or not isinstance(tree.get("model"), dict):
        message = f"{tree.at} has no rollout and model nodes: this is not verl's tree"
        return [Finding("error", "VRL001", message, (tree.at,), "plan_rollout(config, at='actor_rollout_ref')")]
    found = []
    name = tree.get("rollout.name", "sglang")
    if name != "sglang":
        key = tree.place("rollout.name")
        message = f"{key}={name}: engine_kwargs.sglang is read by verl's SGLang rollout only"
        found.append(Finding("error", "VRL001", message, (key,), f"{key}=sglang"))
    if not tree.get("model.path"):
        key = tree.place("model.path")
        found.append(Finding("error", "VRL001", f"{key}: no model is named", (key,), f"{key}=org/name"))
    for size in (*_SIZES, "n_gpus_per_node"):
        value = tree.rollout(size)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            key = tree.place(f"rollout.{size}")
            found.append(Finding("error", "VRL001", f"{key}={value!r} is no number of GPUs", (key,), f"{key}=1"))
    return found


def refused(tree: Tree, version: str) -> Iterator[Finding]:
    """Yields what verl refuses in its workers, when the rollout is built."""

    def refusal(key: str, message: str, hint: str) -> Finding:
        return Finding("error", "VRL004", f"verl refuses {tree.place(key)}={tree.get(key)}: {message}", (), hint)

    if tree.rollout("pipeline_model_parallel_size") > 1:
        key = "rollout.pipeline_model_parallel_size"
        yield refusal(key, "its SGLang rollout has no pipeline parallelism", f"{tree.place(key)}=1")
    experts = tree.rollout("expert_parallel_size")
    if experts not in (1, tree.ranks):
        key = "rollout.expert_parallel_size"
        sizes = "tensor_model_parallel_size times data_parallel_size"
        yield refusal(key, f"1 or {tree.ranks}, which is {sizes}", f"{tree.place(key)}={tree.ranks}")
    if tree.ranks % tree.gpus_of_node:
        key = "rollout.n_gpus_per_node"
        message = f"a server of {tree.ranks} GPUs does not fill nodes of {tree.gpus_of_node}"
        yield Finding("error", "VRL004", f"verl refuses {tree.place(key)}: {message}", ())
    quantization = tree.rollout("quantization")
    if quantization not in (None, "fp8"):
        yield refusal("rollout.quantization", "fp8 is the one that it knows", f"{_node(tree)}.quantization=...")
    if quantization == "fp8" and not at_least(version, "0.5.5"):
        yield refusal("rollout.quantization", f"it takes SGLang 0.5.5, and this is {version}", _since(tree, "0.5.5"))
    if tree.rollout("mtp.enable") and tree.rollout("mtp.enable_rollout") and not at_least(version, "0.5.6"):
        key = "rollout.mtp.enable_rollout"
        yield refusal(key, f"it takes SGLang 0.5.6, and this is {version}", _since(tree, "0.5.6"))
    modules = tree.get("model.target_modules", "all-linear")
    if tree.lora_rank and isinstance(modules, str) and modules != "all-linear":
        yield refusal("model.target_modules", "SGLang takes names of modules", "a list of names, or all-linear")


def unread(tree: Tree, set_here: Mapping[str, object]) -> Iterator[Finding]:
    """Yields keys of the rollout node with a value that verl's SGLang rollout does not pass on."""
    for key, (default, argument) in _UNREAD.items():
        value = tree.get(f"rollout.{key}", default)
        if value != default and argument not in set_here:
            place = tree.place(f"rollout.{key}")
            message = f"{place}={value} does not reach SGLang: verl passes it to its other engines only"
            yield Finding("warning", "VRL005", message, (argument,), f"{_node(tree)}.{argument}=...")
    if tree.get("rollout.disaggregation.enabled", False):
        message = f"{tree.place('rollout.disaggregation')}: planned is a server without a role, not prefill and decode"
        yield Finding("warning", "VRL005", message, ("disaggregation_mode",))


def unlike(tree: Tree, plan: Plan) -> Iterator[Finding]:
    """Yields findings that need the finished plan."""
    layout = plan.layout
    if layout.copies > 1:
        message = (
            f"verl gives a server {tree.ranks} GPUs, and without DP attention tp_size={layout.tp} times "
            f"dp_size={layout.copies} takes {layout.tp * layout.copies}"
        )
        hint = f"{_node(tree)}.enable_dp_attention=true", f"{tree.place('rollout.data_parallel_size')}=1"
        yield Finding("error", "VRL006", message, ("enable_dp_attention", "dp_size"), hint)
    config = plan.model.config or {}
    text = config.get("text_config")
    longest = (text if isinstance(text, Mapping) else config).get("max_position_embeddings")
    wanted = tree.get("rollout.max_model_len")
    if isinstance(wanted, int) and isinstance(longest, int) and wanted > longest:
        key = tree.place("rollout.max_model_len")
        message = f"verl refuses {key}={wanted}: the model has {longest}"
        yield Finding("error", "VRL004", message, (), f"{key}={longest}")


def _node(tree: Tree) -> str:
    return tree.place("rollout.engine_kwargs.sglang")


def _since(tree: Tree, version: str) -> str:
    return f"{_node(tree)}.engine.version={version}"
