"""Which model is served, and how its configuration is read."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import MISSING, arg, argument_class


@argument_class
class Model:
    """Which model is served, and how its configuration is read."""

    model_path: str = arg(
        MISSING,
        "The checkpoint to serve: a Hugging Face repository (org/name), a local folder, a GGUF file or a remote URL.",
        flags=("--model-path", "--model"),
    )
    revision: str | None = arg(
        None,
        "Branch, tag or commit of the Hugging Face repository; pin it where results must be repeatable.",
        none="the repository's main branch",
    )
    trust_remote_code: bool = arg(
        False, "Run the Python code that the repository ships for its model; only for repositories you trust."
    )
    context_length: int | None = arg(
        None,
        "Longest request, prompt and answer together; lower it to bound what one request may take of the KV cache.",
        unit="tokens",
        none="the length that the model's config.json gives",
    )
    is_embedding: bool = arg(
        False, "Serve a causal language model for embeddings: the pooled hidden state is returned and no text."
    )
    enable_multimodal: bool | None = arg(
        None,
        "Serve the image, video and audio parts too; some model families are served text-only unless it is set.",
        none="decided by the architecture: on, but for the few that are text-only by default",
    )
    model_impl: str = arg(
        "auto",
        "Whose model code runs: sglang, transformers, or auto (SGLang's where it has one, else transformers').",
    )
    json_model_override_args: str = arg(
        "{}",
        "JSON object laid over the model's config.json, for example to set rope_scaling.",
        json=True,
    )
