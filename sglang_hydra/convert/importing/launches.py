"""Represents one server that a text starts, before its flags are read; can also move its paths to a place where no file
exists."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sglang_hydra.arguments.every import canonical_name
from sglang_hydra.arguments.parser import flag_like
from sglang_hydra.convert.frameworks.adapters import ADAPTERS
from sglang_hydra.text.json_types import Json, JsonObject, json_beside

OPEN, CLOSE = "\ue000", "\ue001"
"""Surround a part that only the running machine knows: an unset variable, the output of a command."""

_MODULES = ("sglang.launch_server", "sglang.srt.launch_server", "dynamo.sglang", "dynamo.sglang.worker")
CONTAINERS = ("docker", "podman", "nerdctl", "apptainer", "singularity")
"""Programs that run a container."""
_RUN_BY_PYTHON = re.compile(r"run_module\([\"']sglang\.launch_server[\"']")
_KEY = ("--api-key", "***")
"""A key that the program takes from a variable: its value is not in the text."""
_SCRIPTS = ("launch_server.py", "launch_server")
_MARKER = re.compile(
    r"sglang(?:\.srt)?\.launch_server|\blaunch_server\.py\b|dynamo\.sglang\b|\bsglang\s+serve\b"
    r"|engine_kwargs\.sglang\.|actor_rollout_ref\.rollout\.name=|\s--sglang-[a-z]|\s--rollout-num-gpus-per-engine\b"
)
_ENGINE_KWARGS = "engine_kwargs.sglang."
_BY_FLAGS = tuple(adapter for adapter in ADAPTERS.values() if adapter.flags)
_OF_FRAMEWORKS = tuple(f"{adapter.flags}{own}" for adapter in _BY_FLAGS for own in adapter.own)
_TRAINERS = {
    key: flag_like(name)
    for adapter in (*_BY_FLAGS, ADAPTERS["verl"])
    for name, keys in adapter.all_keys.items()
    for key in keys
}
"""Frameworks' other names for SGLang's arguments, as flags of a script or as overrides."""
_VERLS = "actor_rollout_ref.rollout.name=sglang"
_TABLE: Mapping[str, Sequence[str]] = json_beside(__file__)
_PATTERNS = {kind: re.compile("|".join(map(fnmatch.translate, words))) for kind, words in _TABLE.items()}


def is_one_of(kind: str, word: str) -> bool:
    """Returns whether launches.json has ``word`` among those of a kind.

    ``diffusion``: flags of the server that ``sglang serve`` starts for a diffusion model; no language model server has
    them (0.5.9, multimodal_gen/runtime/server_args.py). ``dynamo``: flags that ``dynamo.sglang`` removes before
    SGLang's parser reads the others (ai-dynamo/dynamo, components/src/dynamo/sglang/backend_args.py and
    common/configuration/groups, 2026). ``variables``: those for the server process, not only for a script.
    ``text_programs``: programs that treat a launch command only as text."""
    return _PATTERNS[kind].match(word) is not None


_IMAGE = re.compile(r"(?![-/.])[\w.${}()/-]*sglang[\w./-]*(?:[:@][\w.@:-]+)?")
_OF_A_NODE = ("--node-rank", "--dist-init-addr", "--nccl-init-addr")
MODEL_FLAGS = ("--model-path", "--model", "--config")
_NAME = re.compile(
    r"\$[{(]?(\w+)(?::?-([^{}()]*))?[})]?|\$?\{\{-?\s*[.\w]*?(\w+)\s*(?:\|[^{}]*)?-?\}\}|[{<]([\w-]+)[}>]"
)
# Placeholders for a template, a program or a reader.
_TEMPLATE = re.compile(
    r"\$?\{\{-?\s*[\w.$(][^{}]*\}\}|\{%[^%\n]*%\}"
    r"|(?<![\w$\"':{])\{[A-Za-z_][\w.\[\]]*\}|(?<![\w<])<[A-Za-z][\w ./|-]*>(?![\w>])"
)
_DIRECTIVE = re.compile(
    r"^[ \t]*(?:-[ \t]*)?(?:\{\{-?\s*(?:if|else|end|with|range|define|template|include|/\*)[^{}]*\}\}"
    r"|\{%[^%]*%\})[ \t]*$\n?",
    re.MULTILINE,
)
_IF = r"(?:\{\{-?\s*(?:if|with|range)\b[^{}]*\}\}|\{%-?\s*(?:if|for)\b[^%]*%\})"
_END = r"(?:\{\{-?\s*end\s*-?\}\}|\{%-?\s*end(?:if|for)\s*-?%\})"
_WITHIN_A_LINE = re.compile(rf"{_IF}((?:(?!{_IF}|{_END}|\belse\b)[^\n])*){_END}")
_SHELL, _RUNS_ONE_WORD = re.compile(r"(?:\S*/)?(?:ba|da|a|k|z)?sh"), re.compile(r"-[a-z]*c")
_TAKES_WORDS = re.compile(r"\$\{?[@*0-9]")
_PLAIN_IMAGE = re.compile(r"(?:^|/)lmsysorg/sglang(?:[:@]|$)")
_NAMED = re.compile(r"\$\{\w+(?::?-[^{}]*)?\}|\$\w+")
_OPENED = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")


@dataclass(frozen=True)
class Launch:
    """One server. ``words`` are SGLang's flags, or ``values`` its arguments if the source has typed ones (in any
    spelling that SGLang knows); ``resolved``: SGLang itself resolved them.

    ``keywords``: ``values`` go to ``ServerArgs(**values)``; ``pinned`` is the release that their framework pins.
    ``environment`` are the process's variables in the source. ``mentions`` are texts that may name the hardware or the
    release. ``gpu_count`` is the number of GPUs of the process, ``nodes`` the number of machines. ``files`` maps paths
    to texts that the source writes; ``model`` is the hub name beside a path. ``remarks`` list ignored parts of the
    source. ``fault`` says why what the source starts is not this server. ``variables`` are all of the source's, for the
    secrets among them, which any word may hold."""

    kind: str
    place: str
    name: str = ""
    words: tuple[str, ...] = ()
    values: JsonObject | None = None
    resolved: bool = False
    keywords: bool = False
    pinned: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    mentions: tuple[str, ...] = ()
    version: str | None = None
    gpu_count: int | None = None
    gpu_classes: tuple[str, ...] = ()
    nodes: int | None = None
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()
    model: str | None = None
    fault: str | None = None
    variables: Mapping[str, object] = field(default_factory=dict, repr=False)

    def changed(self, change: Callable[[str], str]) -> Launch:
        """Applies ``change`` to the texts of its words, values, variables, files and mentions."""
        return replace(
            self,
            words=tuple(map(change, self.words)),
            values=_changed(self.values, change),
            environment=_changed(self.environment, change),
            files=_changed(self.files, change),
            mentions=tuple(map(change, self.mentions)),
        )


def _changed(value: Json, change: Callable[[str], str]) -> Json:
    if isinstance(value, Mapping):
        return {key: _changed(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def of_every_node(words: Sequence[str], also: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the words that are the same on each node of a server, without those of the flags ``also``."""
    ranks = [at for at, word in enumerate(words) if word.partition("=")[0] in (*_OF_A_NODE, *also)]
    left_out = {place for at in ranks for place in ((at,) if "=" in words[at] else (at, at + 1))}
    return tuple(word for at, word in enumerate(words) if at not in left_out)


