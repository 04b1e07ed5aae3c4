"""Extracts from a plan what every artifact needs: flags, variables, GPUs and paths, in no format's syntax."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from sglang_hydra.arguments.secrets import is_secret, shown_by_processes
from sglang_hydra.convert.export import variables
from sglang_hydra.convert.export.images import Image, image_of, missing_image
from sglang_hydra.convert.export.quoting import Variable, Word, typed
from sglang_hydra.convert.made_for import TITLE, made_for
from sglang_hydra.planning.passing.passed import KEY_VARIABLE, environment_of, flags_of, intent_of
from sglang_hydra.planning.passing.slurm_options import gpus_per_node
from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import Json, JsonDict, JsonObject
from sglang_hydra.text.version import VERSION

RANK, HEAD = Variable("NODE_RANK"), Variable("HEAD_ADDRESS")
HEAD_PORT = 20000
"""The rendezvous port without ``dist_init_addr`` and ``launch.head_port``: below the ports of outgoing connections and
below SGLang's."""

CACHE = "/cache/huggingface"
"""A container's download folder, and its HF_HOME: outside any home folder, so that any user may run it."""
CACHE_VARIABLE = "HF_HOME"

_ANYWHERE = {4: "0.0.0.0", 6: "::"}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Arguments that may name files to read (or a hub id, a built-in template, "trivial"), and folders to write to.
_READ = (
    *("model_path", "tokenizer_path", "speculative_draft_model_path", "speculative_token_map", "lora_paths"),
    *("chat_template", "completion_template", "quantization_param_path", "init_expert_location"),
)
_WRITTEN = ("download_dir", "file_storage_path", "crash_dump_folder", "debug_tensor_dump_output_folder")
_LONGEST_NAME = 40


class Artifact(NamedTuple):
    """The result of an export: its text, its findings, and whether it is executable."""

    text: str
    findings: tuple[Finding, ...] = ()
    executable: bool = False


class Mount(NamedTuple):
    """A host path that a container sees under the same name."""

    path: str
    writable: bool = False


