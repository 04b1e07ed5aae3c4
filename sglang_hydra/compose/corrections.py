"""Finds the meant words for an invalid key or option.

``corrections.json`` has the names of other tools and people for arguments (``!``: the opposite)."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import log

from sglang_hydra.arguments.every import EVERY, fitting_problem, names_by_flag
from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.arguments.meant import OFF, turned_off, values_meant, word
from sglang_hydra.arguments.secrets import is_secret_name
from sglang_hydra.arguments.vllm import counterpart, counterparts
from sglang_hydra.compose.schema import NODES, Root
from sglang_hydra.text.json_types import JsonObject, json_beside
from sglang_hydra.text.locations import conf_dir
from sglang_hydra.text.words import is_digits, nearest, surest

_TABLE: JsonObject = json_beside(__file__)
ADVICE: Mapping[str, str] = {name: row["hint"] for row in _TABLE["advice"] for name in row["names"].split()}
"""Hints for names without a single matching key."""
OF_TOOLS: Mapping[str, Mapping[str, str]] = _TABLE["of_tools"]
"""The options of launch tools, without dashes, with our keys, by the ``export`` word of the tool."""
LEFT_TO_TOOLS: Mapping[tuple[str, str], str] = {
    (tool, name): row["hint"]
    for row in _TABLE["left_to_tools"]
    for tool in row["tools"].split()
    for name in row["names"].split()
}
"""Hints for other options of these tools, by that word and the option."""
PROGRAMS: Mapping[str, str] = {name: ours for ours, names in _TABLE["programs"].items() for name in names.split()}
"""The command here for the programs of others."""
VARIABLES_OF_OTHERS: tuple[str, ...] = tuple(_TABLE["variables_of_others"])
"""How the environment variables of other engines begin."""
FORMATS_MEANT, OF_SUGGEST, GOALS_MEANT = (
    {other: name for name, others in _TABLE[kind].items() for other in others.split()}
    for kind in ("formats", "of_suggest", "goals")
)
"""Common names for the formats of ``export``, and for the words and goals of ``suggest``."""
_OF_HELP, _OF_NODE, _LEAST_SHARED = 0.6, 0.85, 0.3
"""The weights of a word in the help and of one in a key of ours, relative to one in an argument's name, and the
smallest share of a name's words for a near name."""
_OF_VARIABLES = ("nccl_", "omp_", "ucx_", "sglang_")
_USUAL = frozenset(("max", "min", "num", "size", "enable", "disable", "use"))
_OPPOSITES = ("enable_", "disable_", "no_", "use_")
_ON = ("1", "on", "yes", "y", "true", "enable", "enabled", "")
_OFF = ("0", "off", "no", "n", "false", "disable", "disabled")
_OF_LAUNCH = ("launch.slurm", "launch.k8s")
_NODES_SEARCHED = ("bench", "fit", "colocate", "forecast", "gpu", "engine", "launch", "sweep", "topology", *_OF_LAUNCH)
_HUB_PAGE = re.compile(
    r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf:(?://)?)([\w.-]+/[\w.-]+?)"
    r"(?:/(?:tree|blob|resolve)/([\w.-]+)(?:/[^?#]*)?)?/?(?:[?#].*)?"
)
MEMORY = r"\d+ ?gi?b?"
"""A size of memory, as people name a GPU by it."""
_MEMORY = re.compile(r"(\d+)(?:gi?b?)?|gi?b?")
_TIMES = re.compile(
    r"(?:(\d{1,2})\s*(?:[x*]\s*)?([a-z].*?|(?<=x)\d{4})|([a-z].*?\d.*?)\s*[x*:]\s*(\d{1,4}))", re.IGNORECASE
)


def key_meant(name: str) -> str | None:
    """Returns the key that an unknown name means, with ``!`` in front for its opposite; None without one."""
    if re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", name) and name.lower() not in EVERY:
        return None if name.partition("_")[2].lower() in EVERY else f"engine.env.{name}"
    plain = name.lower().replace("-", "_")
    if re.fullmatch("[A-Z0-9]{8,}", name) and plain not in _TABLE["names"]:
        return f"engine.env.{name}"
    if plain != name and plain in NODES:
        return plain
    of_tools = (keys.get(plain.replace("_", "-")) for keys in OF_TOOLS.values() if len(plain) > 3)
    known = _TABLE["names"].get(plain) or next(filter(None, of_tools), None)
    if known is None and plain.endswith("_proxy"):
        return f"engine.env.{name}"
    if known is None and plain.startswith(_OF_VARIABLES) and not {plain, plain.partition("_")[2]} & {*EVERY}:
        return f"engine.env.{plain.upper()}"
    if known is None and (theirs := counterpart("--" + plain.replace("_", "-"))) is not None:
        known = theirs.argument
    return known or _opposite(plain) or _below_a_node(plain)


def mistyped(name: str) -> str | None:
    """Returns the key that a name misspells by one typo (of its spellings here, as SGLang's flag or elsewhere), or that
    has the same words; None if two keys match."""
    known, words = {**_spellings(), **{key: key for key in known_keys()}}, sorted(_words(name))
    meant = {key for one in surest(name, known) if (key := known[one])}
    meant = meant or {key for one, key in known.items() if key and len(words) > 1 and sorted(_words(one)) == words}
    return meant.pop() if len(meant) == 1 else None


@functools.lru_cache(maxsize=1)
def _spellings() -> Mapping[str, str | None]:
    theirs = {
        flag.lstrip("-").replace("-", "_"): row.argument for flag, row in counterparts().items() if flag[:2] == "--"
    }
    ours = {flag.lstrip("-").replace("-", "_"): name for flag, name in names_by_flag().items()}
    return {**theirs, **_TABLE["names"], **ours, **{name: name for name in (*EVERY, *NODES)}}


def keys_like(name: str, most: int) -> list[str]:
    """Returns the keys that share the rarest words of an unknown name, in a spelling or in their help, likeliest first;
    none below the smallest share."""
    typed, score = _words(name) if len(name) > 1 else frozenset(), dict[str, float]()
    spelled = {**{key: key for key in known_keys()}, **_spellings()}
    texts = [(key.lstrip("!"), _words(one), _OF_NODE if "." in key else 1.0) for one, key in spelled.items() if key]
    if len(typed) > 1:  # one word alone is in a help text by chance
        texts += [(one.name, _words(one.arg.help), _OF_HELP) for one in FIELDS.values()]

    def is_said(part: str, word: str) -> bool:
        return part == word or (min(len(part), len(word)) > 3 and (word.startswith(part) or part.startswith(word)))

    found = {part: [text for text in texts if any(is_said(part, one) for one in text[1])] for part in typed}
    rarity = {part: log((len(texts) + 1) / (1 + len({key for key, *_ in having}))) for part, having in found.items()}
    shared: Counter[int] = Counter()
    for part, having in found.items():
        shared.update({id(text): rarity[part] for text in having})
    for text in (text for text in texts if id(text) in shared):
        key, words, rate = text
        others = len(words) - sum(text in having for having in found.values()) if rate != _OF_HELP else 0
        share = rate * shared[id(text)] / sum(rarity.values()) / (1 + 0.15 * others)
        score[key] = max(score.get(key, 0.0), share)
    near = sorted((key for key in score if score[key] >= _LEAST_SHARED), key=lambda key: (-score[key], len(key), key))
    return near[:most]


def is_of_config(name: str) -> bool:
    """Returns whether one of our copies of config.json has a field of this name."""
    return name.lower().replace("-", "_") in _fields_of_configs()


@functools.lru_cache(maxsize=1)
def _fields_of_configs() -> frozenset[str]:
    texts = (path.read_text(encoding="utf-8") for path in (conf_dir() / "configs").glob("*--*.json"))
    return frozenset(field for text in texts for field in re.findall(r'"([^"\\]+)": ', text))


def part_known(name: str) -> str | None:
    """Returns the longest word of a name that also occurs in an argument's name, or None."""
    parts = sorted(_words(name) - _USUAL, key=len, reverse=True)
    return next((part for part in parts if any(part in one for one in EVERY)), None)


@functools.lru_cache(maxsize=8192)
def _words(text: str) -> frozenset[str]:
    return frozenset(word.rstrip("s") or word for word in re.findall("[a-z0-9]+", text.lower()))


def _opposite(name: str) -> str | None:
    """Returns ``!disable_cuda_graph`` for ``enable_cuda_graph``; None without a counterpart."""
    stem = next((name.removeprefix(head) for head in _OPPOSITES if name.startswith(head)), None)
    same, other = ("enable_", "disable_") if name.startswith(("enable_", "use_")) else ("disable_", "enable_")
    if stem is None:
        return None
    return next((f"{mark}{head}{stem}" for mark, head in (("", same), ("!", other)) if f"{head}{stem}" in EVERY), None)


def _below_a_node(name: str) -> str | None:
    """Returns ``bench.concurrency`` for ``concurrency``; None if an argument ends with the name, or a node is near."""
    if any(argument.endswith(f"_{name}") for argument in EVERY) or nearest(name, NODES):
        return None
    known = known_keys()
    found = (key for node in _NODES_SEARCHED if (key := f"{node}.{name}") in known)
    return next((key for key in found if not any(one.startswith(f"{key}.") for one in known)), None)


@functools.lru_cache(maxsize=1)
def known_keys() -> tuple[str, ...]:
    """Returns every argument, and every key of two or three names below a node of ours."""
    return tuple(_known_keys())


def _known_keys() -> Iterator[str]:
    yield from EVERY
    for item in fields(Root):
        if item.name in NODES and is_dataclass(item.type):
            for key in fields(item.type):
                yield f"{item.name}.{key.name}"
                below = fields(key.type) if is_dataclass(key.type) else ()
                yield from (f"{item.name}.{key.name}.{one.name}" for one in below)


def may_be(meant: str, value: str) -> bool:
    """Returns whether ``value`` suits the key that ``key_meant`` found: a switch takes no name, and other keys take
    neither true nor false."""
    field, plain = EVERY.get(meant.lstrip("!")), value.lower()
    if meant.startswith("bench.") and re.fullmatch(r"[a-z][\w-]*\.\w+|[^:]*/.*", plain):
        return meant in ("bench.path", "bench.quality", "bench.trace")  # a file
    if meant.startswith("gpu.") and plain in ("true", "false"):
        return False
    if meant == "gpu" and not is_digits(value):
        presets = [path.stem for path in (conf_dir() / "gpu").glob("*.yaml")]
        return value in presets or bool(gpus_meant(value, presets))
    if field is None or "${" in value or meant == "ep_size" or (plain in OFF and turned_off(meant)):
        return True
    if (choices := field.arg.choices) and not field.is_list and fitting_problem(field.name, value, None):
        return nearest(value, map(str, choices)) is not None or any(values_meant(field, value))
    return switch_meant(plain) is not None if field.is_flag else plain not in ("true", "false")


def switch_meant(value: str) -> str | None:
    """Returns ``true`` or ``false`` for a word that means one of them, else None."""
    plain = value.lower()
    if plain in (*_ON, *_OFF):
        return "true" if plain in _ON else "false"
    return nearest(plain, ("true", "false")) if len(plain) > 1 else None


def setting_of(meant: str, value: str, typed: Mapping[str, str]) -> str:
    """Returns the word that sets the key found by ``key_meant``; ``typed`` are the other typed values."""
    if meant == "ep_size" and not is_digits(value):
        size = typed.get("tp_size", "")
        value = size if is_digits(size) else "${tp_size}"
    if value.lower() in OFF and (off := turned_off(meant)):
        return off
    if meant.startswith("!"):
        return word(meant[1:], "false" if value.lower() in _ON else "true")
    field = EVERY.get(meant)
    if meant == "engine.env" and re.match(r"\w+=", value):
        return setting_of(f"engine.env.{value.partition('=')[0]}", value.partition("=")[2], typed)
    if is_secret_name(meant.rpartition(".")[2]):
        return f"{meant}=VALUE"
    if field is not None and field.is_flag and (switch := switch_meant(value)):
        value = switch
    return word(meant, value)


def hub_page(address: str) -> tuple[str, str | None] | None:
    """Returns the repository of a page on the Hugging Face hub and its revision (None: main); None for other text."""
    if cached := re.fullmatch(r"models--([\w.-]+?)--([\w.-]+)", address):  # a folder of the hub's cache
        return f"{cached[1]}/{cached[2]}", None
    page = _HUB_PAGE.fullmatch(address) or re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@|:(?=latest$))([\w./-]+)", address)
    if page is None or page[1].partition("/")[0] in ("datasets", "spaces"):
        return None
    return page[1], page[2] if page[2] not in ("main", "latest") else None