def has_launch_command(text: str) -> bool:
    """Returns whether a text contains a command that starts an SGLang server."""
    return _MARKER.search(text) is not None


def opened(name: str) -> str:
    """Marks ``name``, as written in the source, as unknown."""
    return f"{OPEN}{name.replace(OPEN, '').replace(CLOSE, '')}{CLOSE}"


def with_placeholders(text: str) -> tuple[str, bool]:
    """Marks placeholders of a template or a reader (``{{ .Values.tp }}``, ``{model}``, ``<model>``) as open, and
    removes a template's conditions. Also returns whether it removed some."""
    plain = _WITHIN_A_LINE.sub(r"\1", _DIRECTIVE.sub("", text))
    return _TEMPLATE.sub(lambda found: opened(found[0]), plain), plain != text


def filled(launch: Launch, variables: Mapping[str, str]) -> Launch:
    """Puts the caller's variables into the words that refer to them (``${NAME}``, ``$NAME``, ``$(NAME)``)."""
    if not variables:
        return launch

    def put(text: str) -> str:
        text = _OPENED.sub(lambda found: _given(found[1], variables) or found[0], text)
        return text if is_open(text) else _NAMED.sub(lambda found: _given(found[0], variables) or found[0], text)

    def opened_in(text: str) -> str:
        """Marks the variables of a text that no shell reads."""
        return text if is_open(text) else _NAMED.sub(lambda found: opened(found[0]), text)

    return replace(launch, values=_changed(launch.values, opened_in)).changed(put)


