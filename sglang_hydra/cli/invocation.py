"""Splits a command line into the verb, overrides and flags."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sglang_hydra.arguments.every import EVERY, names_by_flag
from sglang_hydra.arguments.secrets import is_secret
from sglang_hydra.compose.corrections import (
    FORMATS_MEANT,
    LEFT_TO_TOOLS,
    OF_TOOLS,
    PROGRAMS,
    VARIABLES_OF_OTHERS,
    hub_page,
    key_meant,
    may_be,
)
from sglang_hydra.compose.override_errors import NUMBERS
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.schema import NO_CHOICE, NODES, PRIMARY_NAME
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.flags import (
    BY_NAME,
    BY_VALUE,
    HYDRA_FLAGS,
    INFO_FLAGS,
    INFO_KINDS,
    INSTEAD,
    NO_VERBS,
    OTHER_VERBS,
    RUN_FLAGS,
    TASKS,
    VALUED_HYDRA_FLAGS,
    VERBS,
    Flag,
)
from sglang_hydra.text.locations import SUFFIXES, conf_dir
from sglang_hydra.text.words import as_meant, foreign_sign, nearest, program, short, size_of

_PATHS = ("output", "base")
_CONTAINERS = ("docker", "podman", "nerdctl", "apptainer", "singularity", "kubectl", "helm")
_RUNNERS, _BEFORE = ("python", "python3", "torchrun", "srun", "bash", "uv"), ("sudo", "time", "exec", "nohup")
_OF_PROCESSES = ("torchrun", "mpirun", "accelerate", "deepspeed")
"""Programs that start a process for each GPU, as SGLang does itself."""
_OF_SHELL = ("&&", "||", ";", "|", ">", ">>", "2>&1")
_KINDS_OF_BENCH = ("serve", "serving", "latency", "throughput", "sweep")
"""The names of vLLM's and SGLang's own benchmarks."""
_MODEL_FLAGS, _SHORT = ("-m", "-hf", "--model", "--model-id", "--model-path"), {"-c": "--ctx-size"}
"""The flags of other programs that name a model; llama.cpp's short names of what has a key here."""
_ADDRESS_FLAGS = ("--url", "--base-url", "--target", "--host", "--port")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_FILE_TAG = re.compile(r":(?:UD-)?(?:I?Q\d\w*|B?F\d+)$")
"""Which file of a GGUF repository, as llama.cpp and Ollama write it."""
_VLLM = "vllm.entrypoints.openai.api_server"
_ROUTER = "sglang_router.launch_server"
_LAUNCH_SERVER = re.compile(r"sglang\.launch_server|(?:.*/)?launch_server\.py")
_OF_OTHERS = re.compile(
    r"^(?!-)\S*(?:text-generation-inference|tensorrt[-_]?llm|trtllm|ollama|lmdeploy|llama\.cpp)\S*:(?!/)"
)
"""Images of other servers."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")


@dataclass
class Invocation:
    """A command line in its parts. ``named``: the verb was typed and is no default. ``argv`` are the words after a bare
    ``--``, SGLang's own flags. ``file`` is the experiment whose requests were added. ``hydra_flags`` are flags that
    only Hydra reads, with their values; ``once``: ``--run`` was typed. Flags of the table with a list of values are
    fields here; ``has`` and ``value`` read the others, by their ``sets``."""

    verb: str = "serve"
    named: bool = False
    requests: list[Request] = field(default_factory=list)
    argv: list[str] | None = None
    file: str | None = None
    hydra_flags: list[str] = field(default_factory=list)
    once: bool = False
    config_dirs: list[str] = field(default_factory=list)
    trusted_folders: list[str] = field(default_factory=list)
    allowed_env: list[str] = field(default_factory=list)
    env: list[str] = field(default_factory=list)
    given: dict[str, str | bool] = field(default_factory=dict)

    def has(self, flag: str) -> bool:
        return self.given.get(BY_VALUE[flag].sets) not in (None, False) or bool(getattr(self, flag, None))

    def value(self, flag: str) -> str | None:
        """Returns the value of a flag of the table; None if it was not typed."""
        found = self.given.get(BY_VALUE[flag].sets)
        return None if found is None else str(found)

    @property
    def hydra(self) -> bool:
        """Returns whether a flag was typed that only Hydra reads."""
        return bool(self.hydra_flags)

    @property
    def variables(self) -> dict[str, str]:
        return dict(word.partition("=")[::2] for word in self.env)

    @property
    def allowed(self) -> dict[str, list[str]]:
        """Returns the flags that allow something to foreign files, by the keys of the settings."""
        return {
            "trusted_folders": self.trusted_folders,
            "allowed_env": self.allowed_env,
            "hub_token": ["true"] if self.has("hub_token") else [],
            "fetch": ["false"] if self.has("no_fetch") or self.has("offline") else [],
        }


def read_invocation(words: Sequence[str]) -> Invocation:
    """Returns a command line in its parts. Raises ConfigError for an unknown verb or a flag without its value."""
    invocation = Invocation()
    words = list(words)
    for refuse in (_refuse_foreign_signs, _refuse_own_name, _refuse_launch_command, _refuse_remark, _refuse_file_flag):
        refuse(words)
    if "--" in words:
        cut = words.index("--")
        words, invocation.argv = words[:cut], words[cut + 1 :]
    verb: str | None = None
    tool, of_others = next((word for word in words if word in OF_TOOLS), ""), list[Finding]()
    rest = list(enumerate(words, 1))
    while rest:
        position, word = rest.pop(0)
        name, has_value, value = word.partition("=")
        flag = BY_NAME.get(name)
        is_word = verb == "release" and flag is not None and flag.sets == "trusted_folders"
        if flag is not None and flag.value and not is_word:
            if not (has_value or rest):
                raise ConfigError.of("CLI012", f"{name} needs a value", hint=f"{name} {flag.value}")
            value = value if has_value else rest.pop(0)[1]
            _take_value(invocation, flag, name, value)
        elif flag is not None and not has_value and not is_word:
            invocation.given[flag.sets] = True
        elif flag is not None and not is_word:
            raise ConfigError.of("CLI012", f"{name} is a switch and takes no value", typed=(word,), fix=name)
        elif name.startswith("-") and ((tool, name.lstrip("-")) in LEFT_TO_TOOLS or _key_of_tool(name, tool)):
            of_others.append(_of_tool(tool, word, rest))
        elif name in HYDRA_FLAGS and (name[:2] == "--" or verb in (None, "serve")):  # -p is docker's and sbatch's too
            invocation.hydra_flags.append(word)
            has_kind = name in INFO_FLAGS and bool(rest) and rest[0][1] in INFO_KINDS
            if (name in VALUED_HYDRA_FLAGS or has_kind) and not has_value and rest:
                invocation.hydra_flags.append(rest.pop(0)[1])
        elif name in RUN_FLAGS and not has_value:
            invocation.once = True
        elif name in INSTEAD:
            hint = INSTEAD[name]["hint"].format(program=program())
            raise ConfigError.of("CLI019", f"{name}: {INSTEAD[name]['message']}", hint=hint, typed=(word,))
        elif verb is None and not invocation.requests and not invocation.has("help") and _is_verb(word):
            verb = word
        elif word:
            invocation.requests.append(Request(word, f"argument {position}"))
    releases = [item.text for item in invocation.requests if item.text[:1].isdigit()]
    if invocation.has("version") and releases:
        typed, key = ("--version", releases[0]), "--to " if verb == "upgrade" else "engine.version="
        raise ConfigError.of("CLI012", "--version takes no value", typed=typed, fix=key + releases[0])
    if of_others:
        raise ConfigError(*of_others)
    if invocation.env:  # the words NAME=VALUE beside it are variables too
        beside = [item for item in invocation.requests if _VARIABLE.match(item.text)]
        invocation.requests = [item for item in invocation.requests if item not in beside]
        invocation.env += [item.text for item in beside]
    _check_primary(invocation)
    if verb == "help":
        invocation.given["help"] = True
    elif verb is not None and verb not in VERBS:
        raise _unknown_verb(verb, invocation.requests)
    elif verb is not None:
        invocation.verb, invocation.named = verb, True
    return invocation


def _take_value(invocation: Invocation, flag: Flag, typed: str, value: str) -> None:
    if flag.sets in ("config_dirs", "config_path", "trusted_folders"):
        if not os.path.isdir(value := os.path.expanduser(value)):
            raise ConfigError.of("CLI012", f"{typed} {value}: there is no such folder")
        if flag.sets == "trusted_folders":
            invocation.trusted_folders.append(os.path.abspath(value))
        elif flag.sets == "config_path":
            invocation.config_dirs.insert(0, value)
            invocation.given["config_path"] = value
        else:
            invocation.config_dirs.append(value)
    elif flag.sets == "config_name":
        invocation.given["config_name"] = value.removesuffix(".yaml")
    elif flag.sets == "env":
        invocation.env.append(value)
    elif flag.sets == "allowed_env":
        invocation.allowed_env += filter(None, value.split(","))
    else:
        # The shell does not expand the ~ in --output=~/plan.yaml.
        invocation.given[flag.sets] = os.path.expanduser(value) if flag.sets in _PATHS else value


def _check_primary(invocation: Invocation) -> None:
    """Raises ConfigError if the folder of --config-path, which replaces ours, has no primary config."""
    folder, name = invocation.value("config_path"), invocation.value("config_name") or PRIMARY_NAME
    if folder and not any(os.path.isfile(os.path.join(folder, f"{name}{suffix}")) for suffix in (".yaml", ".yml")):
        message = f"--config-path {folder}: there is no primary config {name}.yaml in it"
        hint = f"--config-dir {folder} adds its groups to ours; --config-name NAME takes NAME.yaml from there"
        raise ConfigError.of("CLI018", message, hint=hint)


def _is_verb(word: str) -> bool:
    """Returns whether a word may be a verb, because it is no flag, override or file."""
    return bool(word) and not word.startswith(("-", "~")) and "=" not in word and not word.endswith(SUFFIXES)


def _unknown_verb(word: str, behind: Sequence[Request]) -> ConfigError:
    typed = (word, *(request.text for request in behind[:1]))
    typed = typed if " ".join(typed).lower() in OTHER_VERBS else (word,)
    message = f"{short(word)!r} is no verb"
    fix = OTHER_VERBS.get(" ".join(typed).lower()) or nearest(word, VERBS) or _choice_of(word)
    fix = fix or OTHER_VERBS.get(nearest(word, [one for one in OTHER_VERBS if " " not in one]) or "")
    if fix == "diff" and any("," in request.text for request in behind):
        fix = "plan -m"  # several values of a key: a table, not two sides
    if behind and behind[0].text in VERBS and len(typed) == 1:  # get models, rollout status
        typed, fix = (word, behind[0].text), " ".join(filter(None, (behind[0].text, _choice_of(word))))
    elif word.lower() in NO_VERBS:
        return ConfigError.of("CLI014", message, hint=NO_VERBS[word.lower()])
    verbs = f"verbs are {', '.join(itertools.chain(*TASKS.values()))}: {program()} --help"
    hints = None if fix else verbs, "Values are typed as key=value: model=..., gpu=..., tp_size=8"
    return ConfigError.of("CLI014", message, hint=hints, typed=typed, fix=fix)


def _choice_of(word: str) -> str | None:
    """Returns ``model=qwen3_8b`` for the name of a preset, ``model=org/name`` for a repository; else None."""
    group, slash, option = word.partition("/")
    if slash and group in ("gpu", "model") and (conf_dir() / group / f"{option}.yaml").is_file():
        return f"{group}={option}"
    if _REPOSITORY.fullmatch(word):
        return f"model={word}"
    name = word.lower().replace("-", "_")
    return next(
        (f"{group}={name}" for group in ("gpu", "model") if os.path.isfile(conf_dir() / group / f"{name}.yaml")), None
    )


def _refuse_own_name(words: Sequence[str]) -> None:
    """Raises ConfigError for a pasted command that begins with this program's own name."""
    named = [word.rpartition("/")[2] for word in words[:3]]
    count = next((at for at, name in enumerate(named, 1) if name in ("sglang-hydra", "serve.py")), 0)
    before, behind = named[: max(0, count - 1)], words[count : count + 1]
    if count and (not {*before} - {"$", "%", ">", "python", "python3"} or (before[:1] == behind and "$" in before)):
        typed = tuple(words[:count])
        message = f"{' '.join(typed)!r} is this program's own name, typed twice"
        raise ConfigError.of("CLI004", message, typed=typed, fix=Remedy.fixed("", "leave it out"))