def as_usual(model: str) -> tuple[float, int, str]:
    """Orders model presets by the usual meaning of a family's name: smallest first, but those below four billion
    parameters after the others with a size."""
    size = re.search(r"(\d+)x(\d+)b|(0_\d+|\d+)b(?:_|$)", model)
    billions = float("inf")
    if size:
        billions = float(size[3].replace("_", ".")) if size[3] else float(size[1]) * float(size[2])
    return (billions if billions >= 4 else 1e3), len(model), model


def path_meant(path: str) -> str | None:
    """Converts a Windows path: ``./models`` for ``.\\models``, and ``/mnt/c/models`` (WSL) for ``C:\\models``; None for
    other text."""
    drive = re.fullmatch(r"([A-Za-z]):[\\/](.*)", path)
    if drive is None and not re.match(r"\.{0,2}\\+[\w.]|[\w.-]+\\[\w.\\-]+$", path):
        return None
    below = re.sub(r"\\+", "/", drive[2] if drive else path)
    return f"/mnt/{drive[1].lower()}/{below}" if drive else below


def presets_of(checkpoint: str) -> list[str]:
    """Returns the presets of a checkpoint by its name on the hub, without organization and in any spelling."""
    plain = re.sub(r"[\W_]", "", checkpoint).lower()
    paths = {path.stem: checkpoint_of(path.stem) or "" for path in sorted((conf_dir() / "model").glob("*.yaml"))}
    return [name for name, path in paths.items() if re.sub(r"[\W_]", "", path.rpartition("/")[2]).lower() == plain]


