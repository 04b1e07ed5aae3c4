"""Chooses the storage format of each kind of matrix: the checkpoint's own, or the one made while loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sglang_hydra.architecture.formats import (
    FP8_TENSOR,
    MXFP8,
    NF4,
    NVFP4_EXPERTS,
    NVFP4_LINEAR,
    UNPACKED,
    WHOLE_ROW,
    Group,
    Scheme,
    Stored,
    blocks,
    channels,
    grouped,
    mxfp4,
    plain,
    read_skips,
)
from sglang_hydra.architecture.known import Fields, Missing, text_part
from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.facts.gpu import GpuFacts
from sglang_hydra.text.words import is_digits

Pair = tuple[Stored, Stored]
SPECIFIED = "0.5.2"
_SKIP_LISTS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude")
_NONE = read_skips(())
_MOST_LAYERS = 10_000


def element_bytes(values: Mapping[str, object], gpu: GpuFacts) -> int:
    """Returns the bytes of an unquantized weight: 4 only where the user asks for float32 (configs/model_config.py:
    float32 checkpoints load in 16 bits; GPUs below sm80 always use float16)."""
    asked = str(values.get("dtype") or "auto").lower()
    old = gpu.is_cuda and gpu.compute_capability is not None and gpu.compute_capability[0] < 8
    return 4 if asked in ("float", "float32") and not old else 2


def scheme_of(config: Fields, values: Mapping[str, object], gpu: GpuFacts, release: str = SPECIFIED) -> Scheme:
    """Returns the scheme under ``values`` in ``release``. Raises Missing for a format without stated parameters."""
    element = element_bytes(values, gpu)
    full = plain(element)
    stored = stored_quantization(config)
    asked = str(values["quantization"]).lower() if values.get("quantization") else None
    method = _method(stored, asked) if stored is not None else ""
    if stored is None and asked is None:
        return _with_torchao(Scheme("none", element, full, full, full, full, False, _NONE), values)
    if stored is None:
        assert asked is not None
        return _quantized_while_loading(asked, element, full)
    if method == "gguf":
        return _gguf(stored, element, full)
    reader = _READERS.get(method)
    if reader is None:
        raise Missing(f"{stored.prefix}quant_method ({method or 'none'}: its format is not modelled)")
    skips = read_skips(stored.words(name) for name in _SKIP_LISTS)
    about = _Context(full, values, gpu, asked, at_least(release, "0.5.14"), text_part(config))
    groups = _groups_of(stored, method, about)
    linear, experts = reader(stored, about) if not groups else groups[-1][1:]
    head = linear if stored.flag("lm_head") and not skips.names("lm_head") else full
    head = next((group.linear for group in groups[:-1] if group.targets.names("lm_head")), head)
    return Scheme(method, element, linear, experts, head, full, False, skips, groups[:-1])


def caches_fp8(config: Fields) -> bool:
    """Returns whether the checkpoint asks for an FP8 cache under kv_cache_dtype=auto; only ModelOpt's do (0.5.3 on;
    0.5.23 mem_cache/kv_cache_dtype.py:53-62, layers/quantization/modelopt_quant.py:851-878)."""
    stored = stored_quantization(config)
    if stored is None or not _method(stored, None).startswith("modelopt"):
        return False
    cache = stored.part("kv_cache_scheme")
    if cache is not None:
        return (cache.get("type"), cache.get("num_bits")) == ("float", 8)
    named = (stored.part("quantization") or stored).get("kv_cache_quant_algo") or stored.get("kv_cache_scheme")
    return str(named).upper() == "FP8"


def stored_quantization(config: Fields) -> Fields | None:
    """Returns the checkpoint's quantization_config; in a multimodal model also the language model's own."""
    return config.part("quantization_config", "compression_config") or text_part(config).part("quantization_config")


def _method(stored: Fields, asked: str | None) -> str:
    named = stored.get("quant_method") or ("modelopt" if "quant_algo" in stored else asked)
    return str(named or "").lower().replace("_", "-")


class _Context(NamedTuple):
    full: Stored
    values: Mapping[str, object]
    gpu: GpuFacts
    asked: str | None
    one_scale: bool  # linear layers in NVFP4 keep one copy of their scales
    text: Fields

    @property
    def nvfp4(self) -> Pair:
        return (NVFP4_EXPERTS if self.one_scale else NVFP4_LINEAR), NVFP4_EXPERTS


def _fp8(stored: Fields, about: _Context) -> Pair:
    """Reads FP8, whose experts may have 4 bits (0.5.23 configs/model_config.py:728-790): in DeepSeek-V4 unless its
    config says otherwise, and where a config names their format."""
    block = stored.block("weight_block_size")
    linear = blocks("fp8 blocks", *block) if block else FP8_TENSOR
    if str(stored.get("moe_quant_algo") or "").upper() == "NVFP4":
        return linear, NVFP4_EXPERTS
    named = stored.get("routed_experts_quant_method") or stored.get("store_dtype") or about.text.get("expert_dtype")
    usual = "fp4" if "compress_ratios" in about.text else "fp8"
    return linear, mxfp4() if "fp4" in str(named or usual).lower() else linear


def _int8_blocks(stored: Fields, about: _Context) -> Pair:
    block = stored.block("weight_block_size")
    return _twice(blocks("int8 blocks", *block) if block else channels("int8"))


def _awq(stored: Fields, about: _Context) -> Pair:
    bits = stored.size("bits", "w_bit")
    zero = bits if stored.flag("zero_point", default=True) else 0
    return _twice(grouped(f"awq int{bits}", bits, _group(stored, "group_size", "q_group_size"), zero))


def _gptq(stored: Fields, about: _Context) -> Pair:
    """Reads GPTQ (gptq.py): the Marlin kernels drop the zero points of linear layers; the plain kernel and experts keep
    them."""
    bits, group = stored.size("bits"), _group(stored, "group_size")
    marlin = about.gpu.is_cuda and about.asked != "gptq" and stored.flag("sym", default=True)
    name = f"gptq int{bits}"
    return grouped(name, bits, group, 0 if marlin else bits), grouped(name, bits, group, bits)


def _mxfp4(stored: Fields, about: _Context) -> Pair:
    """Reads MXFP4, which stores only the experts. Without a kernel for it they are unpacked to 16 bits (mxfp4.py)."""
    runner = about.values.get("moe_runner_backend")
    if about.gpu.is_sm100 and runner == "flashinfer_mxfp4":
        return about.full, mxfp4(pad=(256, 256))
    pad = (64, 1) if about.gpu.is_sm100 else (32, 1) if about.gpu.triton_kernels else (1, 1)
    if about.gpu.is_cuda and runner not in ("triton_kernel", "flashinfer_mxfp4"):
        return about.full, about.full._replace(name=UNPACKED, pad=pad)
    return about.full, mxfp4(pad if about.gpu.is_sm100 else (32, 1))


def _modelopt(stored: Fields, about: _Context) -> Pair:
    nested = stored.part("quantization") or stored
    algorithm = str(nested.get("quant_algo") or "").upper()
    if algorithm == "MXFP8":
        return _twice(MXFP8)
    if "FP4" in algorithm or (not algorithm and about.asked in ("modelopt_fp4", "petit_nvfp4")):
        return about.nvfp4
    if "FP8" in algorithm or (not algorithm and about.asked in (None, "modelopt")):
        return _twice(FP8_TENSOR)
    raise Missing(f"{nested.prefix}quant_algo")


def _compressed(stored: Fields, about: _Context) -> Pair:
    """Reads compressed-tensors without groups: a sparsity_config alone quantizes nothing; else raises Missing."""
    if stored.part("sparsity_config") is not None:
        return _twice(about.full)
    raise Missing(f"{stored.prefix}config_groups")


def _groups_of(stored: Fields, method: str, about: _Context) -> tuple[Group, ...]:
    """Returns the groups of modules with formats of their own, then the formats of all others; () without groups."""
    if method == "compressed-tensors":
        return _compressed_groups(stored, about)
    part = (stored.part("quantization") or stored).part("quantized_layers")
    if part is None or not method.startswith("modelopt"):
        return ()
    modules: dict[str, list[str]] = {}  # ModelOpt's mixed precision names every module (0.5.23 modelopt_quant.py:979)
    for name in part.values:
        format = part.part(name)
        modules.setdefault(str(format.get("quant_algo")).upper() if format is not None else "", []).append(name)
    formats = {"FP8": _twice(FP8_TENSOR), "MXFP8": _twice(MXFP8), "FP8_PB_WO": _twice(blocks("fp8 blocks", 128, 128))}
    formats |= dict.fromkeys(("NVFP4", "W4A16_NVFP4"), about.nvfp4)
    unknown = sorted(set(modules) - set(formats))
    if unknown:
        raise Missing(f"{part.prefix}quant_algo ({unknown[0]} is not modelled)")
    named = [Group(read_skips([names]), *formats[algorithm]) for algorithm, names in modules.items()]
    return (*named, Group(_NONE, about.full, about.full))


def _compressed_groups(stored: Fields, about: _Context) -> tuple[Group, ...]:
    """Returns the groups of compressed-tensors: named modules first, then the group for all other linear layers
    (quantization/compressed_tensors/utils.find_matched_target: a name goes before a class)."""
    part = stored.part("config_groups")
    named, rest = [], None
    for name in part.values if part else ():
        group = part.part(name) if part else None
        weights = group.part("weights") if group is not None else None
        if group is None:
            continue
        linear, experts = _compressed_group(weights, about) if weights is not None else _twice(about.full)
        targets = group.words("targets") or ("Linear",)
        if "Linear" in targets:
            rest = rest or Group(read_skips(()), linear, experts)
        named.append(Group(read_skips([[target for target in targets if target != "Linear"]]), linear, experts))
    if not named:
        return ()
    return (*named, rest or Group(read_skips(()), about.full, about.full))


def _compressed_group(weights: Fields, about: _Context) -> Pair:
    bits = weights.size("num_bits")
    if str(weights.get("type")) == "float" and bits == 4:
        return _twice(mxfp4()) if weights.get("group_size") == 32 else about.nvfp4
    if bits == 8 and str(weights.get("strategy")) == "block":
        return _twice(blocks("fp8 blocks", *(weights.block("block_structure") or (128, 128))))
    if bits == 8 and str(weights.get("strategy")) != "group":
        kind = "fp8" if str(weights.get("type")) == "float" else "int8"
        return _twice(FP8_TENSOR if str(weights.get("strategy")) == "tensor" else channels(f"{kind} channels"))
    zero = 0 if weights.flag("symmetric", default=True) else bits
    return _twice(grouped(f"int{bits}", bits, _group(weights, "group_size"), zero))


def _gguf(stored: Fields, element: int, full: Stored) -> Scheme:
    """Reads the scheme of a GGUF file, which keeps each tensor as stored (vLLM's GGUFConfig, which SGLang 0.5.2 uses):
    by the formats in its header, or by the one format that its file name states (facts/gguf.py reads both)."""
    bits = stored.part("bits")
    if bits is None:
        raise Missing(f"{stored.prefix}bits (the formats of the GGUF file's tensors)")
    if "all" in bits:
        every = Stored("gguf", bits.number("all"))
        return Scheme("gguf", element, every, every, every, full, False, _NONE, (), every)
    modules = bits.part("modules")
    groups = [group for name in modules.values for group in _gguf_module(modules, name)] if modules else []
    embedding = Stored("gguf", bits.number("embedding", default=full.bits))
    head = Stored("gguf", bits.number("lm_head", default=embedding.bits))
    return Scheme("gguf", element, full, full, head, full, False, _NONE, tuple(groups), embedding)


def _gguf_module(modules: Fields, name: str) -> list[Group]:
    """Returns the formats of one module, one group for all layers with the same format."""
    listed = modules.get(name)
    layers: dict[float, list[str]] = {}
    for number, bits in enumerate(listed[:_MOST_LAYERS] if isinstance(listed, (list, tuple)) else ()):
        if bits is not None:
            exact = Fields({name: bits}, modules.source, modules.prefix).number(name)
            layers.setdefault(exact, []).append(f"layers.{number}.{name}")
    return [Group(read_skips([paths]), Stored("gguf", exact), Stored("gguf", exact)) for exact, paths in layers.items()]


def _qoq(stored: Fields, about: _Context) -> Pair:
    return _twice(grouped("qoq int4", 4, _group(stored, "group_size") if "group_size" in stored else 128, 4))


def _quark(stored: Fields, about: _Context) -> Pair:
    shared = stored.part("global_quant_config")
    weight = shared.part("weight") if shared else None
    kind = str(weight.get("dtype")) if weight else ""
    if kind == "fp4":
        return _twice(mxfp4())
    if kind.startswith("fp8"):
        return _twice(FP8_TENSOR if weight and weight.get("qscheme") == "per_tensor" else channels("fp8 channels"))
    raise Missing(f"{stored.prefix}global_quant_config.weight.dtype")


_READERS: Mapping[str, Callable[[Fields, _Context], Pair]] = {
    "fp8": _fp8, "blockwise-int8": _int8_blocks, "awq": _awq, "awq-marlin": _awq, "gptq": _gptq,
    "gptq-marlin": _gptq, "auto-round": _gptq, "mxfp4": _mxfp4, "modelopt": _modelopt, "modelopt-fp4": _modelopt,
    "petit-nvfp4": _modelopt, "compressed-tensors": _compressed, "qoq": _qoq, "quark": _quark,
    "fbgemm-fp8": lambda stored, about: _twice(channels("fp8 channels")),
    "w8a8-fp8": lambda stored, about: _twice(channels("fp8 channels")),
    "w8a8-int8": lambda stored, about: _twice(channels("int8 channels")),
    "w4afp8": lambda stored, about: (blocks("fp8 blocks", 128, 128), grouped("int4", 4, 128)),
    "bitsandbytes": lambda stored, about: _twice(
        channels("int8") if stored.flag("load_in_8bit", "_load_in_8bit") else NF4
    ),
}  # fmt: skip


def _quantized_while_loading(asked: str, element: int, full: Stored) -> Scheme:
    """Returns the scheme of ``quantization`` for a checkpoint without a format of its own."""
    fp8, int8 = channels("fp8 channels"), channels("int8 channels")
    made = {  # the name, linear layers, experts, the vision tower, and whether the GPU quantizes
        "fp8": ("fp8, quantized while loading", fp8, FP8_TENSOR, fp8, True),
        "w8a8_fp8": ("fp8, quantized while loading", fp8, fp8, fp8, True),
        "bitsandbytes": ("nf4, quantized while loading", NF4, full, full, False),
        "w8a8_int8": ("int8", int8, int8, full, False),
        "mxfp4": ("mxfp4, quantized while loading", full, mxfp4(), full, True),
    }
    if asked not in made:
        raise Missing(f"quantization_config (quantization={asked} needs its parameters)")
    name, linear, experts, vision, online = made[asked]
    return Scheme(name, element, linear, experts, full, vision, online, _NONE)


def _with_torchao(scheme: Scheme, values: Mapping[str, object]) -> Scheme:
    """Applies torchao_config, which quantizes linear layers after loading (layers/torchao_utils.py)."""
    asked = str(values.get("torchao_config") or "")
    if asked.startswith("int4wo"):
        group = asked.partition("-")[2]
        linear = grouped(asked, 4, int(group) if is_digits(group) else 128, 16)
    elif asked.startswith(("int8", "fp8")):
        linear = channels(asked)
    else:
        return scheme
    return scheme._replace(name=asked, linear=linear, online=True)


def _twice(stored: Stored) -> Pair:
    return stored, stored


def _group(stored: Fields, *names: str) -> int:
    for name in names:
        if stored.get(name) == WHOLE_ROW:
            return WHOLE_ROW
    return stored.size(*names)