def _refuse_remark(words: Sequence[str]) -> None:
    """Raises ConfigError for a comment after ``#``, and for what follows a sign of a shell."""
    at = next((at for at, word in enumerate(words) if word in ("#", *_OF_SHELL)), None)
    if at is not None:
        what = "a comment" if words[at] == "#" else "what a shell reads, and no part of this command"
        fix = Remedy.fixed("", "without it")
        raise ConfigError.of("CLI004", f"{words[at]!r} begins {what}", typed=tuple(words[at:]), fix=fix)


def _refuse_file_flag(words: Sequence[str]) -> None:
    """Raises ConfigError for ``-f FILE``, as kubectl and helm name a file."""
    for flag, file in itertools.pairwise(words):
        if flag == "-f" and file.endswith(SUFFIXES):
            message = "-f follows a log; a file is typed without a flag"
            raise ConfigError.of("CLI004", message, typed=(flag, file), fix=shlex.quote(file))


def _refuse_launch_command(words: Sequence[str]) -> None:
    """Raises ConfigError for a command of SGLang or another program in the words before a bare ``--``."""
    head, second, *_ = (*itertools.dropwhile(_BEFORE.__contains__, words), "", "")
    is_url = "://" in second and "=" not in second
    if head == "bench" and (second in _KINDS_OF_BENCH or is_url):
        url = second if is_url else "http://127.0.0.1:30000"
        message = f"{second!r}: bench starts a server and measures it; bench.url measures a running one"
        is_sure = Remedy.fixed(f"bench.url={url}") if url == second else None
        hint = None if is_sure else f"{program()} bench bench.url={url} bench.concurrency=8"
        raise ConfigError.of("CLI004", message, hint=hint, typed=(second,) if is_sure else (), fix=is_sure)
    if head == "upgrade":
        _refuse_vllm_for_upgrade(words)
    if (at := next((at for at, word in enumerate(words) if word == _ROUTER), None)) is not None:
        raise _of_router(words[at + 1 :])
    flag, others = second.partition("=")[0], (*_CONTAINERS, *_RUNNERS, "vllm", "sglang")
    are_flags = head == "import" and flag in names_by_flag() and flag not in BY_NAME
    if are_flags or (head in ("import", "upgrade") and second in others and len(words) > 2):
        server = ["python", "-m", "sglang.launch_server"] if are_flags else []
        ours = list(itertools.takewhile(_is_ours, reversed(words)))[::-1]
        meant = Remedy.fixed(shlex.join([shlex.join([*server, *words[1 : len(words) - len(ours)]]), *ours]))
        message = f"{head} takes a command as one word, in quotes"
        raise ConfigError.of("CLI004", message, typed=tuple(words[1:]), fix=meant)
    program_of, space, _ = second.partition(" ")
    is_quoted = head in ("import", "upgrade") and space and program_of in PROGRAMS and program_of != "vllm"
    own = list(itertools.dropwhile(_VARIABLE.match, second.split() if is_quoted else words))
    if own[:2] == ["vllm", "serve"] or own[:1] == ["vllm-serve"] or _VLLM in own[:3]:
        raise _of_vllm(words)
    name = next((word for word in own[: 3 if head in _RUNNERS else 1] if word in PROGRAMS), None)
    if name is not None:
        raise _of_program(name, own[own.index(name) :])
    image = next((at for at, word in enumerate(words) if _OF_OTHERS.search(word)), None)
    if head in _CONTAINERS and image is not None:
        raise _of_program(words[image], words[image:])
    before = words[: words.index("--")] if "--" in words else words
    at = next((at for at, word in enumerate(before) if _LAUNCH_SERVER.fullmatch(word)), None)
    at = 1 if head == "sglang" and second in ("serve", "launch-server", "launch_server") else at
    if (head in _CONTAINERS and "=" not in second) or (head in _RUNNERS and at is None):
        raise _of_runner(head, second, words, starts_server=at is not None)
    if at is None or head in ("import", "upgrade"):
        return
    starts = (start for start in range(at) if re.match(r"(?:.*/)?(?:python[\d.]*|sglang)$", words[start]))
    start = next(starts, at)
    message = f"{' '.join(words[start : at + 1])!r} begins a command of SGLang's, whose flags go after a bare --"
    if head in _OF_PROCESSES:
        hint = f"leave {head} out: SGLang starts a process for each GPU of --tp-size N: {program()} plan -- ..."
        raise ConfigError.of("CLI004", message, hint=hint)
    first = start if head in VERBS else 0
    kept = [word for word in words[first:start] if _is_ours(word) or (_VARIABLE.match(word) and not _is_secret(word))]
    own = [] if head in VERBS else ["plan"]
    behind = [word for word in words[at + 1 :] if _is_ours(word)]
    end = len(words) if behind else at + 1
    flags = [word for word in words[at + 1 : end] if word not in behind]
    instead = Remedy.fixed(shlex.join([*own, *kept, *behind, "--", *flags]), f"{' '.join([*own, '--'])} in its place")
    raise ConfigError.of("CLI004", message, typed=tuple(words[first:end]), fix=instead)