def checkpoint_of(preset: str) -> str | None:
    """Returns the checkpoint that our preset names itself; None without one."""
    file = conf_dir() / "model" / f"{preset}.yaml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(r"^model_path: (.*/.+)$", text, re.MULTILINE)
    return found[1] if found else None


def gpus_meant(value: str, options: Sequence[str]) -> list[str]:
    """Returns the words for each GPU class that was probably meant, likeliest first: ``gpu=h100 gpu.count=8`` for
    ``8xh100``, the class in ``NVIDIA H100 80GB``."""
    if family := _TABLE["families"].get(re.sub(r"[-_ ]+|\.\d*(?:xlarge|metal)$", " ", value.lower()).strip()):
        return [f"gpu={option}" for option in family.split()]
    flat = {option.replace("_", ""): option for option in options}
    value = re.sub(r"^(\d{1,2})x(\d{1,2})(?=x)", lambda sizes: str(int(sizes[1]) * int(sizes[2])), value)  # 2x8xh200
    counted = None if re.sub(r"[\W_]", "", value).lower() in flat else _TIMES.fullmatch(value)
    count, name = (counted[1] or counted[4], counted[2] or counted[3]) if counted else ("", value)
    parts = [part for part in re.split(r"[\W_]+", name.lower()) if part and part not in _TABLE["vendors"]]
    if "".join(parts) in _TABLE["without_preset"] or re.fullmatch(MEMORY, value, re.IGNORECASE):
        return []
    heads = (("".join(parts[:count]), parts[count:]) for count in range(len(parts), 0, -1))
    same, rest = next(((flat[head], behind) for head, behind in heads if head in flat), (None, []))
    also = [
        one for one in options if same and set(same.split("_")) != (own := set(one.split("_"))) and own <= set(parts)
    ]
    if same and rest and (also or not _says_memory_of(same, rest)):
        more = [one for one in also if not set(one.split("_")) < set(same.split("_"))]
        return [f"gpu={one}" for one in (same, *more)] if more else []
    begun = [option for key, option in flat.items() if key.startswith("".join(parts) or "-")]
    if len(parts) == 1 and re.fullmatch(r"\d{4}|\d{3}[a-z]", parts[0]):
        begun = [option for option in options if option.endswith(f"_{parts[0]}")]
    begins = "".join(parts).rstrip("0123456789")[:1]
    near = [one for one in (nearest("".join(parts), options),) if one and begins and one.startswith(begins)]
    near = [one for one in near if not letters_behind("".join(parts), one)]  # an A10G is no A10
    letters = re.sub("[0-9]", "", "".join(parts))
    near = [one for one in near if len(letters) > 4 or letters == re.sub("[0-9_]", "", one)]  # g200 may be several
    if is_digits(name) and 0 < int(name) <= 16:
        count, same = name, "h100"
    found = [same] if same else begun[:3] if begun else near[:1]
    return [f"gpu={option}{_counted(option, int(count))}" if count else f"gpu={option}" for option in found]


