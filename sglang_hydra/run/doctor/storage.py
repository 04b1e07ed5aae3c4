"""Checks disk space for the model's weights, and access to the model."""

from __future__ import annotations

from functools import partial

from sglang_hydra.facts.tiny import tiny_path
from sglang_hydra.run.doctor.examination import Checked, check, gib, listed, size
from sglang_hydra.run.doctor.machine_state import HubAnswer, ModelFiles, World
from sglang_hydra.text.words import plural

# A judgement: when the size is unknown, a disk with less free space is too small for most models.
_LITTLE = 20 << 30


@check("DOC011", "disk for weights")
def check_weights_disk(world: World) -> Checked:
    """
    What: free space where weights are downloaded to (download_dir, else the Hugging Face cache), against the model's.
    Why: Inferred: a download that fills the disk fails only then, and leaves parts behind.
    Source: the file system; the size that the checkpoint's index or the hub states.
    Example: 120 GiB free, 641 GiB to download -> error, download_dir=/another/disk"""
    disk, model = world.weights, world.model
    if disk is None or disk.free_bytes is None:
        return Checked("unknown", "its size cannot be read")
    wanted = model.weight_bytes if model else None
    sizes = {"free_gib": gib(disk.free_bytes), "total_gib": gib(disk.total_bytes), "weights_gib": gib(wanted)}
    verdict = partial(Checked, values={"path": disk.path, **sizes})
    found = f"{size(disk.free_bytes)} free on {disk.path}"
    if model is not None and model.complete:
        return verdict("ok", f"{found}; the weights are here already")
    fix = "download_dir=/another/disk, or export HF_HOME=/another/disk"
    if wanted is not None:
        # A partial download is not subtracted, so this may ask for too much space.
        found, fits = f"{found}, {size(wanted)} to download", wanted <= disk.free_bytes
        return verdict("ok", found) if fits else verdict("error", found, fix)
    if disk.free_bytes < _LITTLE:
        return verdict("warning", f"{found}, which is little for a model's weights", fix)
    return verdict("ok", found)


@check("DOC013", "access to the model")
def check_model(world: World) -> Checked:
    """
    What: whether the model is here whole and readable, or else whether the hub would give it to this user.
    Why: Inferred: a missing shard, a Git LFS pointer in place of weights, or a gated model without a token ends the
        start only after minutes of loading or downloading.
    Source: the checkpoint's own index; the hub, asked once and only where HF_HUB_OFFLINE is not set.
    Example: model-00003-of-00163.safetensors is listed and not there -> error"""
    model, name = world.model, world.request.model_path
    if model is None:
        return Checked("unknown", "no model was named", "doctor model=NAME")
    values = {
        "model_path": name,
        "kind": model.kind,
        "folder": model.folder,
        "weights_gib": gib(model.weight_bytes),
        "missing": len(model.missing),
        "token": model.token,
        "hub": model.hub.state if model.hub else None,
    }
    verdict = partial(Checked, values=values)
    if model.kind == "missing" and name == str(tiny_path()):
        return verdict("ok", f"{name} is made when the server starts")
    if model.kind == "missing":
        fix = "model_path=an existing folder, or a hub id (org/name)"
        return verdict("error", f"{name} is not on this machine", fix)
    if model.kind == "remote":
        return verdict("unknown", f"{name} is read when the server starts")
    obstacle = _local_obstacle(model)
    if obstacle is not None and (model.kind != "cached" or model.unreadable):
        return obstacle._replace(values=values)
    if model.kind == "hub" or obstacle is not None:
        return _from_hub(model, str(name))._replace(values=values)
    place = f"{model.folder} ({size(model.weight_bytes)})"
    if model.kind == "file":
        return verdict("ok", place)
    if not model.tokenizer:
        fix = "tokenizer_path=FOLDER, or skip_tokenizer_init=true"
        return verdict("warning", f"{place} has no tokenizer", fix)
    return verdict("ok", f"{place}, config and tokenizer there")


def _local_obstacle(model: ModelFiles) -> Checked | None:
    """Returns the problem that prevents serving the local files, or None."""
    if model.unreadable:
        fix = f"sudo chmod a+r {model.folder}/{model.unreadable[0]}"
        return Checked("error", f"this user may not read {listed(model.unreadable)}", fix)
    if model.pointers:
        found = f"{plural(len(model.pointers), 'file')} of weights are Git LFS pointers: {listed(model.pointers)}"
        return Checked("error", found, f"git -C {model.folder} lfs pull")
    if model.missing:
        fix = "download it again, or load_format=dummy to try without weights"
        return Checked("error", f"{model.folder} lacks {listed(model.missing)}", fix)
    if model.config_problem:
        return Checked("error", f"{model.folder}: {model.config_problem}", "download its config.json again")
    return None


def _from_hub(model: ModelFiles, name: str) -> Checked:
    token = f"a token is set in {model.token}" if model.token else "no token is set"
    part = f"{model.folder} still lacks {listed(model.missing)}; " if model.missing and model.folder else ""
    answer = model.hub or HubAnswer("not asked")
    why = f" ({answer.why})" if answer.why else ""
    if answer.state == "open":
        amount = f"{size(model.weight_bytes)} to download" if model.weight_bytes else "its size is unknown"
        return Checked("ok", f"{part}the hub has it, {amount}; {token}")
    if answer.state == "gated":
        fix = f"ask for access at https://huggingface.co/{name}, then export HF_TOKEN=..."
        return Checked("error", f"{part}it is gated{why}; {token}", fix)
    if answer.state == "absent":
        private = "" if model.token else "; export HF_TOKEN=... for a private one"
        return Checked("error", f"{part}{answer.why}; {token}", f"model_path=org/name as the hub spells it{private}")
    part = part or "it is not in the local cache; "
    if "OFFLINE" in answer.why:
        fix = f"unset {answer.why.split()[0]}, or download it first: hf download {name}"
        return Checked("error", f"{part}the hub may not be asked{why}", fix)
    if answer.state == "silent":
        fix = f"check the network (HF_ENDPOINT, HTTPS_PROXY), or hf download {name} elsewhere and copy the folder"
        return Checked("warning", f"{part}the hub: {answer.why}", fix)
    return Checked("unknown", f"{part}the hub was not asked{why}; {token}", f"hf download {name}")
