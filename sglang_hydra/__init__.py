"""Plan, explain, check and launch SGLang servers from composable configurations.

The public API. Every name is imported at its first use, so that ``import sglang_hydra`` is fast.

    resolve(intent, gpu=..., model=...)   resolves arguments like SGLang 0.5.2, without Hydra and OmegaConf
    plan(["gpu=h200", "model=gpt_oss"])   plans from config groups, with checks and a launch command; also from a dict
    server_args(["gpu=h200", ...])        the keyword arguments of sglang.Engine, for the release that is installed
    schema()                              the JSON schema of plan.json, or of another record by its name
    parse_argv([...])                     SGLang's own command line as a dict
    add_*_choices([...])                  adds allowed values: attention backends, quantization methods, ...
    main                                  the decorator for other Hydra apps: their task gets the finished plan
    register()                            puts the schema into Hydra's ConfigStore; done on import after Hydra's
    results("multirun/SWEEP")             the measurements of a sweep, as a pandas DataFrame
    verl                                  plans the rollout of verl: verl.plan_rollout(config), verl.main"""

from __future__ import annotations

import sys
from os.path import isdir

from sglang_hydra.text.version import VERSION

TYPE_CHECKING = False
"""Like ``typing``'s, which is not imported: a program's first lines run before it can handle a signal."""

__version__ = VERSION

# In a checkout conf/ is beside this folder, not in it: sglang_hydra.conf is found there, too, for pkg:// paths.
if not isdir(f"{__path__[0]}/conf"):
    __path__.append(__path__[0].rpartition("/")[0] or ".")

__all__ = [
    "ConfigError", "Finding", "GpuFacts", "LoRARef", "MachineError", "ModelFacts", "Plan", "Resolution",
    "ServerArgs", "ServerError", "SglangHydraError", "__version__", "add_attention_backend_choices",
    "add_disagg_transfer_backend_choices", "add_grammar_backend_choices", "add_load_format_choices",
    "add_lora_target_module_choices", "add_quantization_method_choices", "add_reasoning_parser_choices",
    "add_tool_call_parser_choices", "main", "parse_argv", "plan", "register", "resolve", "results", "schema",
    "server_args",
]  # fmt: skip

if TYPE_CHECKING:
    from typing import Any

    from sglang_hydra.arguments.fields import LoRARef, ServerArgs
    from sglang_hydra.arguments.fields.choices import (
        add_attention_backend_choices,
        add_disagg_transfer_backend_choices,
        add_grammar_backend_choices,
        add_load_format_choices,
        add_lora_target_module_choices,
        add_quantization_method_choices,
        add_reasoning_parser_choices,
        add_tool_call_parser_choices,
    )
    from sglang_hydra.arguments.reading import parse_argv
    from sglang_hydra.compose.schema import register as register
    from sglang_hydra.convert import verl as verl
    from sglang_hydra.convert.export.engine_kwargs import server_args
    from sglang_hydra.facts.gpu import GpuFacts
    from sglang_hydra.facts.model import ModelFacts
    from sglang_hydra.measure.report.reading import results
    from sglang_hydra.planning.making.make import plan
    from sglang_hydra.planning.plan import Plan
    from sglang_hydra.rules.resolution import Resolution, resolve
    from sglang_hydra.run.hydra_app import main
    from sglang_hydra.schemas import schema_of as schema
    from sglang_hydra.text.errors import ConfigError, MachineError, ServerError, SglangHydraError
    from sglang_hydra.text.findings import Finding


_ARGUMENTS, _TEXT = "sglang_hydra.arguments", "sglang_hydra.text"
_HOMES = {
    "verl": "sglang_hydra.convert.verl",
    "resolve": "sglang_hydra.rules.resolution",
    "Resolution": "sglang_hydra.rules.resolution",
    "plan": "sglang_hydra.planning.making.make",
    "Plan": "sglang_hydra.planning.plan",
    "register": "sglang_hydra.compose.schema",
    "schema": "sglang_hydra.schemas",
    "server_args": "sglang_hydra.convert.export.engine_kwargs",
    "results": "sglang_hydra.measure.report.reading",
    "main": "sglang_hydra.run.hydra_app",
    "parse_argv": f"{_ARGUMENTS}.reading",
    "ServerArgs": f"{_ARGUMENTS}.fields",
    "LoRARef": f"{_ARGUMENTS}.fields",
    "GpuFacts": "sglang_hydra.facts.gpu",
    "ModelFacts": "sglang_hydra.facts.model",
    "Finding": f"{_TEXT}.findings",
    **{name: f"{_TEXT}.errors" for name in __all__ if name.endswith("Error")},
    **{name: f"{_ARGUMENTS}.fields.choices" for name in __all__ if name.startswith("add_")},
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        from sglang_hydra.text.flags import OTHER_VERBS, VERBS

        verb = name if name in VERBS else OTHER_VERBS.get(name, "").partition(" ")[0]
        typed = f": {verb} is a verb of the command line, sglang-hydra {verb} ..." if verb else ""
        if name in ("compose", "initialize", "load", "make_plan"):
            typed = ": plan(['gpu=h100', 'model=qwen3_8b']) composes and plans, and a task of a Hydra app gets its plan"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{typed}")
    home = import_module(_HOMES[name])
    if name == "verl":
        return home
    value = globals()[name] = getattr(home, "schema_of" if name == "schema" else name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "verl"})


if "hydra.core.config_store" in sys.modules:
    __getattr__("register")()
