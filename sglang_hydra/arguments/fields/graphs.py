"""CUDA graphs: recorded decode steps that replay without launch overhead."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.memory_classes import GRAPH_SIZES


@argument_class
class Graphs:
    """CUDA graphs: recorded decode steps that replay without launch overhead."""

    cuda_graph_max_bs: int | None = arg(
        None,
        "Largest decode batch that is captured; larger ones run without a graph. Each captured size takes memory.",
        unit="requests",
        none=GRAPH_SIZES,
    )
    cuda_graph_bs: list[int] | None = arg(
        None,
        "The very batch sizes to capture, in place of the list made up to cuda_graph_max_bs.",
        unit="requests",
        none="a list made up to cuda_graph_max_bs",
        nargs="+",
    )
    disable_cuda_graph: bool = arg(
        False,
        "Capture no graphs: a faster start and less memory, slower decoding; the first thing to try when debugging.",
    )
    disable_cuda_graph_padding: bool = arg(
        False, "Use a graph only for exactly captured batch sizes, and pad no batch up to the next one."
    )
    enable_profile_cuda_graph: bool = arg(False, "Profile the capture of graphs and print where its time goes.")
    enable_cudagraph_gc: bool = arg(
        False, "Leave Python's garbage collector on while capturing; makes the capture slower."
    )