def _of_runner(head: str, second: str, words: Sequence[str], *, starts_server: bool) -> ConfigError:
    """Returns the error for a command that begins with a container's program or another runner."""
    message = f"{f'{head} {second}'!r} begins a command of another program"
    ours = [word for word in words if _is_ours(word)]
    if starts_server and not any(map(_is_secret, words)):
        command = shlex.join([word for word in words if word not in ours])
        return ConfigError.of("CLI004", message, typed=tuple(words), fix=shlex.join(["import", command, *ours]))
    file = next((word for word in words if word.endswith(SUFFIXES)), None)
    hint = f"{program()} import 'COMMAND' reads what it starts" if file is None else f"{program()} check {file}"
    if second == "logs":
        hint = f"{shlex.join(words)} | {program()} diagnose -"
    if ours and head in _CONTAINERS:
        hint = f"{program()} export {FORMATS_MEANT.get(head, head)} {' '.join(ours)}"
    return ConfigError.of("CLI004", message, hint=hint)


def _refuse_vllm_for_upgrade(words: Sequence[str]) -> None:
    """Raises ConfigError for a command of vLLM, which upgrade does not read."""
    at = next((at for at, word in enumerate(words) if re.match(r"vllm(?: |$)", word)), None)
    if at is not None:
        ours = [word for word in words[1:] if _is_ours(word)]
        command = words[at] if " " in words[at] else shlex.join([word for word in words[at:] if word not in ours])
        hint = f"{program()} {shlex.join(['import', command, *ours])}"
        message = "upgrade reads commands of SGLang, and this one is vLLM's: import translates it"
        raise ConfigError.of("CLI004", message, hint=hint)


