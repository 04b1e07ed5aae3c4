"""Sizes the server's memory beside weights and KV cache, before and after they are allocated.

Sources, all SGLang 0.5.2: mem_cache/memory_pool.py (ReqToTokenPool), layers/attention/*_backend.py (workspaces and the
buffers of init_cuda_graph_state), model_executor/cuda_graph_runner.py. Where only measurements exist, the range is that
of published server logs (cases in the tests). allocation.json lists the rules by which releases size memory pools: for
each rule the first release with it, and its place in the code. The releases were read up to 0.5.23
(``architecture.understanding.LATEST``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sglang_hydra.architecture.decoder import LINEAR, Decoder
from sglang_hydra.architecture.ranks import Ranks, kv_share, share
from sglang_hydra.architecture.reading_layers import FA3_BY_DEFAULT
from sglang_hydra.arguments.layout import Layout
from sglang_hydra.arguments.tables.order import reached
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.text.json_types import JsonObject, json_beside

GIB = 1 << 30
MIB = 1 << 20
_WIDE_WORKSPACE = ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "MiMoForCausalLM")
_NVSWITCH_MIB = 60 * 1024  # GPUs with more memory are on boards with NVSwitch
_LONGEST_FOR_AITER = 8192
_AITER_SHARE = 0.85
_AITER_PIECE = 256
# DeepEP (csrc/config.hpp, deep_ep/buffer.py): half of 20 SMs are channels, each receives up to 256 tokens of each rank.
_DEEPEP_CHANNELS, _DEEPEP_RECEIVED, _DEEPEP_TOPK, _DEEPEP_SCALES = 10, 256, 128, 128
_DEEPEP_TOKENS = 128  # the default SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate in bytes, between the smallest and the largest observed value."""

    low: float
    mid: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def times(self, factor: float) -> Range:
        return Range(self.low * factor, self.mid * factor, self.high * factor)


NOTHING = Range(0.0, 0.0, 0.0)


def exactly(size: float) -> Range:
    return Range(size, size, size)


def about(size: float, low: float, high: float) -> Range:
    """Returns ``size`` bytes, between the factors ``low`` and ``high``."""
    return Range(size * low, size, size * high)


def before_loading(gpu: GpuFacts, ranks: Ranks, nodes: int) -> Range:
    """Returns the bytes of the CUDA context and the communication buffers: total memory less "avail mem" at "Load
    weight begin" in the logs. One GPU 0.8 to 1.1 GiB; four GPUs on PCIe 0.9; with NVSwitch four 2.4 to 3.7, eight 3.1,
    two nodes of eight 3.7."""
    if gpu.is_hip:
        return Range(0.8 * GIB, 2.0 * GIB, 5.0 * GIB)
    if ranks.gpus == 1:
        return Range(0.7 * GIB, 0.9 * GIB, 1.3 * GIB)
    if nodes <= 1 and (gpu.memory_mib or 0) < _NVSWITCH_MIB:
        return Range(0.7 * GIB, 1.0 * GIB, 2.0 * GIB)
    return Range(1.2 * GIB, 2.7 * GIB if nodes <= 1 else 3.4 * GIB, 4.5 * GIB)


def attention_backend(values: Mapping[str, object], decoder: Decoder, gpu: GpuFacts, ranks: Ranks) -> str:
    """Returns the server's attention backend, chosen or default (model_runner.model_specific_adjustment)."""
    chosen = values.get("attention_backend") or values.get("decode_attention_backend")
    if decoder.compressed is not None:
        return "dsv4"
    if chosen:
        return str(chosen)
    topk_one = values.get("speculative_algorithm") is None or values.get("speculative_eagle_topk") == 1
    if gpu.is_hip:
        heads = share(decoder.heads, ranks.attention)
        aiter = decoder.latent is None or (heads in (16, 128) and values.get("speculative_algorithm") is None)
        return "aiter" if aiter else "triton"
    if decoder.latent is not None:
        return "fa3" if gpu.is_sm90 else "flashinfer" if gpu.is_sm100 else "triton"
    if gpu.is_sm90 and topk_one and decoder.architecture in FA3_BY_DEFAULT:
        return "fa3"
    return "flashinfer" if gpu.flashinfer else "triton"


