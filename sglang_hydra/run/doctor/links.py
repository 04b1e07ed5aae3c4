"""Checks how the GPUs reach each other, and which of them a server may use."""

from __future__ import annotations

from collections import Counter
from functools import partial

from sglang_hydra.run.doctor.examination import Verdict, check
from sglang_hydra.run.doctor.machine_state import World
from sglang_hydra.run.doctor.phrases import plural, several


@check("DOC005", "NVLink and peer access")
def check_links(world: World) -> Verdict:
    """
    What: whether the visible GPUs read each other's memory, by NVLink or PCIe, and whether an NVSwitch fabric is up.
    Why: without the fabric manager CUDA does not start at all on NVSwitch machines (error 802). SGLang's own
        all-reduce needs NVLink between all beyond two GPUs. Inferred: without peer access tensor parallelism goes
        through host memory.
    Source: NVIDIA's management library; NVIDIA's fabric manager guide; SGLang 0.5.2, custom_all_reduce.py:146-166.
    Example: 8 x H100 with the fabric not started -> error, sudo systemctl start nvidia-fabricmanager
    """
    seen = [gpu for gpu in world.visible if not gpu.problem]
    places = {gpu.number for gpu in seen}
    pairs = [pair for pair in world.nvidia.pairs if pair.first in places and pair.second in places]
    linked = [pair for pair in pairs if pair.nvlink]
    blocked = [pair for pair in pairs if pair.obstacle]
    values = {
        "pairs": len(pairs),
        "nvlink_pairs": len(linked),
        "peer_pairs": sum(pair.obstacle == "" for pair in pairs),
        "fabric": sorted({gpu.fabric for gpu in seen if gpu.fabric}),
    }
    verdict = partial(Verdict, values=values)
    down = [gpu for gpu in seen if gpu.fabric not in (None, "ready")]
    if down:
        found = f"the NVSwitch fabric of {several([gpu.number for gpu in down])} is {down[0].fabric}"
        fix = "sudo systemctl restart nvidia-fabricmanager (its version must be the driver's)"
        # One GPU handed to a virtual machine has no fabric to wait for.
        return verdict("error" if len(seen) > 1 else "warning", f"{found}: CUDA fails with error 802", fix)
    if len(seen) < 2:
        return verdict("ok", "fewer than two NVIDIA GPUs are visible: none is needed")
    if not pairs or all(pair.nvlink is None and pair.obstacle is None for pair in pairs):
        return verdict("unknown", "the driver does not tell (nvidia-smi topo -m may)")
    shown = f"{len(linked)} of {plural(len(pairs), 'pair')} linked by NVLink"
    details = tuple(
        f"GPU {pair.first} and {pair.second}: no peer access, {pair.obstacle}"
        + (f" ({pair.path})" if pair.path else "")
        for pair in blocked
    )
    if blocked:
        fix = "disable_custom_all_reduce=true; peer access comes with ACS and the IOMMU off (nvidia-smi topo -p2p r)"
        found = f"{shown}; {len(blocked)} without peer access: they exchange data through host memory"
        return verdict("warning", found, fix, details)
    paths = Counter(pair.path for pair in pairs if not pair.nvlink and pair.path)
    ways = tuple(f"{plural(count, 'pair')} {path}" for path, count in paths.items())
    if len(linked) < len(pairs) and len(seen) > 2:
        found = f"{shown}: beyond two GPUs SGLang's own all-reduce needs it between all, NCCL's is used"
        return verdict("warning", found, "disable_custom_all_reduce=true says so, or tp_size=2", ways)
    return verdict("ok", f"{shown}, the rest by PCIe" if len(linked) < len(pairs) else shown, details=ways)


@check("DOC006", "CUDA_VISIBLE_DEVICES")
def check_visible(world: World) -> Verdict:
    """
    What: what CUDA_VISIBLE_DEVICES selects of the GPUs here, by CUDA's own rules.
    Why: an entry that names nothing hides itself and all after it, one named twice hides everything. With tp_size
        above 1 SGLang 0.5.2 reads the entries as numbers and fails on a UUID.
    Source: CUDA's programming guide, environment variables; SGLang 0.5.2, custom_all_reduce.py:127-129.
    Example: CUDA_VISIBLE_DEVICES=0,9 on 8 GPUs -> warning, one GPU is visible
    """
    value = world.env.get("CUDA_VISIBLE_DEVICES")
    total = len(world.nvidia.gpus)
    everything = f"export CUDA_VISIBLE_DEVICES={','.join(str(place) for place in range(total))}"
    values = {"value": value, "count": total, "visible": len(world.visible)}
    verdict = partial(Verdict, values=values)
    mixed = len({gpu.name for gpu in world.nvidia.gpus}) > 1 and world.env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    if value is None:
        return verdict("ok", "not set: every GPU is visible" if total else "not set, and there is no NVIDIA GPU")
    shown = f"CUDA_VISIBLE_DEVICES={value or chr(39) * 2}"
    if not total:
        return verdict("ok", f"{shown}, but there is no NVIDIA GPU to select")
    seen = world.seen
    if not seen.devices:
        return verdict("error", f"{shown}: {seen.note or 'no GPU is visible'}", everything)
    chosen = several([gpu.number for gpu in world.visible])
    if seen.note:
        return verdict("warning", f"{shown}: {seen.note}; visible: {chosen}", everything)
    if len(seen.devices) > 1 and not all(entry.strip().isdigit() for entry in value.split(",")):
        by_number = f"export CUDA_VISIBLE_DEVICES={','.join(str(gpu.number) for gpu in world.visible)}"
        found = f"{shown}: with tp_size above 1 SGLang 0.5.2 reads numbers only and fails on a UUID"
        return verdict("warning", found, by_number)
    if mixed:
        found = f"{shown} on GPUs of several kinds: CUDA counts the fastest first"
        return verdict("warning", found, "export CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return verdict("ok", f"{shown}: {chosen}")
