"""Checks shapes, formats and model classes: failures while the server builds its layers and loads its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.arguments.specified import SPECIFIED_VERSION
from sglang_hydra.arguments.tables.order import at_least, same_release
from sglang_hydra.facts.config_view import ConfigView, text_config, view_of
from sglang_hydra.rules.checks.model_config import (
    LONGER_CONTEXT_VARIABLE,
    derived_context_length,
    experts_of,
    stored_config,
    stored_quantization,
)
from sglang_hydra.rules.checks.releases import Arguments
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule
from sglang_hydra.text.findings import Remedy
from sglang_hydra.text.json_types import JsonDict, JsonObject, json_beside

_BLOCK_METHODS = ("fp8", "blockwise_int8", "blockwise-int8", "awq", "awq_marlin", "gptq", "gptq_marlin")
_READS_PARAMETERS = ("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16")
_FP8_METHODS = ("fp8", "compressed-tensors", "compressed_tensors")
# Offers name at most this number of ranks. SGLang accepts any number, even a mistyped one.
_MOST_RANKS = 4096
# Classes that pass hidden states of several layers to an EAGLE-3 draft, also by inheritance, by the first release
# (set_eagle3_layers_to_capture in srt/models of each), and classes that lost it.
_TABLE: JsonObject = json_beside(__file__)
_FEEDS_EAGLE3: Mapping[str, Sequence[str]] = _TABLE["feeds_eagle3"]
_FEEDS_NO_MORE: Mapping[str, Sequence[str]] = _TABLE["feeds_it_no_more"]
# Classes of files of models/ in 0.5.2 that compare tp_size with the number of experts.
_COUNTS_EXPERTS: Sequence[str] = _TABLE["counts_experts"]
# Runners without a path for experts in a format: the first release without, and the first with one (create_moe_runner
# and apply in layers/quantization/fp8.py and mxfp4.py, of SGLang 0.5.2 to 0.5.23).
_NO_RUNNER: Mapping[str, Mapping[str, Sequence[str]]] = _TABLE["no_runner"]
# The first release with kernels for each format of compressed-tensors, by its compressed_tensors.py.
_PACKED_SINCE, _BLOCKS_SINCE, _FP4_SINCE = "0.5.4", "0.5.6.post1", "0.5.7"


@rule("RUN026", stage="plan")
def check_expert_runner(args: ServerArgs, facts: Facts) -> Outcome:
    """What: on CUDA, moe_runner_backend must have a path for the format of the experts (FP8 or MXFP4, without an
        all-to-all backend); marlin and hpc_ops have none behind an all-to-all backend.
    Why: from 0.5.20 on a server with MXFP4 stops while it loads the model, and so does every server with marlin and
        DeepEP (sgl-project/sglang#32846). Others start, and end at the first request with an AttributeError
        (sgl-project/sglang#27951 and #36569).
    Upstream: 0.5.12 layers/quantization/fp8.py:1631-1661; 0.5.17 layers/quantization/mxfp4.py:1243-1285;
        0.5.23 layers/quantization/fp8.py:2941-2994; 0.5.23 layers/moe/moe_runner/runner.py:177.
    Example: engine.version=0.5.12 model=deepseek_v3 tp_size=8 moe_runner_backend=flashinfer_cutlass -> refused"""
    backend, method = str(args.moe_runner_backend), args.quantization or stored_quantization(args, facts) or ""
    dispatched = args.moe_a2a_backend not in (None, "none")
    since, *until = _NO_RUNNER.get("dispatched" if dispatched else method, {}).get(backend) or ("",)
    if not since or not facts.gpu.is_cuda:
        return None
    if not at_least(facts.release, since) or any(at_least(facts.release, release) for release in until):
        return None
    view = view_of(facts.model, args.json_model_override_args)
    text = text_config(view) if view is not None else {}
    if not experts_of(text) or (text.get("expert_dtype") and not dispatched):
        return None
    lacking = f"moe_a2a_backend={args.moe_a2a_backend}" if dispatched else f"experts in {method.upper()}"
    return Refusal(
        f"moe_runner_backend={backend} has no kernels for {lacking}",
        "moe_runner_backend",
        "moe_a2a_backend" if dispatched else "model_path",
        offers=("moe_runner_backend=auto", *(["moe_a2a_backend=none"] if dispatched else [])),
    )


@rule("RUN006", stage="plan")
def check_draft_context(args: ServerArgs, facts: Facts) -> Outcome:
    """What: the draft model's own config must allow the target's context length.
    Why: the draft is loaded with the target's length, after the target; a shorter one stops the server then, unless
        SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1. Inferred: EAGLE drafts often state 2048.
    Upstream: speculative/eagle_worker.py:89 and configs/model_config.py:177-198, 0.5.2.
    Example: model=llama_3_1_8b speculative_algorithm=EAGLE3
        speculative_draft_model_path=yuhuili/EAGLE3-LLaMA3.1-Instruct-8B -> warned"""
    view, draft = view_of(facts.model, args.json_model_override_args), facts.model.draft
    if view is None or draft is None or draft.config is None or args.speculative_algorithm is None:
        return None
    target = args.context_length or derived_context_length(text_config(view))
    longest = derived_context_length(draft.config)
    allowed = any(
        facts.env.get(name, "").lower() in ("1", "true") for name in (LONGER_CONTEXT_VARIABLE, "SGLANG_IS_IN_CI")
    )
    if target is None or longest is None or target <= longest or allowed:
        return None
    message = f"the draft model allows {longest} tokens, the target is served with {target}"
    offers = (f"engine.env.{LONGER_CONTEXT_VARIABLE}=1", f"context_length={longest}")
    fields = ("speculative_draft_model_path", "context_length")
    # A published draft may have changed since; the server reads the draft's own file.
    return (Notice if draft.extra.get("published") else Refusal)(message, *fields, offers=offers)


@rule("RUN010", stage="plan")
def check_quantized_shapes(args: Arguments, facts: Facts) -> Outcome:
    """What: the matrices on each GPU must divide by the blocks or groups of their format: FP8 and INT8 blocks, AWQ,
        GPTQ.
    Why: the layers refuse it while they are built; those of AWQ and GPTQ say that too large a tp_size can be the cause.
        Inferred: a scale cannot be cut; fewer GPUs for each matrix, or ep_size for experts, help.
    Upstream: layers/quantization/fp8.py, blockwise_int8.py, awq.py:342, gptq.py:417, all 0.5.2.
    Example: model_path=Qwen/Qwen3-235B-A22B-FP8 tp_size=8 -> refused, 1536 / 8 = 192 is no multiple of 128"""
    view = view_of(facts.model, args.json_model_override_args)
    method = stored_quantization(args, facts)
    if view is None or method not in _BLOCK_METHODS:
        return None
    from sglang_hydra.architecture.alignment import misaligned
    from sglang_hydra.architecture.understanding import understand
    from sglang_hydra.text.errors import ConfigError

    values = args.everything
    release = None if same_release(facts.release, SPECIFIED_VERSION) else facts.release
    try:
        found = misaligned(understand(values, facts.gpu, facts.model, release, args.layout))
    except ConfigError:
        return None  # the fit says which field of the config cannot be a size
    if not found:
        return None

    def aligned(change: Mapping[str, object]) -> bool:
        changed = {**values, **change}
        return not misaligned(understand(changed, facts.gpu, facts.model, release))

    offers = [name for name, change in _fewer_cuts(args, view) if aligned(change)]
    return Refusal("; ".join(found), "tp_size", "model_path", hint="use a checkpoint in another format", offers=offers)


def _fewer_cuts(args: Arguments, view: ConfigView) -> Iterator[tuple[str, JsonDict]]:
    """Yields changes with fewer cuts of a matrix, as typed words and as values: whole experts, then fewer GPUs."""
    if args.ep_size < args.tp_size and experts_of(text_config(view)) % args.tp_size == 0:
        yield f"ep_size={args.tp_size}", {"ep_size": args.tp_size}
    unit = math.lcm(args.ep_size, args.layout.attention_groups * args.layout.attention_contexts)
    for size in reversed(_divisors(args.tp_size)):
        if size < args.tp_size and size % unit == 0:
            yield f"tp_size={size}", {"tp_size": size}


@rule("RUN023", stage="plan")
def check_parameters_of_a_format(args: ServerArgs, facts: Facts) -> Outcome:
    """What: warns of quantization=awq, gptq, their Marlin kernels or moe_wna16 for a checkpoint that names no format.
    Why: their parameters are read from config.json or quantize_config.json; without both the server stops with "Cannot
        find the config file", once the weights are fetched.
    Upstream: model_loader/weight_utils.py:198, 0.5.2; 0.5.23:389.
    Example: model=qwen3_8b quantization=awq -> warned"""
    if args.quantization not in _READS_PARAMETERS:
        return None
    if view_of(facts.model, args.json_model_override_args) is None or stored_quantization(args, facts) is not None:
        return None
    return Notice(
        f"quantization={args.quantization} reads its parameters from the checkpoint, whose config.json names no format",
        "quantization",
        hint="name a checkpoint in this format as model_path; one that has a quantize_config.json works",
        offers="quantization=null",
    )


@rule("RUN024", stage="plan")
def check_breakable_graphs(args: Arguments, facts: Facts) -> Outcome:
    """What: breakable graphs of prefill exclude a memory saver that keeps graphs (SGLANG_MEMORY_SAVER_CUDA_GRAPH=1);
        those that were asked for also dcp_size above 1.
    Why: their backend refuses the first while it is made, after the weights are loaded. For dcp_size SGLang leaves them
        out only where nobody asked for them; the capture reads metadata that it does not have
        (sgl-project/sglang#38943).
    Upstream: 0.5.21 model_executor/runner_backend/breakable_cuda_graph_backend.py:83-92.
    Example: gpu=h100 model=qwen3_8b enable_memory_saver=true engine.env.SGLANG_MEMORY_SAVER_CUDA_GRAPH=1 -> refused"""
    asked = facts.given.get("cuda_graph_backend_prefill")  # known in an estimate too
    backend = args.cuda_graph_backend_prefill if asked is None else asked
    keeps_graphs = facts.env.get("SGLANG_MEMORY_SAVER_CUDA_GRAPH", "").lower() in ("1", "true")
    others = [word for word in ("enable_memory_saver",) if args.enable_memory_saver and keeps_graphs]
    if asked is not None and int(str(facts.given.get("dcp_size") or 1)) > 1:
        others.append("dcp_size")
    if backend != "breakable" or not others:
        return None
    said = {"enable_memory_saver": "SGLANG_MEMORY_SAVER_CUDA_GRAPH=1", "dcp_size": "dcp_size above 1"}
    return Refusal(
        f"breakable graphs of prefill do not work with {said[others[0]]}",
        "cuda_graph_backend_prefill",
        others[0],
        offers="cuda_graph_backend_prefill=disabled",
    )


@rule("RUN011", stage="plan")
def check_fp8_on_ampere(args: ServerArgs, facts: Facts) -> Outcome:
    """What: FP8 experts need compute capability 8.9.
    Why: below, SGLang has a Marlin kernel for FP8 linear layers only; experts go through Triton, which has no FP8
        (e4m3) there and stops at the first forward pass ("type fp8e4nv not supported in this architecture").
    Upstream: layers/quantization/fp8.py:221-225 and 445-449, fp8_utils.py:823-829, 0.5.2; 0.5.23
        fp8.py:514-518 and 1300-1303; reported in sgl-project/sglang#12887 and #38291.
    Example: gpu=a100_80gb model=qwen3_30b_a3b quantization=fp8 -> refused"""
    capability = facts.gpu.compute_capability
    view = view_of(facts.model, args.json_model_override_args)
    if not facts.gpu.is_cuda or capability is None or not (8, 0) <= capability < (8, 9) or view is None:
        return None
    stored = stored_config(view)
    method = (args.quantization or str(stored.get("quant_method", ""))).lower()
    is_fp8 = method == "fp8" or (method in _FP8_METHODS and _is_float8(stored))
    if not is_fp8:
        return None
    if experts_of(text_config(view)) <= 1 or text_config(view).get("expert_dtype") == "fp4":
        return None
    return Refusal(
        f"FP8 experts: compute capability 8.9 is needed, and {facts.gpu.name} has {capability[0]}.{capability[1]}",
        "model_path" if stored else "quantization",
        "quantization",
        hint="use a checkpoint in another format (BF16, AWQ, GPTQ, INT8)",
        offers=("gpu=l40s", "gpu=h100"),
    )


@rule("RUN012", stage="plan")
def check_eagle3_target(args: ServerArgs, facts: Facts) -> Outcome:
    """What: EAGLE3 needs a model class that hands out the hidden states of several layers.
    Why: the server asks the class for it after loading, unless the draft's config says that it needs none.
    Upstream: model_executor/model_runner.py and models/*.py, set_eagle3_layers_to_capture, of each release; 0.5.23
        model_executor/model_runner_components/attention_backend_setup.py:55.
    Example: model=deepseek_v3 speculative_algorithm=EAGLE3 -> refused"""
    if args.speculative_algorithm != "EAGLE3":
        return None
    view, draft = view_of(facts.model, args.json_model_override_args), facts.model.draft
    if view is None or not view.architecture or _feeds_eagle3(view.architecture, facts.release):
        return None
    eagle = (draft.config or {}).get("eagle_config") if draft is not None else None
    if isinstance(eagle, Mapping) and eagle.get("use_aux_hidden_state") is False:
        return None
    from sglang_hydra.arguments.tables.table import has_class

    if has_class(facts.release, [view.architecture]) is not True:
        return None  # RUN015 reports it
    return Refusal(
        f"{view.architecture} of SGLang {facts.release} does not feed an EAGLE-3 draft", "speculative_algorithm",
        offers=("speculative_algorithm=EAGLE", "speculative_algorithm=null"),
    )  # fmt: skip


def _feeds_eagle3(architecture: str, release: str) -> bool:
    def is_among(classes: Mapping[str, Sequence[str]]) -> bool:
        return any(at_least(release, since) and architecture in names for since, names in classes.items())

    return is_among(_FEEDS_EAGLE3) and not is_among(_FEEDS_NO_MORE)


@rule("RUN015", stage="plan")
def check_class(args: ServerArgs, facts: Facts) -> Outcome:
    """What: the release should have a class for one of the model's architectures. One that only a later release has is
        refused with that release; one that no release has is warned of.
    Why: a release without it tries transformers' own class, or stops. Ways out are model_impl=transformers where that
        is meant, a package of your own that SGLANG_EXTERNAL_MODEL_PACKAGE names, and ignore=RUN015. SGLang warns that
        through transformers features may be missing and performance may not be the best.
    Upstream: model_loader/utils.py 0.5.2, get_model_architecture; what EntryClass names in srt/models of each release.
    Example: model=qwen3_5_27b engine.version=0.5.2 -> refused"""
    view = view_of(facts.model, args.json_model_override_args)
    names = view.architectures if view is not None else None
    if not isinstance(names, (list, tuple)) or not names or str(args.model_impl) == "transformers":
        return None
    from sglang_hydra.arguments.tables.table import first_release_of, has_class, last_release

    if facts.env.get("SGLANG_EXTERNAL_MODEL_PACKAGE") or has_class(facts.release, map(str, names)) is not False:
        return None
    first = first_release_of(map(str, names))
    message = f"SGLang {facts.release} has no class {names[0]}"
    if first is None or at_least(facts.release, first):
        since = f", and no release up to {last_release()}" if first is None else " any more"
        return Notice(
            f"{message}{since}: it tries transformers' own, or stops",
            "model_path",
            hint="use a later SGLang, or model_impl=transformers if you want transformers' own class",
        )
    return Refusal(
        f"{message}: {first} is the first release that has it",
        "model_path",
        hint="engine.env.SGLANG_EXTERNAL_MODEL_PACKAGE names a package of your own with the class, "
        "ignore=RUN015 starts it all the same",
        offers=(
            f"engine.version={first}",
            Remedy.typed("model_impl=transformers", when="if you want transformers' own class"),
        ),
    )


@rule("RUN016", stage="plan")
def check_compressed_format(args: ServerArgs, facts: Facts) -> Outcome:
    """What: of compressed-tensors SGLang 0.5.2 has 8 bit weights, and with vLLM beside it packed integers; kernels of
        its own for these came with 0.5.4, FP8 blocks with 0.5.6.post1, 4 bit floats (NVFP4) with 0.5.7.
    Why: it looks at each layer while it builds it, and stops at the first one without a kernel.
    Upstream: layers/quantization/compressed_tensors/compressed_tensors.py:360-436, 0.5.2.
    Example: model=RedHatAI/Qwen3-32B-NVFP4 -> refused"""
    if stored_quantization(args, facts) not in ("compressed-tensors", "compressed_tensors"):
        return None
    view = view_of(facts.model, args.json_model_override_args)
    groups = stored_config(view).get("config_groups") if view is not None else None
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    for one in weights:
        bits, kind, strategy = one.get("num_bits"), one.get("type"), one.get("strategy")
        came = _FP4_SINCE if bits == 4 else _BLOCKS_SINCE
        if kind == "float" and (bits == 4 or strategy == "block") and not at_least(facts.release, came):
            return Refusal(
                f"compressed-tensors with {'4 bit floats' if bits == 4 else 'FP8 with block scales'}: "
                f"SGLang {facts.release} has no kernel",
                "model_path",
                hint="use the vendor's own FP8, AWQ or GPTQ checkpoint",
                offers=f"engine.version={came}",
            )
        if kind == "int" and bits != 8 and not at_least(facts.release, _PACKED_SINCE):
            return Notice(
                f"packed integers of compressed-tensors: SGLang {facts.release} takes vLLM's kernels",
                "model_path",
                hint="install vLLM too, or use an AWQ or GPTQ checkpoint",
            )
    return None


@rule("RUN018", stage="plan")
def check_experts(args: Arguments, facts: Facts) -> Outcome:
    """What: ep_size must divide tp_size, whatever the model, and the experts, with the redundant ones; tp_size must not
        exceed their number; ep_size above 1 changes nothing where there are none.
    Why: the groups of ranks that share the experts are cut from those of tp_size, and each rank takes whole experts;
        the engine and the layers fail while they are built.
    Upstream: entrypoints/engine.py:774, distributed/parallel_state.py:1461-1499,
        layers/moe/fused_moe_triton/layer.py:171 and models/deepseek_v2.py:346 and its kin, 0.5.2.
    Example: model=qwen3_30b_a3b tp_size=6 ep_size=6 -> refused, 128 experts"""
    layout = args.layout
    ranks = layout.experts if layout.all_to_all else args.ep_size
    view = view_of(facts.model, args.json_model_override_args)
    experts = experts_of(text_config(view)) if view is not None else 0
    has_none = view is not None and experts <= 1
    none_said = "the model has no experts: leave ep_size out" if has_none else None
    if ranks > 1 and args.tp_size % ranks:
        groups, ranks_for_it = _groups(args, args.tp_size), f"tp_size={ranks}"
        offers = [*groups, ranks_for_it] if "tp_size" in facts.given else [ranks_for_it, *groups]
        return Refusal(f"ep_size={ranks} does not divide tp_size={args.tp_size}", "ep_size", "tp_size",
                       offers=() if has_none else offers, hint=none_said)  # fmt: skip
    if has_none and (facts.given.get("ep_size") or 1) > 1:
        return Notice(f"ep_size={args.ep_size} changes nothing", "ep_size", hint=none_said)
    if view is None or has_none:
        return None
    from sglang_hydra.architecture.ranks import REPEATS_EXPERTS

    repeats = view.architecture in REPEATS_EXPERTS or at_least(facts.release, "0.5.3")
    redundant = args.ep_num_redundant_experts or 0 if repeats else 0
    if ranks > 1 and (experts + redundant) % ranks:
        held = f"{experts} experts" + (f" and {redundant} redundant ones" if redundant else "")
        return Refusal(f"{held} do not divide by ep_size={ranks}", "ep_size", "tp_size",
                       offers=_dividing(args, experts, redundant, ranks, repeats))  # fmt: skip
    if view.architecture in _COUNTS_EXPERTS and args.tp_size > experts:
        return Refusal(f"tp_size={args.tp_size} is above the model's {experts} experts", "tp_size",
                       offers=[f"tp_size={size}" for size in reversed(_divisors(experts))])  # fmt: skip
    return None


def _dividing(args: Arguments, experts: int, redundant: int, ranks: int, repeats: bool) -> list[str]:
    """Returns words with which the experts divide: another group of ranks, or the missing redundant experts."""
    held = experts + redundant
    if args.layout.all_to_all:  # spreads over all of tp_size
        sizes = sorted((size for size in _divisors(held) if size <= 64), key=lambda size: abs(size - args.tp_size))
        offers = [f"tp_size={size}" for size in sizes]
    else:
        offers = _groups(args, held)
    return [*([f"ep_num_redundant_experts={-experts % ranks}"] if repeats else []), *offers]


def _groups(args: Arguments, held: int) -> list[str]:
    """Returns groups of ranks that divide both tp_size and ``held``, the largest first."""
    return [f"ep_size={size}" for size in reversed(_divisors(args.tp_size)) if held % size == 0]


def _divisors(number: int) -> list[int]:
    """Returns the divisors of a number, up to the most ranks of an offer."""
    return [size for size in range(1, min(number, _MOST_RANKS) + 1) if number % size == 0]


def _is_float8(stored: Mapping[str, object]) -> bool:
    groups = stored.get("config_groups")
    weights = [group.get("weights") for group in groups.values()] if isinstance(groups, Mapping) else []
    return any(isinstance(one, Mapping) and one.get("type") == "float" and one.get("num_bits") == 8 for one in weights)
