"""Lists every rule and check of SGLang, in the order in which SGLang applies them.

order.txt has the order: a line has an id and, for people, its module and function, or its name in table.json."""

from __future__ import annotations

from pathlib import Path

from sglang_hydra.rules import (
    graphs,
    loading,
    lora,
    memory,
    parallel,
    scheduling,
    speculative,
)
from sglang_hydra.rules.checks import disaggregation as check_disaggregation
from sglang_hydra.rules.checks import experts as check_experts
from sglang_hydra.rules.checks import kernels as check_kernels
from sglang_hydra.rules.checks import loading as check_loading
from sglang_hydra.rules.checks import logs as check_logs
from sglang_hydra.rules.checks import lora as check_lora
from sglang_hydra.rules.checks import memory as check_memory
from sglang_hydra.rules.checks import model as check_model
from sglang_hydra.rules.checks import model_sizes as check_model_sizes
from sglang_hydra.rules.checks import parallel as check_parallel
from sglang_hydra.rules.checks import runtime as check_runtime
from sglang_hydra.rules.checks import scheduling as check_scheduling
from sglang_hydra.rules.rule import Rule
from sglang_hydra.rules.table import TABLE

_MODULES = (
    *(graphs, loading, lora, memory, parallel, scheduling, speculative),
    *(check_disaggregation, check_experts, check_kernels, check_loading, check_logs, check_lora),
    *(check_memory, check_model, check_model_sizes, check_parallel, check_runtime, check_scheduling),
)
_RULES = {rule.id: rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, Rule)} | TABLE
_LINES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
ORDER: tuple[Rule, ...] = tuple(_RULES[line.split()[0]] for line in _LINES if line[:1] != "#")
