"""How the weights come from disk or network into memory."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.fields.choices import LOAD_FORMAT_CHOICES


@argument_class
class Loading:
    """How the weights come from disk or network into memory."""

    load_format: str = arg(
        "auto",
        "Format of the weights: auto takes safetensors and falls back to .bin files; dummy fills in random numbers, "
        "for measuring without a download.",
        choices=LOAD_FORMAT_CHOICES,
    )
    model_loader_extra_config: str = arg("{}", "JSON object handed to the loader of the chosen load_format.", json=True)
    download_dir: str | None = arg(
        None,
        "Folder that downloaded weights are cached in; set it where the home directory is small.",
        none="the Hugging Face cache ($HF_HOME)",
    )
    delete_ckpt_after_loading: bool = arg(
        False, "Delete the checkpoint from disk once it is loaded; for machines with little disk. It cannot be undone."
    )
    custom_weight_loader: list[str] | None = arg(
        None,
        "Import paths (package.module.function) that a weight update request may name as its loader.",
        none="no loaders (an empty list)",
        nargs="*",
    )
    weight_loader_disable_mmap: bool = arg(
        False, "Read safetensors files whole and not through mmap; faster on network file systems, takes more memory."
    )
