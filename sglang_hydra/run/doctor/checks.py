"""Every check, in the one order in which they are shown: the GPUs, the host, the model, the software."""

from __future__ import annotations

from sglang_hydra.run.doctor import driver, gpus, host, links, packages, storage
from sglang_hydra.run.doctor.examination import Check

CHECKS: tuple[Check, ...] = (
    driver.check_driver,
    gpus.check_accelerators,
    gpus.check_gpu_memory,
    gpus.check_gpu_modes,
    links.check_links,
    links.check_visible,
    host.check_shared_memory,
    host.check_locked_memory,
    host.check_open_files,
    host.check_host_memory,
    storage.check_weights_disk,
    storage.check_writable,
    storage.check_model,
    host.check_ports,
    packages.check_python,
    packages.check_packages,
    driver.check_torch_build,
    packages.check_compilers,
    host.check_container,
)
