"""Finds the servers that a Kubernetes manifest or a Compose file starts: containers, at any depth."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sglang_hydra.convert.importing.expansion import fields_of
from sglang_hydra.convert.importing.launches import (
    CLOSE,
    MODEL_FLAGS,
    OPEN,
    Launch,
    bare_flags,
    fault_of,
    has_launch_command,
    is_one_of,
    of_every_node,
    opened,
    split_launch,
)
from sglang_hydra.convert.importing.script import Script
from sglang_hydra.convert.importing.syntax import commands_of
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject, value_at
from sglang_hydra.text.words import is_digits

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
# Skips parts that are already marked open.
_COMPOSE = re.compile(f"(?<!{OPEN})" + r"\$(?:\$|\{([A-Za-z_]\w*)(?:(:?[-?])([^{}]*))?\}|([A-Za-z_]\w*))")
_OPENED_SPACE, _KEPT_SPACE = re.compile(rf"[ ](?=[^{OPEN}{CLOSE}]*{CLOSE})"), "\ue002"
_GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "huawei.com/Ascend910")
_PLACED_BY = ("nodeSelector", "affinity", "labels", "annotations", "tolerations", "runtimeClassName")
_LONGEST = 1 << 14
_HUB, _MOUNTED = "hf://", "/mnt/models"
"""KServe's prefix for models on the hub, and its mount point."""
_WORKERS = ("workerTemplate", "worker")


@dataclass
class _Pod:
    """The context of a container in its manifest: the names above it, texts that name the machine, the model on the hub
    that KServe mounts, and, for a container without an image (a role on a template), the object's one SGLang image."""

    kind: str
    names: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    nodes: int | None = None
    worker: bool = False
    image: str = ""
    model: str | None = None


def launches_of_kubernetes(document: JsonObject, place: str) -> list[Launch]:
    """Returns every server of one object. Workers of a LeaderWorkerSet are further nodes of the leader's server;
    workers with other SGLang flags or variables stay separate."""
    images = {text for text in _texts(document, key="image") if "sglang" in text.lower()}
    pod = _Pod(str(document.get("kind", "")), image=next(iter(images)) if len(images) == 1 else "")
    found = list(_walk(document, pod, place, set()))
    leaders = [launch for launch, pod in found if not pod.worker]
    known = [_of_every_node(launch) for launch in leaders]
    apart = [launch for launch, pod in found if pod.worker and _of_every_node(launch) not in known]
    return [*leaders, *(replace(launch, name=f"{launch.name}-worker") if leaders else launch for launch in apart)]


def _of_every_node(launch: Launch) -> tuple[list[str], Mapping[str, str]]:
    """Returns the sorted words that are the same on each node of a server, and SGLang's variables. Ignores host and
    port, because only the leader listens."""
    variables = {name: value for name, value in launch.environment.items() if name.startswith(("SGLANG_", "SGL_"))}
    return sorted(of_every_node(launch.words, ("--host", "--port"))), variables


def _walk(node: Json, pod: _Pod, place: str, seen: set[int]) -> Iterator[tuple[Launch, _Pod]]:
    """Finds containers at any depth. ``seen`` are visited nodes, because YAML's aliases may form cycles."""
    if not isinstance(node, (list, Mapping)) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, list):
        for item in node:
            yield from _walk(item, pod, place, seen)
        return
    pod = _below(node, pod)
    if "modelFormat" in node and "sglang" in str(node.get("runtime")).lower():
        # An InferenceService of KServe: its runtime has the image and the path of the model.
        args = words_of(node.get("args"))
        named = any(word.partition("=")[0] in MODEL_FLAGS for word in args)
        node = {**node, "image": "sglang", "args": args if named else ["--model-path", pod.model or _MOUNTED, *args]}
    if "command" in node or "args" in node:
        for launch in _of_container(node, pod, place):
            yield launch, pod
    for key, value in node.items():
        if key not in ("command", "args", "env"):
            yield from _walk(value, replace(pod, worker=pod.worker or key in _WORKERS), place, seen)


def _below(node: JsonObject, pod: _Pod) -> _Pod:
    name, uri = value_at(node, "metadata.name"), str(node.get("storageUri") or value_at(node, "model.uri"))
    above = [each for each in (node, node.get("metadata")) if isinstance(each, Mapping)]
    mentions = [text for each in above for key in _PLACED_BY if key in each for text in _texts(each[key])]
    size = node.get("size") if "leaderTemplate" in node or "workerTemplate" in node else None
    size = value_at(node, "multinode.nodeCount") or size  # the first: a service of Dynamo
    return replace(
        pod,
        names=(*pod.names, name) if isinstance(name, str) and name else pod.names,
        mentions=(*pod.mentions, *mentions),
        nodes=size if isinstance(size, int) and not isinstance(size, bool) else pod.nodes,
        model=uri[len(_HUB) :].partition(":")[0] if uri.startswith(_HUB) else pod.model,
    )


