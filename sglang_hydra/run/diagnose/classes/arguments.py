"""What was typed: flags that the release does not have, and values that it refuses."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight, sign

_UNKNOWN = re.compile(r"unrecognized arguments: (.{1,300})")
_ARGUMENT = re.compile(r"argument (--?[\w/-]{1,120}(?:/--?[\w-]{1,60})*): (.{1,80})")
_ASSERTION = re.compile(r"(?:AssertionError|ValueError|RuntimeError|NotImplementedError|TypeError)(?:: (.{1,300}))?")
# A flag in a sentence that says what it needs or excludes: what any module of SGLang says of arguments that it refuses.
_NEEDS = r"\b(?:must|requires?|only|not support(?:ed)?|cannot|incompatible|should be|expects?)\b"
_NAMED = r"(?<![\w-])(?:--[a-z][a-z-]{3,}|speculative_[a-z_]+)"
# What it says of a request that it refuses is no failure of the server.
_ASKED = r"(?!.*(?:the server|this model|[Tt]he request|you (?:launch|want)|when launching))"
_REFUSED = rf"Error: {_ASKED}(?:.*{_NAMED}.*{_NEEDS}|.*{_NEEDS}.*{_NAMED})"


def _flag(line: str) -> str | None:
    """The flags that argparse complains about."""
    found = _UNKNOWN.search(line)
    if found:
        return found[1]
    found = _ARGUMENT.search(line)
    return f"{found[1]}: {found[2]}" if found else None


CLASSES = (
    FailureClass(
        "DIA025",
        "bad_flag",
        "the command line has a flag that this release does not know, or a value of the wrong form",
        "Flags are added, renamed and removed between releases of SGLang, and argparse ends the process before "
        "anything else happens. Its exit code is 2.",
        "the nearest flag of that release; sglang-hydra check -- FLAGS names it; or the release that has the flag",
        (
            sign("error: unrecognized arguments"),
            sign("error: the following arguments are required"),
            sign("error: argument "),
            sign("error: ambiguous option"),
            sign("error: invalid choice"),
            sign("error: one of the arguments"),
            sign("error: unexpected argument"),
            sign("argparse.ArgumentError"),
            sign("unexpected keyword argument", r"ServerArgs\.__init__\(\)|(?:ServerArgs|Engine)\b.*unexpected"),
            sign("No module named sglang.", r"No module named sglang\.\w+", Weight.GENERAL),
        ),
        details=_flag,
    ),
    FailureClass(
        "DIA026",
        "invalid_arguments",
        "SGLang refuses these arguments together",
        "ServerArgs checks its fields against each other before anything starts, and stops at the first that does not "
        "hold, often with an assertion that has no words. Planning the same arguments shows all of them at once.",
        "sglang-hydra check with the same arguments, which names every conflict and what to type",
        (
            sign("Error", r"Error(?::\s*\S.*)?$", exception=True, frame=r"^at .*(?:/server_args\.py|/arg_groups/)"),
            sign("must be divisible by number of nodes"),
            sign("chunked_prefill_size must be divisible by page_size"),
            sign("Model path must be specified"),
            sign("Unknown load_format"),
            sign("Unknown dtype"),
            sign("Unsupported kv_cache_dtype"),
            sign("is not equal to tensor_model_parallel_size"),
            sign("SGLANG_CPU_OMP_THREADS_BIND", exception=True),
            sign("Invalid connector type", exception=True),
            sign("Not supported device type", exception=True),
            sign("is not supported in ROCm", exception=True),
            sign("Unknown schedule_policy", exception=True),
            sign("Invalid load balance method", exception=True),
            sign("Invalid schedule_conservativeness", exception=True),
            sign("Unexpected extra config keys for load format", exception=True),
            sign("Model loader extra config is not supported", exception=True),
            sign("Invalid --", r"Invalid --[a-z-]+:", exception=True),
            sign("PP is not compatible with MTP models", exception=True),
            sign("Error: ", _REFUSED, Weight.EFFECT, exception=True, request=True),
            sign("JSONDecodeError", exception=True, frame=r"^at .*model_config\.py"),
        ),
        details=lambda line: (found := _ASSERTION.search(line)) and found[1],
    ),
    FailureClass(
        "DIA027",
        "unsupported_backend",
        "a backend (attention, MoE, sampling, grammar, ...) does not run on this GPU or with these settings",
        "Where nothing was set, SGLang chooses by the GPU and the model; of what was named it refuses some at start. "
        "Inferred: kernels are written for some GPUs, head sizes, data types and page sizes, and what is not refused "
        "at start can fail at the first batch.",
        "attention_backend=null, so that SGLang chooses; or attention_backend=triton, which runs almost everywhere; or "
        "moe_runner_backend=auto, sampling_backend=pytorch, grammar_backend=xgrammar, whichever the line names",
        (
            sign("FlashAttention", r"FlashAttention ?v?\d? Backend requires|FlashAttention only supports"),
            sign("'fa3' backend is not supported"),
            sign("backend is only supported on"),
            sign("ackend requires SM", r"[Bb]ackend requires SM"),
            sign("is not supported on Blackwell"),
            sign("only supported in FlashAttention"),
            sign(
                "only supported backend", r"(?:Assertion|Value|Runtime)Error.*only supported backends?", Weight.GENERAL
            ),
            sign("Invalid attention backend"),
            sign("backend can only be used with", exception=True),
            sign("Dual chunk attention is enabled, but attention backend is set to", exception=True),
            sign("MLA optimization not supported on CPU", exception=True),
            sign("Unsupported attention backend"),
            sign("Unsupported head_dim"),
            sign("head dimension", r"only supports? head dimension"),
            sign(
                "attention backend",
                r"(?:AssertionError|ValueError|RuntimeError|NotImplementedError): .*"
                r"(?:not support|only support|requires|incompatible)",
                Weight.GENERAL,
            ),
            sign(
                "attention_backend",
                r"(?:AssertionError|ValueError|RuntimeError|NotImplementedError): .*"
                r"(?:not support|only support|requires|must be)",
                Weight.GENERAL,
            ),
            sign("is not supported by the", r"backend", Weight.GENERAL),
            sign("AttentionBackend does not support"),
            sign("MoE backend", r"(?:AssertionError|ValueError|RuntimeError|NotImplementedError): ", Weight.GENERAL),
            sign(
                "moe_runner_backend",
                r"(?:AssertionError|ValueError|RuntimeError|NotImplementedError): ",
                Weight.GENERAL,
            ),
            sign("requires Blackwell", exception=True),
            sign("requires Hopper", exception=True),
            sign("FlashInfer FP8 GEMM requested"),
            sign("CUTLASS block FP8 requested"),
            sign("BatchPrefillWithPagedKVCache failed", None, Weight.GENERAL),
            sign("BatchDecodeWithPagedKVCache failed", None, Weight.GENERAL),
            sign("Unsupported max_mma_kv"),
            sign("FlashInfer Internal Error: Invalid configuration"),
        ),
        fields=("attention_backend", "moe_runner_backend", "sampling_backend", "grammar_backend"),
        changes=("attention_backend=null", "attention_backend=triton"),
    ),
)