def _of_router(flags: Sequence[str]) -> ConfigError:
    """Returns the error for the command of SGLang that starts several servers and a router before them."""
    words, message = list(flags), f"{_ROUTER} starts a router and its servers, which topology=replicas plans"
    count = next((at for at, word in enumerate(words) if word in ("--dp-size", "--dp", "--data-parallel-size")), None)
    replicas = words[count + 1 : count + 2] if count is not None else []
    if count is not None:
        del words[count : count + 2]
    unread = [word for word in words if word.startswith("--router-")]
    message += f"; not read here: {', '.join(unread)}" if unread else ""
    ours = ["topology=replicas", *(f"replicas={number}" for number in replicas)]
    hint = f"{program()} plan {' '.join(ours)} gpu=h100 -- {'...' if unread else shlex.join(words)}"
    return ConfigError.of("CLI004", message, hint=hint)


def _is_secret(word: str) -> bool:
    return is_secret(*word.partition("=")[::2])


def _of_program(name: str, words: Sequence[str]) -> ConfigError:
    """Returns the error for a command of another program, with ours for it and its flags that have a key here."""
    served = "plan model={model} gpu=h100"
    ours = "bench model={model} gpu=h100" if words[1:2] == ["bench"] else PROGRAMS.get(name, served)
    own = " ".join(word for word in words if _is_ours(word))
    ours = ours.replace("model={model} gpu=h100", own) if own else ours
    pairs = [(word.partition("="), next(iter(words[at + 2 :]), "-")) for at, word in enumerate(words[1:])]
    flags = [(flag, value if equals else behind) for (flag, equals, value), behind in pairs if flag[:1] == "-"]
    of_model = (value for flag, value in flags if flag in _MODEL_FLAGS and value[:1] != "-")
    named = [_FILE_TAG.sub("", word) for word in words[1:]]
    pages = (page[0] for page in map(hub_page, named) if page)
    model = next(filter(_REPOSITORY.fullmatch, named), None) or next(pages, None) or next(of_model, "org/name")
    if "bench.url=" in ours:
        ours = f"bench bench.url={shlex.quote(_address_in(dict(flags)))}"
        flags = [one for one in flags if one[0] not in (*_MODEL_FLAGS, *_ADDRESS_FLAGS)]
    ours = ours if _REPOSITORY.fullmatch(model) else ours.replace("model={model}", "model_path={model}")
    typed, unread = [ours.format(model=shlex.quote(model))], []
    verb = ours.partition(" ")[0]
    for flag, value in flags if verb in ("plan", "bench") else ():
        plain = (_SHORT.get(flag, flag) if name.startswith("llama") else flag).lstrip("-").replace("-", "_")
        key = plain if plain in EVERY else key_meant(plain) or ""
        is_ours = (
            key.startswith("bench.")
            if verb == "bench"
            else key in EVERY and key not in ("model_path", "max_total_tokens")
        )
        if (flag[:2] == "--" or flag != f"-{plain}") and is_ours and _fits(key, value):
            typed.append(f"{key}={shlex.quote(value)}")
        elif _FILE_TAG.sub("", value) not in (model, name) and flag not in unread and not is_secret(plain, value):
            unread.append(flag)
    message = f"{name!r} begins a command of another program, whose other flags are not read here"
    message = message if len(typed) > 1 else message.replace("other flags", "flags")
    message += f": {', '.join(unread)}" if unread else ""
    return ConfigError.of("CLI004", message, hint=f"{program()} {' '.join(typed)}")