def _of_container(node: JsonObject, pod: _Pod, place: str) -> Iterator[Launch]:
    environment, unknown = _environment(node.get("env"))
    written = (*words_of(node.get("command")), *words_of(node.get("args")))
    words = [_with_references(word, environment, unknown) for word in written]
    # Variables used only inside the words have served their purpose.
    used = {key for key in environment if any(f"$({key})" in word for word in written)}
    own = {key: value for key, value in environment.items() if key not in used or is_one_of("variables", key)}
    image = node.get("image")
    if isinstance(image, Mapping):  # a chart's values
        image = ":".join(str(image[key]) for key in ("repository", "tag") if key in image)
    image = image if isinstance(image, str) else pod.image
    name = next(filter(None, (*reversed(pod.names), str(node.get("name") or ""))), "")
    where = f"{place}, {pod.kind or 'container'} {name}".rstrip()
    mentions = (image, *pod.mentions)
    count = _gpus(node.get("resources"))
    fault = _no_texts(node) if pod.kind else None
    for launch in started(words, own, where, image, has_program=bool(node.get("command"))):
        yield replace(
            launch,
            fault=launch.fault or fault,
            kind="kubernetes",
            name=name,
            mentions=(*launch.mentions, *mentions),
            gpu_count=count,
            nodes=pod.nodes,
            model=pod.model,
            variables={**environment, **launch.variables},
        )


def _no_texts(node: JsonObject) -> str | None:
    """Returns why Kubernetes refuses the words of a container, or None: each item has to be a text."""
    items = [(key, item) for key in ("command", "args") if isinstance(node.get(key), list) for item in node[key]]
    wrong = next(((key, scalar(item)) for key, item in items if not isinstance(item, str)), None)
    return f'{wrong[0]} has the item {wrong[1]}, which is no text: "{wrong[1]}" is one' if wrong else None


def started(
    words: Sequence[str], environment: Mapping[str, str], place: str, image: str, has_program: bool = True
) -> Iterator[Launch]:
    """Finds the servers in a container's words: SGLang itself, a shell that starts it, or flags for an SGLang image.
    Without ``has_program`` the words go to the image's entry point."""
    fault = fault_of(words, image, has_program)
    split = split_launch(words)
    if split is None and "sglang" in image.lower():
        flags = bare_flags(words) or bare_flags(words[1:])  # the image's entry point is the program
        split = ([], flags) if flags is not None else None
    if split is not None:
        mentions = tuple(split[0])
        yield Launch("container", place, words=tuple(split[1]), environment=environment, mentions=mentions, fault=fault)
        return
    for word in words:
        if has_launch_command(word):
            for launch in Script(place, lambda text, where: []).launches(word, environment):
                yield replace(launch, place=place, fault=fault)


def launches_of_compose(document: JsonObject, place: str) -> list[Launch]:
    """Returns the servers of all services."""
    found: list[Launch] = []
    services = document.get("services")
    for name, service in services.items() if isinstance(services, Mapping) else ():
        if not isinstance(service, Mapping):
            continue
        environment = _compose_environment(service.get("environment"))
        words = [word for key in ("entrypoint", "command") for word in _compose_words(service.get(key))]
        image = _interpolated(str(service.get("image") or ""))
        for launch in started(words, environment, f"{place}, service {name}", image, bool(service.get("entrypoint"))):
            mentions = (*launch.mentions, image, *_texts(service.get("deploy")))
            count, is_mapping = _compose_gpus(service), isinstance(service.get("command"), Mapping)
            launch = replace(launch, kind="compose", name=str(name), mentions=mentions, gpu_count=count)
            fault = "command is a mapping, and has to be a list of texts" if is_mapping else launch.fault
            unreached = _unreached(service, launch.words)
            found.append(replace(launch, fault=fault, remarks=(*launch.remarks, *unreached)))
    return found


def _unreached(service: JsonObject, flags: Sequence[str]) -> Iterator[str]:
    """Yields why nobody outside a service reaches its server: none of its published ports is the server's, or the
    server listens on the loopback address of its container. Nothing where a port or the host is a variable."""
    ports = [_interpolated(scalar(_target(item))) for item in service.get("ports") or ()]
    targets = [port.rpartition(":")[2].partition("/")[0] for port in ports]
    if not targets or "network_mode" in service or "--config" in flags or not all(map(is_digits, targets)):
        return
    words = [part for flag in flags for part in flag.split("=", 1)]
    port, host = (
        next((value for flag, value in pairwise(words) if flag == name), default)
        for name, default in (("--port", "30000"), ("--host", "127.0.0.1"))
    )
    if is_digits(port) and port not in targets:
        yield f"ports publishes {', '.join(targets)} of the container, and the server listens on {port}"
    if host in ("127.0.0.1", "localhost"):
        yield f"the server listens on {host} of its container, where no published port leads: --host 0.0.0.0"