@dataclass(frozen=True)
class Job:
    """A plan to run elsewhere. ``overrides`` are its typed words, without secrets."""

    plan: Plan
    overrides: Sequence[str]

    @cached_property
    def name(self) -> str:
        """Returns a name after the model, of lowercase letters, digits and dashes."""
        served = str(self.plan.values["served_model_name"] or self.plan.values["model_path"])
        plain = re.sub(r"[^a-z0-9]+", "-", served.rstrip("/").rpartition("/")[2].lower()).strip("-")
        return f"sglang-{plain[:_LONGEST_NAME].strip('-')}".strip("-")

    @property
    def nodes(self) -> int:
        return int(self.plan.values["nnodes"])

    @property
    def port(self) -> int:
        return int(self.plan.values["port"])

    @property
    def fabric(self) -> str | None:
        chosen: str | None = self.plan.nodes.fabric
        return chosen

    @cached_property
    def gpus(self) -> int:
        """Returns the GPUs that each node needs, 0 for the CPU engine."""
        return gpus_per_node(self.plan)

    @property
    def has_key(self) -> bool:
        return variables.has_key(self.plan)

    @property
    def is_public(self) -> bool:
        """Returns whether the plan's server listens beyond the loopback address."""
        return is_public(self.plan.values["host"])

    @cached_property
    def image(self) -> Image | None:
        return image_of(self.plan)

    def header(self, format: str, *more: str) -> list[str]:
        """Returns the first lines of an artifact: its server, its source, and the command that makes it again."""
        plan = self.plan
        hardware = plan.gpu.name if not self.gpus else f"{self.gpus} x {plan.gpu.name}"
        each = f"{self.nodes} nodes, each with {hardware}" if self.nodes > 1 else hardware
        remade = " ".join(map(typed, ["sglang-hydra", "export", format, *self.overrides]))
        warned = [
            f"{finding.level} {finding.id}: {finding.message}" for finding in plan.findings if finding.level != "info"
        ]
        return [
            f"SGLang {plan.engine.version} serving {plan.values['model_path']} on {each}: plan {plan.server_id}",
            f"Written by sglang-hydra {VERSION}; once more: {remade}",
            f"{TITLE}: {made_for(plan)}",
            *warned,
            *more,
        ]

    def environment(self, *, interface: str | None = None) -> dict[str, str]:
        """Returns the variables to set, with values. The plan's fabric variables override those of ``fabric``."""
        return environment_of(self.plan, interface=interface)

    @property
    def cache(self) -> str:
        """Returns a container's download folder: the plan's own HF_HOME, else ``CACHE``."""
        own = self.plan.environment.get(CACHE_VARIABLE, "")
        return own if own.startswith("/") and ":" not in own else CACHE

    def contained_environment(self, *, interface: str | None = None) -> dict[str, str]:
        """Returns the variables for a container, with the cache in its volume."""
        return {**self.environment(interface=interface), CACHE_VARIABLE: self.cache}

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Returns the names of the secret variables to pass on, the API key's first."""
        own = sorted(name for name, value in self.plan.environment.items() if is_secret(name, value))
        key = [KEY_VARIABLE] * self.has_key
        token = [variables.HUB_TOKEN] * (variables.HUB_TOKEN not in own)
        return (*key, *token, *own)

    def start(self, python: Sequence[Word], entry: Sequence[str]) -> list[Word]:
        """Returns the words before the server's flags: ``entry``, or ``python`` with the program that adds the key."""
        return [*python, "-c", variables.KEY_PROGRAM] if self.has_key else list(entry)

    def flags(self, *, contained: bool, meeting: Word | None = None, rank: Word | None = RANK) -> list[Word]:
        """Returns SGLang's flags. ``contained``: for a container, where the server listens on every address and paths
        are absolute. For several nodes, ``rank`` is this node's number (None: the caller adds it) and ``meeting`` is
        the address and port of node 0; its default is the plan's, or HEAD without one."""
        intent = dict(self.intent)
        if contained:
            intent |= self._contained(intent)
        if self.nodes == 1:
            return list(flags_of(self.plan, intent))
        address = intent.pop("dist_init_addr", None)
        intent.pop("node_rank", None)
        if meeting is None:
            meeting = str(address) if address is not None else Variable(HEAD.name, f":{self.head_port or HEAD_PORT}")
        own: list[Word] = [] if rank is None else ["--node-rank", rank]
        return [*flags_of(self.plan, intent), "--dist-init-addr", meeting, *own]

    @property
    def head_port(self) -> str | None:
        """Returns the port of ``dist_init_addr``, else ``launch.head_port``, or None."""
        address, port = self.intent.get("dist_init_addr"), self.plan.nodes.launch.head_port
        return str(address).rpartition(":")[2] if address is not None else str(port) if port else None

    @property
    def needs_head(self) -> bool:
        """Returns whether the artifact needs the first node's address at run time."""
        return self.nodes > 1 and self.intent.get("dist_init_addr") is None

    @cached_property
    def intent(self) -> JsonObject:
        """Returns SGLang's arguments without the key: the plan's intent and the seed."""
        return intent_of(self.plan)

    @cached_property
    def _located(self) -> tuple[JsonDict, dict[str, bool]]:
        """Returns the arguments that name paths, and the host paths: whether each is written to."""
        changed: JsonDict = {}
        found: dict[str, bool] = {}

        def located(text: str, is_written: bool) -> str:
            path = _local(text, certain=is_written)
            if path is not None:
                found[path] = found.get(path, False) or is_written
            return path or text

        for name in (*_READ, *_WRITTEN):
            if self.intent.get(name) is not None:
                changed[name] = _with_paths(self.intent[name], partial(located, is_written=name in _WRITTEN))
        return changed, found

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Returns the host paths that a container needs, each once, parents first."""
        return tuple(Mount(path, is_written) for path, is_written in sorted(self._located[1].items()))

    @property
    def is_local_model(self) -> bool:
        return _local(self.intent["model_path"]) is not None

    def _contained(self, intent: JsonObject) -> dict[str, object]:
        host = _ANYWHERE[6 if ":" in str(self.plan.values["host"]) else 4]
        changed: JsonDict = {"host": host, **self._located[0]}
        if changed["model_path"] != intent["model_path"] and intent.get("served_model_name") is None:
            changed["served_model_name"] = self.plan.values["served_model_name"]
        return changed

    def path_findings(self) -> list[Finding]:
        """Returns a warning about relative paths outside a container: they exist only from one folder."""
        named = ((name, self.intent.get(name)) for name in (*_READ, *_WRITTEN))
        texts = {name: value for name, value in named if isinstance(value, str) and not os.path.isabs(value)}
        relative = [name for name, value in texts.items() if _local(value, certain=name in _WRITTEN) is not None]
        if not relative:
            return []
        message = f"{relative[0]}={self.intent[relative[0]]} is relative: it is found from {os.getcwd()} only"
        hint = f"{relative[0]}={os.path.abspath(str(self.intent[relative[0]]))}"
        return [Finding("warning", "EXP019", message, tuple(relative), hint)]

    def container_findings(self, *, alone: bool = True) -> list[Finding]:
        """Returns the findings about any container: an unknown image and, of a server ``alone``, without a router, its
        listening address."""
        found = []
        if alone and not self.is_public and self.intent.get("host") is not None:
            message = f"host={self.intent['host']}: in a container the server listens on every address of the container"
            found.append(Finding("info", "EXP006", message, ("host",)))
        if self.image is None:
            found.append(missing_image(self.plan))
        return found


def is_public(host: object) -> bool:
    """Returns whether other machines can reach a server that listens on ``host``."""
    return host not in _LOOPBACK


def job_of(plan: Plan, overrides: Sequence[str]) -> Job:
    """Returns the job of a plan. Raises ConfigError (EXP004) for text that is not valid UTF-8."""
    job = Job(plan, variables.without_secrets(overrides, plan))
    if found := shown_by_processes(job.intent, "error"):
        raise ConfigError(*found)
    texts = {
        **{name: str(value) for name, value in job.intent.items()},
        **{f"engine.env.{name}": value for name, value in plan.environment.items()},
    }
    for name, text in texts.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            message = f"{name} holds bytes that are no UTF-8 text, which no script or manifest can hold"
            raise ConfigError(Finding("error", "EXP004", message, (name,), "rename the file")) from None
    return job


def _with_paths(value: Json, change: Callable[[str], str]) -> Json:
    """Applies ``change`` to the path in an argument, or to those of adapters: NAME=PATH, PATH, objects or a mapping."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        keys = ["lora_path"] if "lora_path" in value else list(value)
        return {**value, **{key: change(str(value[key])) for key in keys}}
    pairs = [item.partition("=") if isinstance(item, str) and "=" in item else ("", "", item) for item in value]
    return [f"{name}={change(path)}" if equals else _with_paths(path, change) for name, equals, path in pairs]


def _local(text: str, *, certain: bool = False) -> str | None:
    """Returns the absolute path that ``text`` names here; None for a hub id, a URL or another name."""
    if "://" in text or not text:
        return None
    if certain or text.startswith(("/", "./", "../", "~")) or text in (".", "..") or os.path.exists(text):
        return os.path.abspath(os.path.expanduser(text))
    return None
