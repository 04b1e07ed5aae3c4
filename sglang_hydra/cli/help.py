"""Builds the help screens: a short overview, and a search in the groups and arguments."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from sglang_hydra.arguments.every import EVERY, fields_of
from sglang_hydra.arguments.fields import Field
from sglang_hydra.arguments.tables.table import nearest_known
from sglang_hydra.cli.id_pages import id_screen
from sglang_hydra.cli.invocation import Invocation
from sglang_hydra.cli.shared import composer_of
from sglang_hydra.compose.composer import Composer
from sglang_hydra.releases.records import default_release, newest_release
from sglang_hydra.show.key_help import GROUPS, below, key_of, keys
from sglang_hydra.show.keys import rows_of, screen
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.flags import FLAGS, TASKS, VERBS
from sglang_hydra.text.screen import Line, columns, room, shown, text, write
from sglang_hydra.text.words import nearest, program

_KNOWN = {
    "model": ("deepseek_v3", "gpt_oss", "llama_3_1_8b", "qwen3_8b"),
    "gpu": ("h100", "h200", "b200", "a100_80gb", "mi300x", "rtx_4090"),
}
"""The options that the overview names for groups with many."""
_MOST_OPTIONS = 100

_ARGV = ("-- FLAGS", "SGLang's own flags: plan -- --model-path org/name --tp 8")
"""What follows a bare ``--``, listed with our own flags."""

_EVERYWHERE = {"version": ()}
"""Flags that every verb accepts, with the verbs whose help shows them."""

_NODES_OF = {"serve": ("launch",), "bench": ("bench", "sweep"), "resume": ("sweep",), "fit": ("fit", "colocate")}
"""The nodes that belong to one verb."""


def flags() -> list[tuple[str, str]]:
    return [*((flag.shown, flag.about) for flag in FLAGS if flag.about), _ARGV]


def overview(composer: Composer) -> list[Line]:
    """Returns the overview: verbs by task, groups and options, common flags, and how to find an argument."""
    called = program()
    examples = (
        ("plan gpu=h200 model=gpt_oss", "show the server that would start, and why"),
        ("model=tiny", "a server on any machine"),
    )
    lines: list[Line] = [
        [text(f"{called} [VERB] [FILE.yaml] [key=value ...]", "bold")],
        [text("Name the GPU and the model; get a configuration that is exact, explained and checked, then serve it.")],
        *columns([[text(f"{called} {typed}"), text(about, "dim")] for typed, about in examples]),
        [],
        [text("Verbs", "bold")],
        *columns([[text(task), text(", ".join(verbs), "cyan")] for task, verbs in TASKS.items()]),
        [text(f"  {called} --help VERB shows one verb, its flags and keys", "dim")],
        [],
        [text("Groups", "bold")],
    ]
    for group in composer.groups():
        options = composer.options(group)
        if group in _KNOWN:
            some = [option for option in _KNOWN[group] if option in options]
            options = [*some, f"... {len(options)} in all: {called} {group}s"]
        elif len(options) > _MOST_OPTIONS:
            options = [f"{len(options)} published configurations; the verb recipes lists them"]
        lines += _group_lines(group, options) if options else []
    everywhere = [(flag.shown, flag.about) for flag in FLAGS if flag.about and not flag.verbs]
    version = default_release()
    return [
        *lines,
        [text("  any other model: model=org/name, model=./folder; the keys of a group: gpu.count=4", "dim")],
        [],
        [text("Flags", "bold")],
        *columns([[text(shown, "cyan"), text(about)] for shown, about in [*everywhere, _ARGV]]),
        [text(f"The {len(_arguments())} arguments of SGLang {version} are keys under their own names (tp_size=8).")],
    ]


def of_verb(verb: str) -> list[Line]:
    """Returns the help of one verb: what it does, its flags, and which of our keys it reads."""
    called = program()
    lines: list[Line] = [[text(f"{called} {verb}", "bold")], [text(f"  {VERBS[verb]}")], *_formats(verb), []]
    going = [flag for flag in FLAGS if flag.about and verb in (flag.verbs or _EVERYWHERE.get(flag.sets, (verb,)))]
    lines += [[text("Flags", "bold")], *columns([[text(each.shown, "cyan"), text(each.about)] for each in going]), []]
    for group in _NODES_OF.get(verb, ()):
        keys = [key.name for key in below(group) if key.name not in (f"{group}.name", f"{group}.args")]
        lines += _group_lines("keys", keys, "dim")
        lines += [[text(f"  {called} explain {group}: explains each of them", "dim")], []]
    return [*lines, [text(f"{called} --help shows every verb and group, --help WORD finds arguments by a word", "dim")]]


def _formats(verb: str) -> list[Line]:
    if verb != "export":
        return []
    from sglang_hydra.convert.export.registry import FORMATS

    return columns([[text(f"    {name}", "cyan"), text(each.about)] for name, each in FORMATS.items()])


def found_by(words: Sequence[str], composer: Composer) -> list[Line]:
    """Returns the help of the verb, group or key with this name, and of the arguments that match every word, by name
    first.

    The arguments are the default release's, with its choices and defaults, then those of other releases. If no name
    matches, searches our keys by their help too. Raises ConfigError, with the nearest name, without a match."""
    lines: list[Line] = [[text(f"  {word:10}", "cyan"), text(VERBS[word])] for word in words if word in VERBS]
    if "export" in words:
        lines += _formats("export")
    lines += _own(words, composer)
    own = _arguments()
    every = {**own, **EVERY, **own}.values()
    texts = [(one, f"{one.name} {' '.join(one.flags)} {one.arg.help}".lower()) for one in every]
    found = sorted(
        (field for field, all_text in texts if all(word.lower() in all_text for word in words)),
        key=lambda field: (
            field.name not in words,
            field.name not in own,
            not any(word.lower() in field.name for word in words),
        ),
    )
    if not found and not lines:
        near = nearest("_".join(words), [*EVERY, *keys()])
        hint = f"{program()} --help {near}" if near else f"{program()} --help shows the groups"
        raise ConfigError.of("CLI016", f"no argument matches {' '.join(words)!r}", hint=hint)
    lines += [[]] if lines and found else []
    for field in found:
        lines += _field_lines(field)
    where = f"Where a value comes from: {program()} explain NAME gpu=... model=..."
    return [*lines, [], [text(where, "dim")]]


def _own(words: Sequence[str], composer: Composer) -> Iterator[Line]:
    """Yields the lines of the group or key with this name, else of every key of ours that matches all words."""
    name = words[0] if len(words) == 1 else ""
    if name in composer.groups():
        yield from _group_lines(name, composer.options(name))
    if name in GROUPS:
        yield from rows_of(below(name))
    elif key_of(name) is not None:
        yield from screen(name, composer)
    elif name not in EVERY and name not in composer.groups():
        wanted = [word.lower() for word in words]
        texts = {name: f"{name} {key.about}".lower() for name, key in keys().items()}
        yield from rows_of([keys()[name] for name in texts if all(word in texts[name] for word in wanted)])


def _arguments() -> Mapping[str, Field]:
    """Returns the arguments of the default release, or of the nearest known one."""
    return fields_of(nearest_known(default_release()) or newest_release())


def _group_lines(group: str, options: Sequence[str], style: str = "cyan") -> Iterator[Line]:
    for row, part in enumerate(textwrap.wrap(", ".join(options), room() - 12) or [""]):
        yield [text(f"  {group if not row else '':10}", style), text(part)]


def _field_lines(field: Field) -> Iterator[Line]:
    choices = [str(choice) for choice in field.arg.choices or ()]
    kind = "|".join(choices) if 0 < len(choices) <= 8 else field.type
    unit = f", {field.arg.unit}" if field.arg.unit else ""
    default = "" if field.required else f" = {shown(field.default)}"
    yield [text(field.name, "bold cyan"), text(default), text(f"  ({kind}{unit})", "dim")]
    about = (field.arg.help or ", ".join(field.flags) + ".") + (f" null: {field.arg.none}." if field.arg.none else "")
    about += f" One of {', '.join(choices)}." if len(choices) > 8 else ""
    if field.name not in _arguments():
        about += f" SGLang {default_release()} does not have it."
    for part in textwrap.wrap(about, room() - 4):
        yield [text(f"    {part}")]


def show_help(invocation: Invocation) -> int:
    """Shows the overview, the help of the typed verb, or what matches the words."""
    typed = [request.text for request in invocation.requests]
    words = [word for word in typed if "=" not in word] or typed
    composer = composer_of(invocation)
    verb = next((word for word in words[:1] if word in VERBS and not invocation.named), None)
    if verb is not None and len(words) == 1:
        write(of_verb(verb))
    elif invocation.named and all("=" in word for word in words):
        write(of_verb(invocation.verb))
    elif words and (page := id_screen(words[0].upper())):
        write(page)
    else:
        write(found_by(words, composer) if words else overview(composer))
    return 0
