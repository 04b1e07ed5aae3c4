"""Old switches that SGLang 0.5.2 still obeys by setting the arguments that replaced them."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Deprecated:
    """Old switches that SGLang 0.5.2 still obeys by setting the arguments that replaced them."""

    enable_ep_moe: bool = arg(False, "Deprecated: set ep_size to the value of tp_size.")
    enable_deepep_moe: bool = arg(False, "Deprecated: set moe_a2a_backend=deepep.")
    enable_flashinfer_cutlass_moe: bool = arg(False, "Deprecated: set moe_runner_backend=flashinfer_cutlass.")
    enable_flashinfer_trtllm_moe: bool = arg(False, "Deprecated: set moe_runner_backend=flashinfer_trtllm.")
    enable_triton_kernel_moe: bool = arg(False, "Deprecated: set moe_runner_backend=triton_kernel.")
    enable_flashinfer_mxfp4_moe: bool = arg(False, "Deprecated: set moe_runner_backend=flashinfer_mxfp4.")