def _given(written: str, variables: Mapping[str, str]) -> str | None:
    name = _NAME.fullmatch(written)
    return variables.get(name[1] or name[3] or name[4], name[2]) if name else None


def without_opened(text: str) -> str:
    """Removes the unknown parts of a text."""
    return _OPENED.sub("", text)


def is_open(text: str) -> bool:
    return OPEN in text


def open_names(text: str) -> list[str]:
    """Returns the unknown parts of a text, as written in the source."""
    return _OPENED.findall(text)


def without_marks(text: str) -> str:
    """Removes the marks from a text of the source."""
    return text.replace(OPEN, "").replace(CLOSE, "")


def split_launch(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Splits a command into the words before SGLang's flags and the flags; None if it starts no SGLang server."""
    for at, word in enumerate(words):
        if word in _MODULES or (word.rpartition("/")[2] in _SCRIPTS and at > 0 and word != "launch_server"):
            flags = list(words[at + 1 :])
            return list(words[: at + 1]), _without_dynamo(flags) if word.startswith("dynamo.") else flags
        if _RUN_BY_PYTHON.search(word) and at:  # what export writes where there is a key
            return list(words[: at + 1]), [*words[at + 1 :], *_KEY * ("--api-key" in word)]
        if word == "serve" and at and words[at - 1].rpartition("/")[2] == "sglang":
            if any(is_one_of("diffusion", _name_of(flag)) for flag in words[at + 1 :] if flag.startswith("--")):
                return None
            flags = list(words[at + 1 :])
            has_model = bool(flags) and not flags[0].startswith("-")  # sglang serve MODEL
            return list(words[: at + 1]), ["--model-path", *flags] if has_model else flags
    return _by_image(words) or _of_trainer(words)


def _name_of(flag: str) -> str:
    return flag[2:].partition("=")[0]


def _without_dynamo(flags: Sequence[str]) -> list[str]:
    """Removes Dynamo's own flags with their values: SGLang's parser never gets them."""
    kept: list[str] = []
    is_own = False
    for word in flags:
        is_own = is_one_of("dynamo", _name_of(word).removeprefix("no-")) if word.startswith("--") else is_own
        kept += [] if is_own else [word]
    return kept


def _of_trainer(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Splits the command of a trainer that starts its own servers: slime's ``--sglang-FLAG``, verl's
    ``engine_kwargs.sglang.KEY=VALUE``, and both trainers' other names for arguments."""
    flags: list[str] = []
    for at, word in enumerate(words):
        name, equals, value = word.lstrip("+").partition("=")
        own = name.startswith("--sglang-") and not name.startswith(_OF_FRAMEWORKS)
        if own or name in _TRAINERS:
            end = at + 1
            while not equals and end < len(words) and not words[end].startswith("--"):
                end += 1
            flag = _TRAINERS.get(name) or f"--{name.removeprefix('--sglang-')}"
            flags += _with_value(flag, value) if equals else [flag, *words[at + 1 : end]]
        elif _ENGINE_KWARGS in name and equals:
            flags += _with_value(f"--{name.partition(_ENGINE_KWARGS)[2].replace('_', '-')}", value)
    is_one = any(_ENGINE_KWARGS in word or word == _VERLS or _is_of_slime(word) for word in words)
    return ([], flags) if is_one and words and not words[0].startswith("--") and flags else None


def _is_of_slime(word: str) -> bool:
    """Returns whether a flag is a trainer's, or passes one of SGLang's; ``--sglang-only`` of a test does neither."""
    name = word.partition("=")[0].removeprefix("--sglang-").replace("-", "_")
    own = word.startswith((*_OF_FRAMEWORKS, "--rollout-num-gpus-"))
    return own or (word.startswith("--sglang-") and canonical_name(name) is not None)


def _with_value(flag: str, value: str) -> list[str]:
    """Returns a flag for Hydra's KEY=VALUE: alone for true, nothing for false and null."""
    return [] if value.lower() in ("false", "null") else [flag] if value.lower() == "true" else [flag, value]


def _by_image(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Splits a container command of an SGLang image whose entry point starts the server."""
    if any(word.rpartition("/")[2] in CONTAINERS for word in words):
        for at, word in enumerate(words[:-1], 1):
            if words[at].startswith("--") and _IMAGE.fullmatch(without_marks(word)):
                flags = bare_flags(words[at:])
                return None if flags is None else (list(words[:at]), flags)
    return None


def bare_flags(words: Sequence[str]) -> list[str] | None:
    """Returns the words if all are SGLang's flags, else None."""
    if words and words[0].startswith("--") and any(word.partition("=")[0] in MODEL_FLAGS for word in words):
        return list(words)
    return None


def fault_of(words: Sequence[str], image: str = "", has_program: bool = True) -> str | None:
    """Returns why the command ``words`` does not start the server that it contains, or None. A shell with ``-c`` runs
    one word (POSIX, sh). Without ``has_program``, the words go to the entry point of ``image``: that of lmsysorg/sglang
    runs them as they are (docker/Dockerfile, FROM nvidia/cuda)."""
    for shell, option, script, *rest in (words[at:] for at in range(len(words) - 3)):
        if _SHELL.fullmatch(shell) and _RUNS_ONE_WORD.fullmatch(option):
            own = [word for word in rest if word.startswith("-") and word != "--"]
            if own and not _TAKES_WORDS.search(script):
                text = f"{shell} {option} runs only the word after it, {without_marks(script)!r}"
                return f"{text}: {own[0]} and the other words do not reach it"
            return None
    if joined := next((word for word in words if re.match(r"-m\s+\S", word)), None):
        return f"Python gets {without_marks(joined)!r} as one word, and finds no such module"
    if words and has_program and words[0] in _MODULES:
        return f"{words[0]} is a module of Python and no program: python -m {words[0]}"
    if not words or not (has_program or _PLAIN_IMAGE.search(image)):
        return None
    if " " in words[0].strip() and has_launch_command(words[0]):
        return f"the container runs a program with the name {without_marks(words[0])!r}, and there is none"
    if words[0].startswith("--") and not has_program:
        return f"the image starts no server by itself: it runs the words as a command, and {words[0]} is none"
    return None


def fault_of_command(words: Sequence[str]) -> str | None:
    """Returns why a typed command does not start the server that it contains, or None. Of ``docker run``, the words
    after the image are what runs."""
    at = next((place for place, word in enumerate(words) if _PLAIN_IMAGE.search(word)), None)
    if at is None:
        return fault_of(words)
    return fault_of(words[at + 1 :], words[at], any(word.startswith("--entrypoint") for word in words[:at]))


ROOT = "/.of-another-machine"
"""A folder that does not exist."""
_START = re.compile(r"(?<![\w.:/~-])(?=[/~]|\.{1,2}(?:/|$))")
_UP = re.compile(r"(?<![\w.])\.\.(?![\w.])")
_DOWN = "\u2025"
"""Two dots as one character, which lead nowhere."""


def elsewhere(launch: Launch) -> Launch:
    """Moves all paths of a launch below ``ROOT``."""
    return launch.changed(lambda text: _START.sub(f"{ROOT}/", _UP.sub(_DOWN, text)))


def as_written(text: str) -> str:
    """Restores the original paths in a text."""
    return text.replace(f"{ROOT}/", "").replace(ROOT, "").replace(_DOWN, "..")
