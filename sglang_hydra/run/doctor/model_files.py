"""Looks for a model on this machine, and asks the hub once if it is not here and access is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from sglang_hydra.facts.hub import OWN, Access, cached_folder, is_remote_url, read_config
from sglang_hydra.facts.weights import weights_bytes
from sglang_hydra.run.doctor.machine_state import HubAnswer, ModelFiles
from sglang_hydra.text.budget import read_json
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.file_text import open_plain, read_text

_HUB_TIMEOUT_S = 5.0
_INDEX = "model.safetensors.index.json"
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
# A pointer is three short lines; no weight file is as small.
_POINTER_BYTES = 1024
_POINTER_MARK = b"version https://git-lfs"
_TOKENIZER = re.compile(r"(?:tokenizer|tiktoken)\.model|(?:tokenizer|tokenizer_config|vocab|tekken)\.json")

Ask = Callable[[str, Mapping[str, str]], HubAnswer]


def look_for_model(
    model_path: str,
    env: Mapping[str, str],
    download_dir: str | None = None,
    ask: Ask | None = None,
    revision: str | None = None,
) -> ModelFiles:
    """Finds the local files of ``model_path`` (a folder, a GGUF file, a hub id or a remote URL).

    Searches a hub id, in that ``revision``, in ``download_dir`` and in the Hugging Face cache. Asks the hub (``ask``)
    only when the weights are in neither."""
    if is_remote_url(model_path):
        return ModelFiles("remote")
    path = os.path.expanduser(model_path)
    if os.path.isfile(path):
        unreadable = () if os.access(path, os.R_OK) else (path,)
        return ModelFiles("file", path, weight_bytes=os.path.getsize(path), unreadable=unreadable)
    if os.path.isdir(path):
        return look_in_folder(path)
    if path.startswith((".", "/", "~")) or path.count("/") > 1:
        return ModelFiles("missing")
    token = token_place(env)
    places = ([{**env, "HF_HUB_CACHE": os.path.expanduser(download_dir)}] if download_dir else []) + [dict(env)]
    found = [look_in_folder(folder, "cached") for place in places if (folder := cached_folder(path, revision, place))]
    best = next((files for files in found if files.complete), None)
    if best is None:
        answer = (ask or ask_hub)(path, env)
        if not found:
            return ModelFiles("hub", weight_bytes=answer.weight_bytes, token=token, hub=answer)
        best = found[0]._replace(hub=answer, weight_bytes=found[0].weight_bytes or answer.weight_bytes)
    # With a download_dir the weights go there, and the other files stay in the cache.
    if any(files.config_problem is None for files in found):
        best = best._replace(config_problem=None, tokenizer=any(files.tokenizer for files in found))
    return best._replace(token=token)


def look_in_folder(folder: str, kind: str = "folder") -> ModelFiles:
    """Reads a checkpoint's folder: config.json, tokenizer and weights, and which of them are unusable."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as failure:
        return ModelFiles(kind, folder, config_problem=failure.strerror, unreadable=(folder,))
    problem = None
    if "config.json" not in names:
        problem = "it has no config.json"
    elif os.access(os.path.join(folder, "config.json"), os.R_OK):
        try:
            read_config(os.path.join(folder, "config.json"))
        except ConfigError as refused:
            problem = refused.findings[0].message
    weights = [name for name in names if name.endswith(_WEIGHTS) and name != "training_args.bin"]
    listed = _indexed(os.path.join(folder, _INDEX)) if _INDEX in names else weights
    there = [name for name in listed if os.path.exists(os.path.join(folder, name))]
    looked_at = [name for name in dict.fromkeys(("config.json", *there)) if name in names]
    return ModelFiles(
        kind,
        folder,
        config_problem=problem,
        tokenizer=any(map(_TOKENIZER.fullmatch, names)),
        weight_bytes=weights_bytes(folder),
        missing=tuple(name for name in listed if name not in there) or (() if listed else ("the weights",)),
        pointers=tuple(name for name in there if _is_pointer(os.path.join(folder, name))),
        unreadable=tuple(name for name in looked_at if not os.access(os.path.join(folder, name), os.R_OK)),
    )


def token_place(env: Mapping[str, str]) -> str | None:
    """Returns the place of a Hugging Face token: the variable's name or the file's path. Does not read the token."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if env.get(name, "").strip():
            return name
    home = env.get("HF_HOME") or os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    path = os.path.expandvars(os.path.expanduser(env.get("HF_TOKEN_PATH") or os.path.join(home, "token")))
    try:
        return path if os.path.getsize(path) else None
    except OSError:
        return None


def ask_hub(model_path: str, env: Mapping[str, str], access: Access = OWN) -> HubAnswer:
    """Asks the hub whether this user may read the model, and how large its weights are: one short attempt, no retry.

    Does not ask when HF_HUB_OFFLINE is set, ModelScope is used, huggingface_hub is missing or ``access`` forbids it.
    Reports the kind of the answer, never its text, because an answer may repeat the request."""
    if variable := offline_variable(env):
        return HubAnswer("not asked", f"{variable} is set")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        return HubAnswer("not asked", "huggingface_hub is not installed here (sglang-hydra[hf] brings it)")
    if not access.fetch:
        return HubAnswer("not asked", access.why)
    token = (env.get("HF_TOKEN") or None) if access.token else False
    try:
        url = huggingface_hub.hf_hub_url(model_path, "config.json")
        huggingface_hub.get_hf_file_metadata(url, timeout=_HUB_TIMEOUT_S, token=token)
        info = huggingface_hub.HfApi().model_info(model_path, timeout=_HUB_TIMEOUT_S, files_metadata=True, token=token)
    except errors.GatedRepoError:
        return HubAnswer("gated", "its owner grants access, and this user has none")
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        return HubAnswer("absent", "the hub has no such model, or it is private")
    except errors.EntryNotFoundError:
        return HubAnswer("absent", "it has no config.json")
    except Exception as failure:  # noqa: BLE001 - every HTTP library underneath has its own
        return HubAnswer("silent", f"no answer within {_HUB_TIMEOUT_S:g} s ({type(failure).__name__})")
    return HubAnswer("open", weight_bytes=_weights_on_hub(info.siblings or ()))


def offline_variable(env: Mapping[str, str]) -> str | None:
    """Returns the variable that forbids asking the hub, or None."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "SGLANG_USE_MODELSCOPE"):
        if env.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return name
    return None


def _weights_on_hub(siblings: Sequence[object]) -> int | None:
    sizes = {str(getattr(item, "rfilename", "")): getattr(item, "size", None) or 0 for item in siblings}
    for suffix in _WEIGHTS:
        # Folders contain copies in other formats; SGLang loads the top one.
        total = sum(size for name, size in sizes.items() if name.endswith(suffix) and "/" not in name)
        if total:
            return total
    return None


def _indexed(path: str) -> list[str]:
    """Returns the weight files that an index lists; an empty list for an unreadable index."""
    try:
        return sorted({str(name) for name in read_json(read_text(path), "record")["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _is_pointer(path: str) -> bool:
    try:
        if os.path.getsize(path) > _POINTER_BYTES:
            return False
        with open_plain(path) as file:
            return file.read(len(_POINTER_MARK)) == _POINTER_MARK
    except OSError:
        return False
