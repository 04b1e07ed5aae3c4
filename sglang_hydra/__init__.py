"""Plan, explain, check and launch SGLang servers from composable configurations.

The public API; everything is imported when it is first used, so that ``import sglang_hydra`` costs next to nothing.

    resolve(intent, gpu=..., model=...)   what SGLang 0.5.2 makes of these arguments: needs neither Hydra nor OmegaConf
    plan(["gpu=h200", "model=gpt_oss"])   the same from config groups, checked and with a launch command
    parse_argv([...])                     SGLang's own command line as a dict
    add_*_choices([...])                  values that other code adds: attention backends, quantization methods, ...
    main                                  the decorator for other Hydra apps: their task gets the finished plan
    verl                                  what verl will start as its rollout: verl.plan_rollout(config), verl.main
"""

from __future__ import annotations

from os.path import isdir

TYPE_CHECKING = False
"""As in ``typing``, which is not imported for it: a program's first lines run before it can answer a signal."""

__version__ = "0.1.0"

# In a checkout conf/ lies beside this folder and not in it: sglang_hydra.conf is found there too, for pkg:// paths.
if not isdir(f"{__path__[0]}/conf"):
    __path__.append(__path__[0].rpartition("/")[0] or ".")

# No module is named like a public name: importing one would put the module in its place.
_HOMES = {
    "resolve": "sglang_hydra.resolution",
    "Resolution": "sglang_hydra.resolution",
    "plan": "sglang_hydra.app",
    "main": "sglang_hydra.hydra_app",
    "parse_argv": "sglang_hydra.argv",
    "Plan": "sglang_hydra.plans",
    "GpuFacts": "sglang_hydra.facts.gpu",
    "ModelFacts": "sglang_hydra.facts.model",
    "ServerArgs": "sglang_hydra.fields",
    "LoRARef": "sglang_hydra.fields",
    "Finding": "sglang_hydra.findings",
    "add_attention_backend_choices": "sglang_hydra.fields.choices",
    "add_disagg_transfer_backend_choices": "sglang_hydra.fields.choices",
    "add_grammar_backend_choices": "sglang_hydra.fields.choices",
    "add_load_format_choices": "sglang_hydra.fields.choices",
    "add_lora_target_module_choices": "sglang_hydra.fields.choices",
    "add_quantization_method_choices": "sglang_hydra.fields.choices",
    "add_reasoning_parser_choices": "sglang_hydra.fields.choices",
    "add_tool_call_parser_choices": "sglang_hydra.fields.choices",
    "ConfigError": "sglang_hydra.errors",
    "MachineError": "sglang_hydra.errors",
    "ServerError": "sglang_hydra.errors",
    "SglangHydraError": "sglang_hydra.errors",
}

__all__ = [
    "ConfigError",
    "Finding",
    "GpuFacts",
    "LoRARef",
    "MachineError",
    "ModelFacts",
    "Plan",
    "Resolution",
    "ServerArgs",
    "ServerError",
    "SglangHydraError",
    "__version__",
    "add_attention_backend_choices",
    "add_disagg_transfer_backend_choices",
    "add_grammar_backend_choices",
    "add_load_format_choices",
    "add_lora_target_module_choices",
    "add_quantization_method_choices",
    "add_reasoning_parser_choices",
    "add_tool_call_parser_choices",
    "main",
    "parse_argv",
    "plan",
    "resolve",
]

if TYPE_CHECKING:
    from typing import Any

    from sglang_hydra.app import plan
    from sglang_hydra.argv import parse_argv
    from sglang_hydra.errors import ConfigError, MachineError, ServerError, SglangHydraError
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.fields import LoRARef, ServerArgs
    from sglang_hydra.fields.choices import (
        add_attention_backend_choices,
        add_disagg_transfer_backend_choices,
        add_grammar_backend_choices,
        add_load_format_choices,
        add_lora_target_module_choices,
        add_quantization_method_choices,
        add_reasoning_parser_choices,
        add_tool_call_parser_choices,
    )
    from sglang_hydra.findings import Finding
    from sglang_hydra.hydra_app import main
    from sglang_hydra.plans import Plan
    from sglang_hydra.resolution import Resolution, resolve


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "verl":
        return import_module("sglang_hydra.verl")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