def _fits(key: str, value: str) -> bool:
    """Returns whether a value of another program's flag can be typed for our key as it is."""
    field = EVERY.get(key)
    if value[:1] == "-" or not may_be(key, value):
        return False
    if field is None or field.is_list or (field.kind not in NUMBERS and not field.arg.choices):
        return True
    if field.arg.choices:
        return value in map(str, field.arg.choices)
    return re.fullmatch(NUMBERS[field.kind], value) is not None or (field.kind == "int" and size_of(value) is not None)


def _address_in(flags: Mapping[str, str]) -> str:
    """Returns the address of the server that a benchmark's flags name."""
    named = next((flags[name] for name in _ADDRESS_FLAGS[:3] if name in flags), None)
    named = named or f"{flags.get('--host', '127.0.0.1')}:{flags.get('--port', '30000')}"
    return re.sub(r"(//[^/]*)/.*", r"\1", named if "://" in named else f"http://{named}")


def _of_vllm(words: Sequence[str]) -> ConfigError:
    """Returns the error for a vLLM command, with a plan of the same in SGLang's flags."""
    from sglang_hydra.arguments.vllm import counterpart, translated

    first = next(at for at, word in enumerate(words) if word in ("serve", "vllm-serve", _VLLM))
    ours = [word for word in words if _is_ours(word)]
    variables = [word for word in words[:first] if _VARIABLE.match(word) and not word.startswith(VARIABLES_OF_OTHERS)]
    ours += [f"engine.env.{word}" for word in variables if not _is_secret(word)]
    argv, findings = translated([word for word in words[first + 1 :] if word not in ours])
    is_lost = any(found.is_lost for word in words if word[:1] == "-" and (found := counterpart(word)))
    known = not is_lost and not any(finding.level == "error" for finding in findings)
    fix = shlex.join(["plan", *ours, "--", *argv]) if known else None
    notes = [f"{item.message}{f' ({item.hint})' if item.hint else ''}" for item in findings]
    typed = tuple(words)
    program_of = " ".join([word for word in words[: first + 1] if not _VARIABLE.match(word)][:2])
    return ConfigError.of("CLI004", f"{program_of!r} begins a command of vLLM's", hint=notes, typed=typed, fix=fix)


