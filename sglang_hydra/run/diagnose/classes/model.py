"""The model itself: what this release cannot serve, and what belongs to it besides the weights."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight, sign

_ARCHITECTURE = re.compile(r"architectures? \[?'?([A-Z]\w{3,80})|model type `?'?([\w-]{2,60})|module\. '(\w{3,80})'")
_LENGTHS = re.compile(r"context_length \((\d+)\).*?context_length \((\d+)\)")
_TOKENS = re.compile(r"input \((\d+) tokens\).*?context length \((\d+)")
_DIVIDES = re.compile(r"(\d{1,7}) is not divisible by (?:\w+ (?:= )?)?(\d{1,5})")


def _architecture(line: str) -> str | None:
    found = _ARCHITECTURE.search(line)
    return next((name for name in found.groups() if name), None) if found else None


def _lengths(line: str) -> str | None:
    found = _LENGTHS.search(line)
    if found:
        return f"{found[1]} was asked for, and the model has {found[2]}"
    found = _TOKENS.search(line)
    return f"a request of {found[1]} tokens, and the server takes {found[2]}" if found else None


def _divides(line: str) -> str | None:
    found = _DIVIDES.search(line)
    return f"{found[1]} by {found[2]}" if found else None


CLASSES = (
    FailureClass(
        "DIA017",
        "unsupported_architecture",
        "this release of SGLang, or of transformers below it, does not know the model's architecture",
        "Each model class is a file of SGLang, and newer models need a newer release; the same holds for the "
        "configuration class in transformers. A class that exists can be missing because its file failed to import: "
        "the log then says so earlier (Ignore import error when loading ...).",
        "a later release of SGLang (docs name the first one for each model); or pip install -U transformers, where it "
        "is transformers that does not know it; or model_impl=transformers",
        (
            sign("are not supported for now"),
            sign("is not supported for now", r"architecture", Weight.GENERAL),
            sign("but Transformers does not recognize this architecture"),
            sign("Cannot find model module"),
            sign("has no SGLang implementation and the Transformers implementation is not compatible"),
            sign("has no SGlang implementation and the Transformers implementation is not compatible"),
            sign("implementation is not compatible with SGLang"),
            sign("failed to be inspected"),
            sign("No processor registered for architecture"),
            sign("Cannot find corresponding multimodal processor"),
            sign("Unsupported arch", r"Unsupported architectures?\b(?!.*sm_?\d)"),
            sign("does not support this model", None, Weight.GENERAL),
            sign("Transformers backend", r"does not support", Weight.GENERAL),
            sign("Unknown gguf model_type:", exception=True),
        ),
        fields=("model_path", "model_impl"),
        details=_architecture,
    ),
    FailureClass(
        "DIA018",
        "trust_remote_code",
        "the model brings code of its own, and it was not allowed to run",
        "Its configuration, tokenizer or model class is Python in the repository. It is run only where it was asked "
        "for; look at it before, it runs with the server's rights.",
        "trust_remote_code=true",
        (
            sign(
                "trust_remote_code=True", r"(?:argument|option|passing|pass|setting|set|with) \W?trust_remote_code=True"
            ),
            sign("trust_remote_code", r"requires you to execute|custom code|set the option|Please pass"),
            sign("contains custom code which must be executed"),
            sign(
                "--trust-remote-code",
                r"(?:[Pp]lease|requires?|must|pass|set|with) .{0,60}--trust-remote-code",
                Weight.GENERAL,
            ),
            sign("RemoteCodeGateError", r"custom model code"),
        ),
        fields=("trust_remote_code",),
        changes=("trust_remote_code=true",),
    ),
    FailureClass(
        "DIA019",
        "tokenizer",
        "the tokenizer, or the processor of images and audio, could not be loaded",
        "Inferred: files are missing or broken, or were written by another release of transformers or tokenizers, or a "
        "package that this kind needs (sentencepiece, tiktoken, protobuf) is not installed.",
        "tokenizer_path=..., of the model that it was trained from; or the model's files, downloaded again; or "
        "pip install sentencepiece tiktoken protobuf; or tokenizer_mode=slow",
        (
            sign("Can't load tokenizer for"),
            sign("Either model_file or model_proto must be specified"),
            sign("Couldn't instantiate the backend tokenizer"),
            sign("data did not match any variant of untagged enum"),
            sign("Tokenizer class", r"does not exist or is not currently imported"),
            sign("Unable to load vocabulary"),
            sign("Error while loading tokenizer"),
            sign("Failed to load the tokenizer"),
            sign("failed to load tokenizer for"),
            sign("Cannot use the fast tokenizer in slow tokenizer mode"),
            sign("Failed to load image_processor for"),
            sign("Cannot determine processor class for"),
            sign("Exception: ", r"at line \d+ column \d+", frame=r"tokeniz"),
            sign("Converting from", r"(?:SentencePiece|Tiktoken|sentencepiece|tiktoken).*fail"),
            sign("EOF while parsing", r"line \d+ column \d+"),
            sign("get_tokenizer", None, Weight.GENERAL, exception=True, frame=r"get_tokenizer"),
            sign("Error", None, Weight.GENERAL, exception=True, frame=r"in get_tokenizer$|tokenization_utils_base\.py"),
            sign("TypeError: not a string", frame=r"sentencepiece|tokeniz"),
            sign("Can't load image processor for"),
            sign("Can't load feature extractor for"),
            sign("Can't load processor for"),
            sign("Unrecognized processing class in"),
            sign("Unrecognized image processor in"),
            sign("Error", None, Weight.GENERAL, exception=True, frame=r"in get_processor$|processing_utils\.py"),
        ),
        fields=("tokenizer_path", "tokenizer_mode", "model_path"),
    ),
    FailureClass(
        "DIA020",
        "context_length",
        "more tokens than the model's context length",
        "A context_length above what config.json derives is refused at start, unless "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1; a prompt above the server's is refused for that request alone, "
        "or cut with allow_auto_truncate, and the server goes on.",
        "context_length=N, at most what the model has; or SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 with RoPE "
        "scaling that is made for it; or shorter prompts, or allow_auto_truncate=true",
        (
            sign("is greater than the derived context_length", exception=True),
            sign("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", exception=True),
            sign("is longer than the model's context length", r"^(?!.*Truncating)", request=True),
            sign("exceeds the model's maximum context length", request=True),
            sign("exceeds the maximum allowed length", request=True),
            sign("exceeds the model context length", exception=True),
        ),
        fields=("context_length", "allow_auto_truncate"),
        details=_lengths,
    ),
    FailureClass(
        "DIA021",
        "parallel_size",
        "the model cannot be divided by this many GPUs",
        "Attention heads, expert widths and the blocks of a quantized weight must divide by the ranks that share them. "
        "With DP attention or expert parallelism fewer ranks share each.",
        "tp_size=N, that divides the heads (fit shows what each size needs); or ep_size=tp_size, for experts whose "
        "width does not divide; or enable_dp_attention=true dp_size=N",
        (
            sign("is not divisible by", r"\d is not divisible by (?!page|min_chunk|group_size = 0)"),
            sign(
                "not divisible by",
                r"(?:heads?|hidden|intermediate|vocab|experts?|tp_?size|world_size|partition).{0,80}"
                r"not divisible by",
            ),
            sign(
                "must be divisible by",
                r"(?:heads|hidden_size|intermediate_size|num_experts|world_size|moe_\w+|"
                r"embedding|vocab\w*) .{0,80}must be divisible by|must be divisible by (?:world|tensor|tp|ep|moe)",
            ),
            sign("AssertionError", None, Weight.GENERAL, exception=True, frame=r"in (?:divide|ensure_divisibility)$"),
            sign(
                "assert ",
                r"AssertionError: assert .*(?:heads|tp_size|hidden_size|intermediate|experts|world_size).* % ",
                Weight.GENERAL,
            ),
            sign("total_num_heads", r"AssertionError.*total_num_(?:kv_)?heads"),
            sign(
                "not aligned with the quantized weight shape",
                advice="a smaller tp_size, at which each rank holds whole groups of the quantized weight; or "
                "pp_size=2, which divides the layers and no weight; or another quantization of the model",
            ),
            sign("please make sure (", r"intermediate_size.* % weight_block_size"),
            sign("sum(partitions)=", r"does not match num_hidden_layers"),
            sign("len(partitions)=", r"does not match pp_size"),
        ),
        fields=("tp_size", "ep_size", "dp_size"),
        details=_divides,
    ),
    FailureClass(
        "DIA022",
        "quantization",
        "the quantization asked for does not go with this checkpoint, this GPU or this build",
        "A checkpoint names its own format, and another one on the command line is refused; some formats need newer "
        "GPUs, kernels of another package, or shapes that this model does not have.",
        "quantization=null, so that the checkpoint's own format is used; or the format that the line names; or another "
        "checkpoint of the model",
        (
            sign("does not match the quantization method specified"),
            sign("Invalid quantization method"),
            sign("is not supported for the current GPU"),
            sign("Quantization scheme is not supported for"),
            sign("Unknown quantization method"),
            sign("quantization is currently not supported"),
            sign("quantization requires some operators from vllm"),
            sign("requires some operators from vllm"),
            sign("Invalid quant_config"),
            sign("does not support NVFP4"),
            sign("NVFP4", r"NVFP4.{0,60}(?:requires|not support|is required)", exception=True),
            sign("ModelOpt", r"ModelOpt (?:only|currently)", exception=True),
            sign("block-wise quantization only supports"),
            sign("weight quantization is supported for"),
            sign("is supported for Marlin"),
            sign("Marlin does not support", exception=True),
            sign("is not supported for quantization method", None),
            sign("is not supported for quantization", r"dtype|float"),
            sign("quant_method", r"(?:ValueError|KeyError|NotImplementedError|AssertionError).*quant_method"),
            sign("No compressed-tensors compatible scheme was found"),
            sign("Cannot find the config file for"),
            sign("GGUF", r"(?:ValueError|RuntimeError|NotImplementedError).*GGUF"),
            sign("on CPU requires that CPU has AMX support"),
            sign("BitsAndBytes", r"(?:not supported?|does not support)"),
            sign(
                "Error",
                None,
                Weight.GENERAL,
                exception=True,
                frame=r"quantization/.*(?:get_quant_config|from_config|_verify_quantization|in __init__)$|"
                r"in _verify_quantization$|in _get_quantization_config$",
            ),
        ),
        fields=("quantization", "kv_cache_dtype", "dtype"),
        changes=("quantization=null",),
    ),
    FailureClass(
        "DIA023",
        "chat_template",
        "the chat template or a parser for tools or reasoning is not there",
        "chat_template takes the name of a built-in template or a file that exists where the server runs; "
        "tool_call_parser and reasoning_parser take the names that this release knows.",
        "chat_template=/path/of/template.jinja, mounted into the container; or chat_template=null, the model's own; "
        "or tool_call_parser=... as the model's page says for this release",
        (
            sign("is not a built-in template name or a valid"),
            sign("unrecognized format of chat template file"),
            sign("Unsupported tool_call_parser"),
            sign("Unsupported model type:"),
            sign("TemplateSyntaxError"),
            sign("TemplateError", r"jinja2\.exceptions\.\w*TemplateError", request=True),
            sign("Cannot use chat template functions because", None, request=True),
            sign("tokenizer.chat_template is not set", None, request=True),
            sign("does not have a chat template", None, Weight.GENERAL, request=True),
        ),
        fields=("chat_template", "tool_call_parser", "reasoning_parser"),
    ),
    FailureClass(
        "DIA024",
        "lora",
        "a LoRA adapter cannot be loaded",
        "The adapter's files are missing, or its rank or modules exceed what the pool was made for. Inferred: or it "
        "was trained for another base model.",
        "max_lora_rank=N and lora_target_modules=[all], large enough for every adapter; or lora_paths=[name=/path], "
        "as it is mounted; or disable_radix_cache=true, for releases that ask for it",
        (
            sign("Failed to load LoRA adapter"),
            sign("Failed to implicitly load LoRA adapter"),
            sign("is incompatible with the current LoRA memory pool"),
            sign("adapter_config.json"),
            sign("adapter_model.safetensors"),
            sign(
                "LoRA",
                r"(?:ValueError|RuntimeError|AssertionError|TypeError|Exception|KeyError): .*LoRA",
                Weight.GENERAL,
                request=True,
            ),
            sign("lora_paths", r"(?:ValueError|AssertionError|TypeError).*lora_paths", Weight.GENERAL),
            sign("Cannot find adapter config file in"),
            sign("Error", None, Weight.GENERAL, exception=True, frame=r"srt/lora/"),
        ),
        fields=("lora_paths", "max_lora_rank", "lora_target_modules"),
    ),
)