def kept_fraction(fraction: float, backend: str, context: int) -> float:
    """Returns the fraction in effect: the aiter backend takes off 15 % where contexts are long."""
    return fraction * _AITER_SHARE if backend == "aiter" and context > _LONGEST_FOR_AITER else fraction


def request_table(values: JsonObject, slots: int, context: int) -> float:
    """Returns the bytes of the table of token locations: four for every position of the longest context."""
    return slots * (context + 4 + (values.get("speculative_num_draft_tokens") or 0)) * 4.0


def workspace(backend: str, decoder: Decoder, ranks: Ranks, slots: int, context: int) -> float:
    """Returns the bytes that a backend allocates at startup. aiter keeps partial results in float32 for every request
    of the longest context, in pieces of 256 tokens, except with latent attention (aiter_backend.py:131-143)."""
    if backend == "aiter" and decoder.latent is None:
        pieces = slots * share(decoder.heads, ranks.attention) * -(-context // _AITER_PIECE)
        return pieces * (decoder.head_dim * 4.0 + 2 * 4.0)
    if backend in ("flashinfer", "trtllm_mla", "cutlass_mla"):
        wide = decoder.architecture in _WIDE_WORKSPACE
        return 128.0 * MIB if backend == "trtllm_mla" else (512.0 if wide else 384.0) * MIB
    return 512.0 * MIB if backend == "trtllm_mha" else 0.0


def expert_buffers(values: Mapping[str, object], decoder: Decoder, ranks: Ranks) -> Range:
    """Returns the buffers through which DeepEP sends tokens to experts on other GPUs; NOTHING without DeepEP.

    Sizes: DeepEP's csrc/config.hpp, get_nvl_buffer_size_hint and LowLatencyLayout, as SGLang 0.5.2 requests them
    (layers/moe/token_dispatcher/deepep.py:137-170) with its 20 SMs and 128 tokens a rank. NVSHMEM, which holds the
    traffic between nodes and all of the low-latency mode, adds some memory."""
    experts = decoder.experts
    if values.get("moe_a2a_backend") != "deepep" or experts is None:
        return NOTHING
    mode, hidden = str(values.get("deepep_mode") or "auto"), decoder.hidden
    token = hidden * 2 + _DEEPEP_TOPK * (8 + 4) + _DEEPEP_SCALES * 4
    linked = near = 0.0
    if mode != "low_latency":
        near = _DEEPEP_CHANNELS * min(ranks.tp, 8) * _DEEPEP_RECEIVED * token
        linked = _DEEPEP_CHANNELS * max(ranks.tp // 8, 1) * 128 * (token + 24) * 2 if ranks.tp > 8 else 0.0
    if mode != "normal":
        message = 16 + max(2 * hidden, hidden + hidden // 128 * 4)
        linked = max(linked, 4.0 * (experts.number + ranks.redundant) * _DEEPEP_TOKENS * message)
    return exactly(near) + about(linked, 1.0, 1.3)


def libraries() -> Range:
    """Returns the memory of kernels and libraries (cuBLAS, the attention backends) at their first use, after the KV
    cache is allocated: the part of the logs' final free memory that no other part explains."""
    return Range(0.1 * GIB, 0.5 * GIB, 1.3 * GIB)


def captured_sizes(
    values: Mapping[str, object], layout: Layout, gpu: GpuFacts, ranks: Ranks, slots: int
) -> tuple[int, ...]:
    """Returns the batch sizes with CUDA graphs (cuda_graph_runner.get_batch_sizes_to_capture): those that the ranks of
    an attention layer, and two overlapping batches, can share evenly."""
    if not layout.graphs.made or not (gpu.is_cuda or gpu.is_hip):
        return ()
    sizes = list(layout.graphs.sizes) or _usual_sizes(values, gpu)
    if max(sizes) > slots:
        sizes.append(slots)
    gathered = values.get("moe_a2a_backend") == "deepep" or ranks.groups > 1
    unit = (2 if values.get("enable_two_batch_overlap") else 1) * (ranks.attention if gathered else 1)
    sizes = [size for size in sizes if size % unit == 0]
    limit = layout.graphs.largest
    if limit:
        sizes = [size for size in sizes if size <= limit] or [1]
        if max(sizes) < limit:
            sizes += range(max(sizes), min(limit, slots) + 1, 16)
    return tuple(sorted({size for size in sizes if size <= slots}))


def graphs(
    values: JsonObject, decoder: Decoder, ranks: Ranks, backend: str, sizes: tuple[int, ...], context: int
) -> Range:
    """Returns the memory of CUDA graphs: the nodes of each graph, the activations of the largest batch, and the
    attention backend's buffers for it. A kernel in a graph keeps 4 KiB (SM100) to 60 KiB on the GPU in the logs, and
    the first capture 0.03 to 0.11 GiB, whatever it captures."""
    if not sizes:
        return NOTHING
    speculative = values.get("speculative_algorithm") is not None
    tokens = max(sizes) * ((values.get("speculative_num_draft_tokens") or 1) if speculative else 1)
    kernels = sum(_kernels(decoder, layer.experts, layer.mixer == LINEAR) for layer in decoder.layers) / ranks.stages
    captures = 1
    if speculative and str(values.get("speculative_algorithm")).startswith("EAGLE"):
        # The draft's steps and its extension of verified tokens are separate captures (speculative/eagle_worker.py).
        captures = 3
        kernels += kernels / len(decoder.layers) * (int(values.get("speculative_num_steps") or 1) + 1)
    nodes = about(len(sizes) * kernels * 20 * 1024, 0.2, 3.0).times(1.4 if speculative else 1.0)
    return (
        nodes
        + Range(0.03 * GIB, 0.06 * GIB, 0.11 * GIB).times(captures)
        + exactly(_graph_buffers(values, decoder, ranks, backend, tokens, context))
        + activations(decoder, ranks, tokens, tokens)
    )


def activations(decoder: Decoder, ranks: Ranks, tokens: int, sampled: int) -> Range:
    """Returns the largest tensors that exist at once while ``tokens`` pass through a layer, and the logits of
    ``sampled`` positions: hidden states, residual and norm; queries, keys, values; the MLP's inputs and products; for
    each chosen expert of a token its products and its output (16 bit). Logits are made in 16 bits and copied to
    float32."""
    gathered = tokens * (ranks.tp // ranks.attention)
    base = 3 * gathered * decoder.hidden * 2
    heads = share(decoder.heads, ranks.attention)
    if decoder.latent is not None:
        width = heads * (2 * (decoder.latent.nope + decoder.latent.rope) + 2 * decoder.latent.value)
    else:
        width = (2 * heads + 2 * kv_share(decoder.kv_heads, ranks.attention)) * decoder.head_dim
    mixing = tokens * width * 2
    dense = max((layer.dense for layer in decoder.layers), default=0)
    mlp = gathered * 3 * share(dense, ranks.dense) * 2
    experts = decoder.experts
    if experts is not None:
        chosen = experts.chosen or 8
        each = 3 * share(experts.width, ranks.expert_slices) + decoder.hidden
        mlp = max(mlp, gathered * -(-chosen // ranks.experts) * each * 2 + gathered * decoder.hidden * 2)
    logits = sampled * decoder.vocabulary
    return about(base + max(mixing, mlp), 0.35, 1.6) + Range(4.0 * logits, 6.0 * logits, 6.0 * logits)


def prefill_tokens(values: JsonObject, context: int) -> int:
    """Returns the tokens of the largest prefill batch on one GPU."""
    chunk = values.get("chunked_prefill_size") or 0
    most = values.get("max_prefill_tokens") or 16384
    return int(chunk) if chunk and chunk > 0 else min(int(most), max(context, 1))


def _usual_sizes(values: Mapping[str, object], gpu: GpuFacts) -> list[int]:
    if values.get("speculative_algorithm") is not None:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 64, 8), *range(80, 161, 16)]
    elif values.get("disable_cuda_graph_padding"):
        sizes = [*range(1, 33), *range(48, 161, 16)]
    else:
        sizes = [1, 2, 4, 8, *range(16, 161, 8)]
    memory = gpu.memory_mib or 0
    if memory > 90 * 1024:
        sizes += range(160, 257, 8)
    if memory > 160 * 1000:
        sizes += range(256, 513, 16)
    return sizes


def _kernels(decoder: Decoder, experts: bool, linear: bool) -> int:
    """Returns the number of kernels of one layer in a decode step."""
    return (16 if decoder.latent is not None or linear else 9) + (14 if experts else 5)


def _graph_buffers(
    values: JsonObject, decoder: Decoder, ranks: Ranks, backend: str, tokens: int, context: int
) -> float:
    if backend == "flashinfer":
        return tokens * context * (4.0 if decoder.latent is not None else 5.0)
    if backend in ("fa3", "aiter"):
        return tokens * context * 4.0 / ((values.get("page_size") or 1) if backend == "fa3" else 1)
    if backend == "triton":
        splits = values.get("triton_attention_num_kv_splits") or 8
        wide = decoder.latent.kv_rank if decoder.latent is not None else decoder.head_dim
        logits = tokens * share(decoder.heads, ranks.attention) * splits * (wide + 1) * 4.0
        return logits + tokens * context * 9.0
    return 0.0


_TABLE: Mapping[str, Mapping[str, str]] = json_beside(str(Path(__file__).with_name("allocation")))


class Allocation(NamedTuple):
    """The rules of one release, each True where it applies.

    States of linear attention: ``states_by_share`` sizes them by a share of the memory, ``states_typed`` gives
    max_mamba_cache_size priority over that, ``states_jointly`` shares the memory between states and those of drafted
    tokens (before, the latter came first), ``states_padded`` counts a padding slot, ``states_by_stage`` profiles the
    attention of one pipeline stage, not of all. Drafts: ``draft_counted`` counts their weights and cache before it
    sizes the pool, ``no_headroom`` adds no tokens for them. Sparse attention: ``index_counted`` counts the index keys
    in the profile, ``index_shared`` keeps none for a layer without an indexer. Windows: ``window_pools`` for named
    classes, divided ``windows_by_bytes``, refused below a ``window_floor``, or sized ``windows_by_requests``; before
    ``inputs_by_full`` no request is longer than that pool, before ``chunks_shortened`` no chunk, or it waits forever.
    DeepSeek-V4: ``ratios_by_stage`` counts the layers of a pipeline stage (before: all that config.json lists, with the
    draft's), ``ratio_128_by_request``, ``compressed_by_page``. ``media_reserved`` keeps 100 MiB free for multimodal
    inputs, ``fraction_resolved`` takes aiter's share off mem_fraction_static when it is resolved, not when memory is
    allocated, ``requests_by_tokens`` limits requests by the pool's tokens."""

    states_by_share: bool
    index_counted: bool
    fraction_resolved: bool
    no_headroom: bool
    states_typed: bool
    states_by_stage: bool
    window_pools: bool
    windows_by_bytes: bool
    requests_by_tokens: bool
    inputs_by_full: bool
    states_jointly: bool
    ratios_by_stage: bool
    draft_counted: bool
    ratio_128_by_request: bool
    chunks_shortened: bool
    states_padded: bool
    index_shared: bool
    media_reserved: bool
    window_floor: bool
    compressed_by_page: bool
    windows_by_requests: bool


@lru_cache(maxsize=32)
def allocation_of(release: str) -> Allocation:
    """Returns the rules of ``release``."""
    begun = reached(release, {row["since"] for row in _TABLE.values()})
    return Allocation(**{name: row["since"] in begun for name, row in _TABLE.items()})


def source_of(rule: str) -> str:
    """Returns the file and lines of a rule's source. Raises KeyError for an unknown rule."""
    return _TABLE[rule]["source"]


def states_of_a_request(values: Mapping[str, object]) -> int:
    """Returns the state slots of one running request (0.5.23 kv_cache_configurator.py:3062-3088 and
    mem_cache/allocation_sizing.py, get_mamba_tracking_slots)."""
    if values.get("disable_radix_cache"):
        return 1
    strategy = str(values.get("mamba_radix_cache_strategy") or values.get("mamba_scheduler_strategy") or "")
    if not strategy.startswith("extra_buffer"):
        return 3
    return 3 + (1 if values.get("disable_overlap_schedule") or strategy.endswith("lazy") else 2)