def _refuse_foreign_signs(words: Sequence[str]) -> None:
    """Raises ConfigError for words with a sign that an editor put in place of a shell's sign. Ignores texts with spaces
    (a command to import)."""
    findings = []
    for word in words:
        plain = meant = as_meant(word)
        if "=" in meant and meant.partition("=")[0] not in BY_NAME and "--" not in words:
            meant = meant.lstrip("-")
        if plain != word and not re.search(r"[^\S\u3000\r]", word):
            message = f"{short(word)!r} has {foreign_sign(word)} in it, which a shell reads as a letter"
            fix = Remedy.fixed(shlex.quote(meant), meant)
            findings.append(Finding("error", "CLI031", message, typed=(word,), fix=fix))
    if findings:
        raise ConfigError(*findings)


def _key_of_tool(flag: str, tool: str) -> str | None:
    """Returns our key for an option of sbatch or docker (any long one of sbatch has one); None without one."""
    name = flag.lstrip("-")
    is_other = tool != "slurm" or not flag.startswith("--") or flag in (*BY_NAME, *names_by_flag())
    return OF_TOOLS.get(tool, {}).get(name) or (None if is_other else f"launch.slurm.sbatch.{name}")


def _is_ours(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and key.partition(".")[0] in (*EVERY, *NODES, *NO_CHOICE)


def _of_tool(tool: str, word: str, rest: list[tuple[int, str]]) -> Finding:
    """Returns the error for an option of sbatch or docker; removes its value from ``rest`` if it is a word."""
    flag, equals, value = word.partition("=")
    is_alone = bool(equals) or not rest or _is_ours(rest[0][1]) or rest[0][1][:1] == "-"
    behind = "" if is_alone else rest.pop(0)[1]
    typed = (word, behind) if behind else (word,)
    if hint := LEFT_TO_TOOLS.get((tool, flag.lstrip("-"))):
        fix = Remedy.fixed("", hint) if hint.startswith("leave it out") else None
        message = f"{flag} is no flag of this program"
        return Finding("error", "CLI004", message, hint=None if fix else hint, typed=typed, fix=fix)
    key, value = _key_of_tool(flag, tool) or "", behind or value
    if key.endswith("."):  # a variable
        name = value.partition("=")[0]
        message = f"{flag} is no flag of this program: {key}NAME is the key"
        if is_secret(name, value):
            hint = f"export {name}=... before the command: no plan, log or file holds it"
            return Finding("error", "CLI004", message, (key,), hint=hint, typed=typed)
        return Finding("error", "CLI004", message, (key,), typed=typed, fix=f"{key}{shlex.quote(value)}")
    fix = Remedy.fixed(override := f"{key}={shlex.quote(value or 'true')}", override)
    message = f"{flag} is no flag of this program: {key} is the key"
    return Finding("error", "CLI004", message, (key,), typed=typed, fix=fix)
