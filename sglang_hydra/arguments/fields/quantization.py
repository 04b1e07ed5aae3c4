"""Number formats of weights, activations and the KV cache."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.fields.choices import QUANTIZATION_CHOICES


@argument_class
class Quantization:
    """Number formats of weights, activations and the KV cache."""

    dtype: str = arg(
        "auto",
        "Type of unquantized weights and activations: auto keeps bfloat16 and float16 and makes float32 float16.",
        choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
    )
    quantization: str | None = arg(
        None,
        "Quantization method; needed to quantize at load (fp8) or where the checkpoint does not name its own.",
        none="the checkpoint's own method, if it has one",
        choices=QUANTIZATION_CHOICES,
    )
    quantization_param_path: str | None = arg(
        None,
        "JSON file with the scales of an fp8 KV cache; read with kv_cache_dtype=fp8_e4m3 only.",
        none="scales of 1.0, which may cost accuracy",
        parser="nullable",
    )
    kv_cache_dtype: str = arg(
        "auto",
        "Type of the KV cache: an fp8 type holds twice the tokens of a 16-bit one, at some cost in accuracy.",
        choices=("auto", "fp8_e5m2", "fp8_e4m3"),
    )
    torchao_config: str = arg(
        "",
        "Experimental quantization at load with torchao: int8dq, int8wo, int4wo-<group size>, fp8wo, fp8dq-per_tensor "
        "or fp8dq-per_row; empty for none.",
    )
