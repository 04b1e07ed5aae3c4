"""Switches for finding numerical faults."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Debug:
    """Switches for finding numerical faults."""

    enable_nan_detection: bool = arg(
        False, "Look for NaN in the logits of every step, replace them and warn; costs some speed."
    )
    debug_tensor_dump_output_folder: str | None = arg(
        None, "Folder that the tensors of every layer are dumped to.", none="no dump"
    )
    debug_tensor_dump_input_file: str | None = arg(
        None, "File with the input ids to run in place of a request's.", none="requests run as they come"
    )
    debug_tensor_dump_inject: bool = arg(
        False,
        "Feed every layer the recorded output of the layer before it (Grok, against JAX). The flag takes a word, and "
        "any word turns it on, even false.",
        parser="text",
    )
    debug_tensor_dump_prefill_only: bool = arg(False, "Dump prefill passes only.")
