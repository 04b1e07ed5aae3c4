"""Finds the part of a server that failed, and the change that takes it out of use, in the release's names.

``parts.yaml`` has the parts. A change is one that the release has, with a value that it takes and that the server did
not have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice

from sglang_hydra.arguments.reading import options_in, read_options
from sglang_hydra.arguments.secrets import without_secrets
from sglang_hydra.arguments.tables.successors import successor
from sglang_hydra.arguments.tables.table import first_release_of, known_versions, nearest_known, release
from sglang_hydra.releases.records import newest_release
from sglang_hydra.run.diagnose.advice import Advice
from sglang_hydra.run.diagnose.classes import read_table
from sglang_hydra.run.diagnose.log_facts import releases_with
from sglang_hydra.run.diagnose.server_args import CUT
from sglang_hydra.text.budget import read_yaml
from sglang_hydra.text.screen import shown

_MOST = 3
Change = tuple[str, object, str]
"""An argument, or a variable in capitals, its value, and the reason."""
_NAME = re.compile(r"\b[a-z]+(?:_[a-z0-9]+){2,}\b")
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]{2,60})")
_LEAST_WORDS = 4
_OF_THE_MODEL = "transformers_modules/"
_PAIR = re.compile(r"([\w-]{2,40}) version \S{3,40} does not match ([\w-]{2,40}) version \(?(\d[\w.+]*\w)")
_IN_PACKAGES = re.compile(r"^.*-packages/(\w+)/")
_OF_SGLANG = re.compile(r"(?:No module named|module|from) '?sglang\b")
_OPENED = "cannot open shared object file"
_OF_PYTHON = re.compile(r"lib(?:torch|c10|cu|nv|nccl|amd|hip|roc|rccl|hsa|sgl)")
"""Libraries that packages of the Python index have."""
_MODULE = re.compile(r"No module named '?([\w.]{1,80})|\b(lib\w{2,40})\.so(?:\.(\d+))?")
_PACKAGE = re.compile(
    r"(?:cannot import name .{1,80} from|module) '(\w+)|: (Auto)[A-Z]\w+\.|^.*-packages/([\w.]+)/|^(?:\.{3})?/(\w+)/"
)
_ARCHITECTURE = re.compile(r"'([A-Z]\w{3,80})'")
_LISTED = re.compile(
    r"(?i)(?:supported|available|valid|allowed|choose from|one of)[^\[({'\"]{0,40}[\[({]((?:['\"][\w.-]+['\"](?:, )?)+)"
)
_REFUSES = re.compile(r"\b(?:needs?|requires?|only|supports?|supported|unsupported|compatible)\b")
_WORD = re.compile(r"\b[a-z]+_[a-z0-9_]+\b")
_CAPITALS = re.compile(r"\b[A-Z]{3,}(?: [A-Z0-9]{3,})+\b")
_ANYWHERE = "triton"
_OWN = "instead of"
_REFUSED = re.compile(
    r"(?:unrecognized arguments:|ambiguous option:) (--.{1,600}?)(?: could match.*)?$|"
    r"argument (--[\w-]{1,60})\S*: invalid choice: '?([\w.-]{1,60})"
)
_HAS_IT = re.compile(r"SGLang \S+ has it")
# An argument that chooses one of several implementations.
_CHOOSES = re.compile(r"_(?:backend|algorithm|strategy)$")


def advice_on_parts(
    kind: str,
    texts: Sequence[str],
    version: str | None,
    args: Mapping[str, object] | None,
    typed: Collection[str] = (),
) -> Iterator[Advice]:
    """Yields what takes the failed part out of use. ``texts`` are the deciding line, the frames from the innermost on,
    and lines near them; ``args`` are all known arguments, or None, and ``typed`` names those that somebody typed."""
    fitting = [one for one in releases_with(typed) if one in known_versions()]
    at = nearest_known(version or "") or (fitting[-1] if typed and fitting else newest_release())
    line = texts[0]
    if kind == "version_mismatch" or kind == "missing_package":
        yield from _packages(kind, texts, at if version in known_versions() else None)
        texts, args = texts[:1], None
    if kind == "unsupported_architecture":
        yield from _later(line, version)
    elif kind == "bad_flag":
        yield from _flags(line, at)
    elif kind != "version_mismatch":
        yield from _upgrades(kind, texts)
        if variables := list(_variables(texts[:2], at)):
            yield from variables
            return
        named = chain(_chosen(line, at), _named(line, at, args)) if kind in read_table("parts")["of_arguments"] else ()
        found: list[Advice] = []
        for name, value, why in chain(named, _switched(kind, texts, at, args, typed)):
            typed = f"engine.env.{name}={value}" if name.isupper() else f"{name}={shown(value)}"
            if all(not one.text.startswith(f"{typed} ") for one in found):
                found.append(Advice(f"{typed} ({why})", {} if name.isupper() else {name: value}, (), why))
        yield from found[:_MOST]


def _switched(
    kind: str, texts: Sequence[str], at: str, args: Mapping[str, object] | None, typed: Collection[str]
) -> Iterator[Change]:
    """Yields the changes of the parts that the texts show, without an implementation whose own file failed; then those
    of the parts that the arguments switch on. Frames may show a part that only ran: switches then precede backends."""
    parts, all_texts = read_table("parts"), "\n".join(texts)
    found: list[Change] = []
    for text in texts if kind in parts["of_parts"] else ():
        usable = filter(None, (_usable(change, at, args, why) for change, why in _shown_by(text, at, args, all_texts)))
        found += islice(usable, 1)
    offs: list[str] = []
    if args and kind in parts["of_any_part"]:
        offs = [f"{name}=false" for name, value in args.items() if value is True and name.startswith("enable_")]
        offs += [change for _, change in parts["switches"] if change.endswith("=null")]
    offs = [change for change in offs if change.partition("=")[0] not in parts["of_other_purpose"]]
    if args and (offs or (not found and kind in (*parts["of_parts"], *parts["of_arguments"]))):
        offs += [another for name, another in _chosen_parts(at, args).items() if name in typed]
    if args and kind in parts["of_any_part"]:
        offs += [change for change in parts["in_use"] if change.partition("=")[0] in args]
    found += filter(None, (_usable(change, at, args, "a part that is in use") for change in offs))
    framed = kind in parts["of_any_part"] and ".py in " in all_texts
    yield from sorted(found, key=lambda one: framed and not isinstance(one[1], bool) and not one[2].startswith(_OWN))


def _shown_by(text: str, at: str, args: Mapping[str, object] | None, all_texts: str) -> Iterator[tuple[str, str]]:
    """Yields the changes of the parts that a text shows, with the reason: what the arguments chose, whose own file it
    is, then those of the table. Omits an implementation whose own file failed as well, and a change of the
    part that only called what failed."""
    for name, another in _chosen_parts(at, args or {}).items():
        value = str((args or {})[name])
        if re.search(rf"(?i)/{re.escape(value)}(?:_(?:backend|worker|info)\w*)?\.py\b", text):
            yield another, f"{_OWN} {value}, which failed"
    for pattern, change in read_table("parts")["switches"]:
        name, _, value = change.partition("=")
        called = re.search(read_table("parts")["not_if"].get(name, "$^"), all_texts)
        if (found := re.search(pattern, text)) and called is None and f"/{value}.py" not in all_texts:
            yield change, f"takes out what failed: {found[0].strip('/')}"


def _chosen_parts(at: str, args: Mapping[str, object]) -> dict[str, str]:
    """Returns the arguments that choose an implementation, where they were set, each with a change to another one."""
    table = release(at).arguments
    runs_anywhere = dict(change.split("=") for _, change in read_table("parts")["switches"])
    found = {}
    for name in (name for name in args if _CHOOSES.search(name) and name in table):
        value = args[name]
        if isinstance(value, str) and value not in ("", table[name].default):
            another = runs_anywhere.get(name, value)
            found[name] = f"{name}={another if another != value else 'default'}"
    return found


def _usable(change: str, at: str, args: Mapping[str, object] | None, why: str) -> Change | None:
    """Returns a change in the names of a release, or None if it has no such argument or value, or had it already."""
    name, _, text = change.partition("=")
    if name.isupper():
        return (name, text, why) if name in release(at).variables or not name.startswith("SGLANG_") else None
    value: object = release(at).arguments[name].default if text == "default" else read_yaml(text, "argument")
    if name not in release(at).arguments:
        after = successor(name, at)
        name, value = after.name or "", after.value_of(value)
    argument = release(at).arguments.get(name)
    if argument is None or (argument.choices and value not in (*argument.choices, None)):
        return None
    had = args.get(name, argument.default) if args is not None else CUT
    return (name, value, why) if had != value else None


def _variables(texts: Sequence[str], at: str) -> Iterator[Advice]:
    """Yields the variable of the release whose name ends with a name in the line, and whose library the texts name."""
    plain = "\n".join(texts).casefold().replace("_", "")
    for name in (name for name in _NAME.findall(texts[0]) if name.count("_") + 1 >= _LEAST_WORDS):
        ends = f"_{name.upper()}"
        for variable in sorted(one for one in release(at).variables if one.endswith(ends)):
            if variable.removesuffix(ends).partition("_")[2].casefold().replace("_", "") in plain:
                yield Advice(f"engine.env.{variable}=N, which the line names; larger, if a limit was exceeded", {}, ())
                return


def _chosen(line: str, at: str) -> Iterator[Change]:
    """Yields one of the values that a refusal lists, or else the default, if it names an argument in words."""
    listed = _LISTED.search(line)
    values = re.findall(r"[\w.-]+", listed[1]) if listed else []
    words = f" {line.casefold().replace('_', ' ')} "
    for name, argument in release(at).arguments.items() if values else ():
        if argument.choices and f" {name.replace('_', ' ')}" in words:
            allowed = [value for value in values if value in argument.choices]
            best = _ANYWHERE if _ANYWHERE in allowed else allowed[0] if allowed else argument.default
            yield name, best, f"the line lists {', '.join(values)}"


def _named(line: str, at: str, args: Mapping[str, object] | None) -> Iterator[Change]:
    """Yields each argument that the line names and that was set, with its default; then another value of the argument
    that has a choice of this name."""
    table = release(at).arguments
    flags = (flag.replace("-", "_") for flag in _FLAG.findall(line))
    for name in dict.fromkeys((*_NAME.findall(line), *flags)):
        argument = table.get(name)
        if argument is None or argument.required or argument.computed is not None or CUT in (args or ()):
            continue
        if args is None or args.get(name, argument.default) != argument.default:
            yield name, argument.default, "its default; the line names it"
    for name, value in named_choices(line, at):
        others = [one for one in table[name].choices or () if one not in (value, table[name].default)]
        others = [_ANYWHERE] if _ANYWHERE in others else others
        yield from ((name, other, f"instead of {value}") for other in others[:1])


def named_choices(line: str, version: str | None) -> Iterator[tuple[str, str]]:
    """Yields an argument and its value, where a refusal names a value that no other argument of the release takes."""
    table = release(nearest_known(version or "") or newest_release()).arguments
    said = f"{line} {_CAPITALS.sub(lambda found: found[0].lower().replace(' ', '_'), line)}"
    for word in dict.fromkeys(_WORD.findall(said) if _REFUSES.search(line) else ()):
        owners = [name for name, one in table.items() if _CHOOSES.search(name) and word in (one.choices or ())]
        shortest = min(owners, key=len, default="")
        if owners and all(name.endswith(shortest) for name in owners):  # prefill_attention_backend is one's part
            yield shortest, word


def _upgrades(kind: str, texts: Sequence[str]) -> Iterator[Advice]:
    """Yields the command that installs another version of the library whose own file or thread failed."""
    for pattern, package in read_table("parts")["upgrades"] if kind in read_table("parts")["of_upgrades"] else ():
        if any(re.search(pattern, text) for text in texts):
            yield Advice(f"pip install --upgrade {package}, or its version in the image of this release", {}, ())


def _packages(kind: str, texts: Sequence[str], version: str | None) -> Iterator[Advice]:
    """Yields the command that installs what the line lacks, or the version that it asks for, or again the package whose
    code failed."""
    if pair := _PAIR.search(texts[0]):
        yield Advice(f"pip install {pair[1]}=={pair[3]}, the version of {pair[2]}", {}, ())
        return
    found = _MODULE.search(texts[0])
    known = {name: (way, one) for way, named in read_table("parts")["packages"].items() for name, one in named.items()}
    above = next(filter(None, map(_IN_PACKAGES.search, texts[1:])), None)
    if above and above[1] != "sglang" and _OF_SGLANG.search(texts[0]):
        package = known.get(above[1], ("", above[1]))[1]
        yield Advice(f"pip install --upgrade {package}, in a release that was made for this SGLang", {}, ())
        return
    needs = release(version).needs.get("packages", {}) if version else {}
    inner = next(filter(None, map(_PACKAGE.search, texts)), None) if kind != "missing_package" else None
    name = (found[1] or found[2]) if found else next(filter(None, inner.groups())) if inner else ""
    if not name or name.startswith("sglang") or (inner and inner[4] and name not in (*known, *needs)):
        return
    top, library = name.partition(".")[0], bool(found and found[2])
    command, package = known.get(name) or known.get(top) or ("pip install", "" if library else top.replace("_", "-"))
    of_model = next((text for text in texts[1:3] if _OF_THE_MODEL in text), "")
    if "/modeling_" in of_model:
        why = "SGLang's own code of this model then runs, which costs what the model's own code adds"
        yield Advice(f"trust_remote_code=false ({why})", {"trust_remote_code": False}, (), why)
    if package in needs and of_model:
        before = re.sub(r"\D*(\d+).*", r"<\1", needs[package])
        yield Advice(f"pip install '{package}{before}', for which the model's own code was written", {}, ())
        return
    package = f"'{package}{needs[package]}'" if package in needs else package
    if library and package.startswith("nvidia-"):
        package += f"-cu{found[3]}" if found and found[3] and int(found[3]) <= 12 else ""
        package += ", or put CUDA's folder of libraries onto LD_LIBRARY_PATH"
    if found and library and not package and _OPENED in texts[0] and not _OF_PYTHON.match(name):
        command, package = "apt-get install", f"{name.lower()}{found[3] or '-dev'}"  # as Debian names packages
    if package:
        again = "" if found or not command.startswith("pip ") else " --force-reinstall"
        yield Advice(f"{command}{again} {package}", {}, ())


def _flags(line: str, at: str) -> Iterator[Advice]:
    """Yields what to type instead of the flags and values that the release refuses, as its own reader says."""
    refused = _REFUSED.search(line)
    for typed in options_in(f"{refused[1] or refused[2]} {refused[3] or ''}".split() if refused else (), at):
        argument = release(at).arguments.get(typed.word.text.lstrip("-").replace("-", "_"))
        remedies = [one for found in read_options([typed], at, needs_model=False).findings for one in found.shown]
        said = next((str(one) for one in remedies if one.words or _HAS_IT.search(one.said)), "")
        if argument is not None and argument.flags and typed.word.text not in argument.flags:
            said = f"{argument.flags[0]} is the flag of {argument.name} in SGLang {at}"
        elif not said and typed.option is None:
            said = f"leave {typed.word.text} out: SGLang {at} has nothing of this name"
        if said:
            yield Advice(without_secrets(said), {}, ())


def _later(line: str, version: str | None) -> Iterator[Advice]:
    """Yields the first release that has the class of a model, if it comes after ``version``."""
    for name in _ARCHITECTURE.findall(line)[:1]:
        first = first_release_of([name])
        order = known_versions()
        if first in order and (version not in order or order.index(first) > order.index(str(version))):
            yield Advice(f"use SGLang {first} or later: it is the first one with {name}", {}, ())
