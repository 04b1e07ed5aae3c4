"""Lists every check in display order: GPUs, host, model, software."""

from __future__ import annotations

from sglang_hydra.run.doctor import driver, gpus, host, network, storage
from sglang_hydra.run.doctor.examination import Check

CHECKS: tuple[Check, ...] = (
    driver.check_driver,
    gpus.check_accelerators,
    gpus.check_gpu_memory,
    host.check_shared_memory,
    storage.check_weights_disk,
    storage.check_model,
    host.check_port,
    host.check_packages,
    driver.check_torch_build,
    network.check_rdma,
)
