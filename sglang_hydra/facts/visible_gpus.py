"""Finds which of a machine's NVIDIA GPUs CUDA shows to a process, by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Slice(NamedTuple):
    """A MIG slice of a GPU; its memory in MiB, None if unknown."""

    uuid: str
    memory_mib: float | None = None


class Device(NamedTuple):
    """One accelerator as the vendor's library or tool describes it; None marks unknown values.

    ``memory_mib`` is the total in MiB, ``capability`` CUDA's (major, minor) or the gfx number's. ``mig`` says that the
    GPU is split; ``slices`` lists its existing slices."""

    name: str | None
    uuid: str | None = None
    memory_mib: float | None = None
    capability: tuple[int, int] | None = None
    mig: bool = False
    slices: tuple[Slice, ...] = ()


class Visible(NamedTuple):
    """The GPUs that CUDA would number 0, 1, ..., with the MIG slice if it is one. ``note`` is for the user."""

    devices: tuple[Device, ...]
    slice: Slice | None = None
    note: str | None = None


def visible_devices(value: str | None, devices: Sequence[Device]) -> Visible:
    """Returns the GPUs among ``devices`` (in PCI bus order) that a process with CUDA_VISIBLE_DEVICES=``value`` sees.

    None means an unset variable: everything is visible. Indices and unique prefixes of UUIDs count in their order up to
    the first invalid entry, as in CUDA; an entry named twice hides everything. CUDA shows only one MIG slice to a
    process, and no other GPU beside it."""
    if value is None:
        chosen = [(device, first_slice) for device in devices for first_slice in _whole(device)]
        return _one_slice_at_most(chosen, None)
    entries = [entry.strip() for entry in value.split(",")]
    if entries == [""]:
        return Visible((), None, "it is empty, which hides every GPU")
    places: list[tuple[int, int]] = []
    note = None
    for entry in entries:
        place = _find(entry, devices)
        if place is None:
            note = f"{entry!r} names no GPU of this machine: it and what follows it are ignored"
            break
        places.append(place)
    if len(set(places)) < len(places):
        return Visible((), None, "it names a GPU twice, which hides every GPU")
    chosen = [
        (devices[index], devices[index].slices[part] if devices[index].slices else None) for index, part in places
    ]
    return _one_slice_at_most(chosen, note)


def _whole(device: Device) -> list[Slice | None]:
    """Returns what CUDA offers of a GPU not named by slice: the GPU itself, or its first slice if it is split."""
    if not device.mig:
        return [None]
    return list(device.slices[:1])


def _find(entry: str, devices: Sequence[Device]) -> tuple[int, int] | None:
    """Returns the place (GPU, slice) of one entry; None if it matches nothing or more than one."""
    upper = entry.upper()
    if upper.startswith("MIG-"):
        found = [
            (index, part)
            for index, device in enumerate(devices)
            for part, piece in enumerate(device.slices)
            if piece.uuid.upper().startswith(upper)
        ]
        return found[0] if len(found) == 1 else None
    if upper.startswith("GPU-"):
        indices = [index for index, device in enumerate(devices) if (device.uuid or "").upper().startswith(upper)]
    else:
        indices = [int(entry)] if entry.isascii() and entry.isdigit() and int(entry) < len(devices) else []
    if len(indices) != 1 or not _whole(devices[indices[0]]):
        return None
    return indices[0], 0


def _one_slice_at_most(chosen: list[tuple[Device, Slice | None]], note: str | None) -> Visible:
    for device, piece in chosen:
        if piece is not None:
            return Visible((device,), piece, note)
    return Visible(tuple(device for device, _ in chosen), None, note)