def _target(port: Json) -> Json:
    return port.get("target") if isinstance(port, Mapping) else port


def _compose_words(value: Json) -> list[str]:
    """Returns the words of ``entrypoint`` or ``command``: replaces variables, then splits a text as a shell does. No
    shell runs it, so a line end separates words like a space (the Compose specification, command)."""
    if not isinstance(value, str):
        return [_interpolated(word) for word in words_of(value)]
    text = _OPENED_SPACE.sub(_KEPT_SPACE, _interpolated(value).replace("\\\n", " "))
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that is not closed
        words = text.split()
    return [word.replace(_KEPT_SPACE, " ") for word in words]


def words_of(value: Json) -> list[str]:
    """Returns a list of words; splits a string as the shell does."""
    if isinstance(value, str):
        if "\n" in value.strip() or has_launch_command(value):
            commands = commands_of(value)
            if len(commands) != 1:
                return [value]
            return [item for word in commands[0].words for item in fields_of(word, _AsWritten())]
        return value.split()
    if isinstance(value, list):
        return [scalar(item) for item in value if isinstance(item, (str, int, float))]
    return []


class _AsWritten(JsonDict):
    """Keeps variables as written, to replace them later."""

    def get(self, name: Json, default: Json = None) -> Json:
        return f"${{{name}}}"


def scalar(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _environment(items: Json) -> tuple[dict[str, str], set[str]]:
    """Returns the variables of a container, and the names of those with a value elsewhere (a Secret, a field of the
    pod)."""
    known: dict[str, str] = {}
    unknown: set[str] = set()
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("name"), str):
            if item.get("value") is not None:
                known[item["name"]] = _with_references(scalar(item["value"]), known, unknown)
            else:
                unknown.add(item["name"])
    return known, unknown


def _with_references(word: str, known: Mapping[str, str], unknown: set[str]) -> str:
    """Replaces ``$(NAME)`` as the kubelet does; a name without a value is known only in the cluster."""

    def put(found: re.Match[str]) -> str:
        if found[1] is None:
            return "$"
        if len(known.get(found[1], "")) > _LONGEST:
            return opened(found[0])
        return known.get(found[1], opened(f"$({found[1]})"))

    # In a shell's text $(...) is a command, unless it names a variable of the container.
    if has_launch_command(word) and " " in word:
        return _REFERENCE.sub(lambda found: put(found) if found[1] in {*known, *unknown} else found[0], word)
    return _REFERENCE.sub(put, word)


def _compose_environment(value: Json) -> dict[str, str]:
    words = [str(word).partition("=")[::2] for word in value] if isinstance(value, list) else []
    pairs = value.items() if isinstance(value, Mapping) else words
    return {str(name): _interpolated(scalar(item)) for name, item in pairs if item not in (None, "")}


def _interpolated(text: str) -> str:
    """Replaces ``${NAME:-default}`` as Compose does; a name without a default is known only at run time."""

    def put(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return found[3] if found[2] in (":-", "-") else opened(found[0])

    for _ in range(3):  # a default may hold another variable
        text, before = _COMPOSE.sub(put, text), text
        if text == before or "$$" in before:
            break
    return text


def _compose_gpus(service: JsonObject) -> int | None:
    devices = value_at(service, "deploy.resources.reservations.devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(numbers := value_at(device, "device_ids"), list):
            return len(numbers)
        if isinstance(count := value_at(device, "count"), int):
            return int(count)
    return None


def _gpus(resources: Json) -> int | None:
    parts = [part for key in ("limits", "requests") if isinstance(part := value_at(resources, key), Mapping)]
    counts = (str(part.get(name, "")) for part in parts for name in _GPU_RESOURCES)
    return next((int(count) for count in counts if is_digits(count)), None)


def _texts(node: Json, seen: set[int] | None = None, key: str | None = None) -> Iterator[str]:
    """Yields the texts below a node; with ``key`` only the values of that key."""
    seen = set() if seen is None else seen
    if isinstance(node, str) and key is None:
        yield node
    elif isinstance(node, (list, Mapping)) and id(node) not in seen:
        seen.add(id(node))
        if key is not None and isinstance(node, Mapping) and isinstance(node.get(key), str):
            yield node[key]
        for item in [part for pair in node.items() for part in pair] if isinstance(node, Mapping) else node:
            yield from _texts(item, seen, key)
