"""How text and images become tokens, and in how many processes."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Tokenizer:
    """How text and images become tokens, and in how many processes."""

    tokenizer_path: str | None = arg(
        None,
        "Folder or repository of the tokenizer; needed where the checkpoint ships none.",
        none="the same as model_path",
    )
    tokenizer_mode: str = arg(
        "auto",
        "auto takes the fast (Rust) tokenizer where there is one, slow always takes the Python one.",
        choices=("auto", "slow"),
    )
    tokenizer_worker_num: int = arg(
        1,
        "Tokenizer processes; raise it when one core of tokenizing bounds the request rate.",
        unit="processes",
    )
    skip_tokenizer_init: bool = arg(
        False, "Load no tokenizer: requests bring input_ids and get token ids back, as RL training loops do."
    )
    enable_tokenizer_batch_encode: bool = arg(
        False,
        "Tokenize the texts of a batched request in one call; text only, refuses images, input_ids and embeddings.",
    )
    disable_fast_image_processor: bool = arg(
        False, "Use the slow image processor; when the fast one gives different or broken pixels."
    )
