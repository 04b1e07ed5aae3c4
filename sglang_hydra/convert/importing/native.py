"""Reads foreign files as documents to plan: manifests, Compose files, scripts, recipes, and exports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import yaml

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.topology import REPLICA
from sglang_hydra.convert.importing.experiment import is_reference
from sglang_hydra.convert.importing.importer import NO_GPU, Imported, import_source
from sglang_hydra.convert.importing.proof import requests_of
from sglang_hydra.convert.importing.sources import Source
from sglang_hydra.convert.importing.typed import Typed, read_typed
from sglang_hydra.convert.made_for import words_in
from sglang_hydra.planning.recorded.input_files import WHOLE, Document, ReadOthers
from sglang_hydra.text.budget import read_documents
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.json_types import JsonDict, JsonObject
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.words import plural, program

_UNSAFE = re.compile(r"[^\w./-]")
_RELEASE = "engine.version"
_OWN_BUILD = re.compile(
    r"git\s+clone\s[^\n]*github\.com/(?!sgl-project/)[\w-]+/sglang|sglang\S*(?:==\S*dev\d|@\s?git\+)"
    r"|\bsglang_\w*patch|\b(?:patched|fork(?:ed)?)\s(?:\w+\s)?sglang|\bsglang\b[^.\n]{0,40}\b(?:patched|fork)\b",
    re.IGNORECASE,
)
"""Words of a file that builds SGLang itself: flags that no release has may be its own."""
_PROSE = (".md", ".mdx", ".rst")
"""Texts for people: nothing says in which folder their commands are typed."""
_GIVEN = (
    *("port", "host", "base_gpu_id", "nccl_port", "dist_init_addr", "node_rank"),
    *("disaggregation_mode", "disaggregation_bootstrap_port"),
    *("disaggregation_decode_tp", "disaggregation_decode_dp", "disaggregation_prefill_pp"),
)
"""Arguments that a topology gives its servers."""


def native_reader(
    composer: Composer,
    typed: Sequence[Request] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
    elsewhere: bool = False,
) -> ReadOthers:
    """Returns the reader of all servers in a foreign file, preceded by their topology if an export describes it. Keeps
    all settings of the file. Reads the flags with the release in ``typed``, else the file's own; ``variables`` are left
    to its caller. Runs nothing in it, and reads no variable of this process, nor any local file if it belongs
    ``elsewhere``."""
    pairs = [(item.key, item.value) if item.key else item.text.partition("=")[::2] for item in typed]
    given = {str(key).lstrip("+"): str(value).strip("'\"") for key, value in pairs}
    named, release, count = {*given}, given.get(_RELEASE), given.get("gpu.count")
    on = [gpu for gpu in (given.get("gpu"),) if gpu in {*composer.options("gpu")} - {*NO_GPU}]
    named |= {"model_path"} if (has_model := not named.isdisjoint(("model", "model_path"))) else set()

    def read(file: Path, content: str) -> list[tuple[str, Document]]:
        name = shown_path(str(file))
        made_for = words_in(content)
        own = [Request(f"{key}={value}", name, "experiment") for key, value in made_for.items() if "gpu." in key]
        text, away = content.removeprefix("\ufeff"), elsewhere or file.suffix in _PROSE
        source = Source(name, text, None if away else file.parent, variables=variables, elsewhere=away)
        found, servers = [], []
        for at, server in enumerate(import_source(source, beside_flags(made_for, composer, release), composer, on), 1):
            kept = dict(server.overrides)
            if made_for.get("seed") == "drawn":
                kept.pop("random_seed", None)
            if has_model:
                kept.pop("model_path", None)
            elif "model" not in server.choices and "model_path" not in kept:
                of_model = (one for one in server.states if (one.name, one.state) == ("model_path", "open"))
                if variable := _UNSAFE.sub("", next((str(one.value) for one in of_model), "")):
                    kept["model_path"] = f"${{{variable}}}"  # only the flags are judged
            version = {} if server.version is None else {_RELEASE: server.version}
            # Secret variables are set where the server runs.
            handed = {key for key, item in server.nodes.items() if key.startswith("engine.env.") and is_reference(item)}
            nodes = {key: value for key, value in server.nodes.items() if key not in handed}
            settings = {"engine": "sglang", **version, **server.choices, **kept, **nodes}
            has_open_model = "model_path" in kept.keys() - server.overrides.keys()
            is_own = server.image_version is None and release is None and _OWN_BUILD.search(content)
            read_as = [item for item in server.findings if item.about != "no_model" or not has_open_model]
            of_image = _of_image(name, server.image_version, made_for.get(_RELEASE), release)
            of_file = (*of_image, *_other_count(server, None if "gpu" in made_for else count))
            findings = (*_of_reading(read_as, named, is_own=bool(is_own)), *of_file)
            gpus = None if "gpu" in settings or any(one.key == "gpu" for one in own) else server.gpus
            document = Document([*requests_of(settings, server.place or name), *own], None, findings, gpus)
            found.append((server.name or str(at), document))
            servers.append(settings)
        if "topology" in made_for:
            router = [
                Request(f"{key}={value}", name, "experiment")
                for key, value in {**made_for, **counted(servers, content)}.items()
                if key.startswith(("topology", "replicas", "host", "port"))
            ]
            whole = [*requests_of(together(servers), name), *own, *router]
            found.insert(0, (WHOLE, Document(whole, findings=found[0][1].findings)))
        return found

    return read


def _of_reading(findings: Sequence[Finding], named: set[str], *, is_own: bool) -> Iterator[Finding]:
    """Yields the findings about reading a server that its plan does not repeat, except about typed fields. A build of
    its own (``is_own``) may have other flags."""
    for found in findings:
        item = replace(found, level="warning") if is_own and found.about == "unknown_flag" else found
        if item.level != "info" and item.about != "import_only" and not (item.fields and named.issuperset(item.fields)):
            yield item


def _of_image(name: str, image: str | None, stated: str | None, typed: str | None) -> Iterator[Finding]:
    """Yields an error for an export whose image has another release than its comment: the image is what runs."""
    if typed is None and stated is not None and image is not None and not same_release(image, stated):
        message = f"{name} was made for SGLang {stated}, and its image is of {image}, which is what runs"
        hint = f"{program()} upgrade --from {stated} --to {image} --in-place {name}", f"an image of SGLang {stated}"
        yield Finding("error", "IMP019", message, (_RELEASE,), hint)


def _other_count(server: Imported, typed: str | None) -> Iterator[Finding]:
    """Yields an error for a typed number of GPUs that is not the one which the file gives the server."""
    if server.gpu_count and typed not in (None, str(server.gpu_count)):
        message = f"{server.place} gives the server {plural(server.gpu_count, 'GPU')}, and gpu.count={typed} does not"
        hint = f"change the number in the file; gpu.count={server.gpu_count} is what it says now"
        yield Finding("error", "IMP016", f"{message} change that", (), hint)


def typed_beside(requests: Sequence[Request], text: str, composer: Composer) -> Typed:
    """Returns the settings beside a source's flags: those of ``requests``, else of a comment in ``text``."""
    typed, written = read_typed(requests, composer), beside_flags(words_in(text), composer)
    return replace(typed, choices={**written.choices, **typed.choices}, nodes={**written.nodes, **typed.nodes})


