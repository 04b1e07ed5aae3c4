"""The processes: which devices they take, and the choices torch and the operating system leave open."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class


@argument_class
class Runtime:
    """The processes: which devices they take, and the choices torch and the operating system leave open."""

    device: str | None = arg(
        None,
        "Kind of device: cuda (NVIDIA and AMD), xpu, hpu, npu or cpu.",
        none="the accelerator found; refused where there is none, unless SGLANG_USE_CPU_ENGINE=1",
    )
    base_gpu_id: int = arg(0, "First GPU to use; for several servers on one machine.")
    gpu_id_step: int = arg(1, "Distance between the GPUs used: 2 takes 0, 2, 4, ...")
    numa_node: list[int] | None = arg(
        None,
        "NUMA node that each GPU's process is bound to, looked up by GPU id; for machines with several sockets.",
        none="no binding",
        nargs="+",
    )
    random_seed: int | None = arg(None, "Seed of sampling; set it to repeat a run.", none="drawn anew at every start")
    sleep_on_idle: bool = arg(
        False, "Let the scheduler sleep while there is nothing to do; saves a busy core, adds a little latency."
    )
    enable_torch_compile: bool = arg(
        False, "Compile the model with torch.compile for small batches; minutes of start-up for some faster decoding."
    )
    torch_compile_max_bs: int = arg(32, "Largest batch that torch.compile is used for.", unit="requests")
