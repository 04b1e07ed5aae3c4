"""What clients see: keys, names, templates, parsers, streaming."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.fields.choices import REASONING_PARSER_CHOICES, TOOL_CALL_PARSER_CHOICES


@argument_class
class Api:
    """What clients see: keys, names, templates, parsers, streaming."""

    api_key: str | None = arg(
        None,
        "Secret that every request must bring as its bearer token.",
        none="anyone who reaches the port may use it",
        secret=True,
    )
    served_model_name: str | None = arg(
        None,
        "Name of the model in /v1/models and in answers.",
        none="the same as model_path",
    )
    weight_version: str = arg(
        "default", "Label of the weights, returned with every answer; training loops that update weights set it."
    )
    chat_template: str | None = arg(
        None,
        "Chat template: a built-in name or the path of a .jinja or .json file.",
        none="the one that model_path suggests, else the tokenizer's own",
    )
    completion_template: str | None = arg(
        None,
        "Template of fill-in-the-middle code completion: a built-in name or a file.",
        none="completions take the prompt as it is",
    )
    file_storage_path: str = arg(
        "sglang_storage", "Folder for uploaded files. SGLang 0.5.2 accepts it and reads it nowhere."
    )
    enable_cache_report: bool = arg(
        False, "Report in usage.prompt_tokens_details how many prompt tokens came from the prefix cache."
    )
    reasoning_parser: str | None = arg(
        None,
        "Split the model's thinking from its answer into reasoning_content; choose the parser of the model's family.",
        none="thinking stays in the text",
        choices=REASONING_PARSER_CHOICES,
    )
    tool_call_parser: str | None = arg(
        None,
        "Turn the model's tool-call text into tool_calls; choose the parser of the model's family.",
        none="tool calls stay in the text",
        choices=TOOL_CALL_PARSER_CHOICES,
    )
    tool_server: str | None = arg(
        None,
        "Tools that the Responses API runs itself: demo, or the URLs of MCP servers separated by commas.",
        none="no built-in tools",
    )
    preferred_sampling_params: str | None = arg(
        None,
        "JSON object of sampling parameters used where a request sets none of its own; shown by /get_model_info.",
        none="SGLang's sampling defaults",
        json=True,
    )
    constrained_json_whitespace_pattern: str | None = arg(
        None,
        "Regular expression of the whitespace allowed between JSON tokens; outlines grammar backend only.",
        none="outlines' default (a single space)",
    )
    stream_interval: int = arg(
        1,
        "Tokens between two streamed chunks; raise it for throughput, at the price of less smooth streaming.",
        unit="tokens",
    )
    stream_output: bool = arg(False, "Stream only what is new in each chunk of /generate and not the text so far.")
    allow_auto_truncate: bool = arg(
        False, "Cut a prompt or an answer limit that exceeds the context length, where it would be refused otherwise."
    )
    enable_custom_logit_processor: bool = arg(
        False, "Let requests bring their own logit processor: Python code that the server runs. Trusted clients only."
    )
    enable_return_hidden_states: bool = arg(
        False, "Let requests ask for hidden states; CUDA graphs then capture them too."
    )