def beside_flags(made_for: Mapping[str, str], composer: Composer, release: str | None = None) -> Typed:
    """Returns the release and the GPU class beside the flags: ``release`` if typed, else the comment's."""
    version = release or made_for.get(_RELEASE)
    gpu = made_for.get("gpu")
    nodes: dict[str, object] = {_RELEASE: version} if version else {}
    if gpu not in composer.options("gpu"):
        return Typed(nodes=nodes)
    # A container gets a part of the machine; the plan covers all of it.
    count = composer.compose([Request(f"gpu={gpu}", "the source")]).nodes.gpu.count
    nodes["gpu.count"] = int(made_for.get("gpu.count") or count or 1)
    return Typed({"gpu": gpu}, nodes=nodes)


def together(servers: Sequence[Mapping[str, object]]) -> JsonDict:
    """Returns the settings of a topology: what all ``servers`` share, and what each role has alone."""
    roles: dict[str, dict[str, object]] = {}
    for server in servers:
        own = {key: value for key, value in server.items() if key not in _GIVEN}
        roles.setdefault(_role(server), own)
    first, *others = roles.values()
    shared = {
        key: value
        for key, value in first.items()
        if key not in EVERY or all(key in other and other[key] == value for other in others)
    }
    args = {
        f"topology.{role}.args.{key}": value
        for role, own in roles.items()
        for key, value in own.items()
        if key in EVERY and key not in shared
    }
    return {**shared, **args}


def counted(servers: Sequence[JsonObject], content: str) -> dict[str, int]:
    """Returns the number of servers by its key: those that the file starts; in Kubernetes the replicas of the sets, by
    the label ``role``."""
    counts = Counter(_count_of(_role(server)) for server in servers)
    try:
        documents = read_documents(content, "manifest") if "kind:" in content else []
        sets = [document for document in documents if document["kind"] in ("StatefulSet", "LeaderWorkerSet")]
        roles = [str(one["metadata"]["labels"]["role"]) for one in sets]
        return {
            **counts,
            **{_count_of(role): int(one["spec"]["replicas"]) for role, one in zip(roles, sets, strict=True)},
        }
    except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError):
        return dict(counts)


def _role(server: Mapping[str, object]) -> str:
    return str(server.get("disaggregation_mode", REPLICA))


def _count_of(role: str) -> str:
    return "replicas" if role == REPLICA else f"topology.{role}.replicas"