def _counted(option: str, count: int) -> str:
    """Returns the words for a number of GPUs: of one machine, or of several where each has its usual four or more."""
    usual = _number_of(option, "count") or 1
    if usual >= 4 and count > usual and count % usual == 0:
        return f" nnodes={count // usual} tp_size={count}"
    return f" gpu.count={count}"


def _says_memory_of(option: str, words: Sequence[str]) -> bool:
    """Returns whether the words after a class's name only state its memory."""
    sizes = [int(size[1]) for word in words if (size := _MEMORY.fullmatch(word)) and size[1]]
    known = _number_of(option, "memory_mib")
    return all(map(_MEMORY.fullmatch, words)) and all(
        known and abs(size - known / 1000) < 0.15 * size for size in sizes
    )


def _number_of(option: str, key: str) -> int | None:
    path = conf_dir() / "gpu" / f"{option}.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found, below = (re.search(rf"^{begin}(\w+)", text, re.MULTILINE) for begin in (f"{key}: ", r"defaults: \["))
    return int(found[1]) if found else _number_of(below[1], key) if below else None


def letters_behind(typed: str, name: str) -> str:
    """Returns letters after a complete name, which mean another product (GLM-4.5V is not GLM-4.5)."""
    plain, begin = (re.sub(r"[\W_]", "", text).lower() for text in (typed, name))
    rest = plain[len(begin) :] if plain.startswith(begin) else ""
    return rest if rest.isalpha() and rest not in ("it", "yaml", "exp") else ""
