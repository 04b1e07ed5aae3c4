"""The help screens: one short overview, and a search over the arguments."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from sglang_hydra.compose import Composer
from sglang_hydra.errors import ConfigError
from sglang_hydra.fields import FIELDS
from sglang_hydra.findings import Finding
from sglang_hydra.overrides import nearest
from sglang_hydra.screen import Line, columns, shown, text

_WIDTH = 100
_FLAGS = (
    ("--help WORD", "arguments that have WORD in their name or their help"),
    ("--json", "plan, check, explain: the same for machines"),
    ("--strict", "check: fail also on what only we refuse"),
    ("--config-dir DIR", "search DIR for config groups before ours"),
    ("-- FLAGS", "SGLang's own flags: python serve.py plan -- --model-path org/name --tp 8"),
)


def overview(composer: Composer) -> list[Line]:
    """Verbs, groups with their options, flags, and how to find an argument."""
    from sglang_hydra.cli import VERBS

    lines: list[Line] = [
        [text("python serve.py [VERB] [key=value ...]", "bold")],
        [text("Name the GPU and the model; get a configuration that is exact, explained and checked, then serve it.")],
        [],
        [text("  python serve.py plan gpu=h200 model=gpt_oss"), text("   what would be started, and why", "dim")],
        [text("  python serve.py model=tiny"), text("                    a server on any machine", "dim")],
        [],
        [text("Verbs", "bold")],
        *columns([[text(verb, "cyan"), text(said)] for verb, said in VERBS.items()]),
        [],
        [text("Groups", "bold")],
    ]
    for group in composer.groups():
        options = ", ".join(composer.options(group))
        wrapped = textwrap.wrap(options, _WIDTH - 12)
        lines += [[text(f"  {group if not row else '':10}", "cyan"), text(part)] for row, part in enumerate(wrapped)]
    lines += [
        [text("  any other model: model=org/name, model=./folder; all facts of a group: gpu.count=4", "dim")],
        [],
        [text("Flags", "bold")],
        *columns([[text(flag, "cyan"), text(said)] for flag, said in _FLAGS]),
        [],
        [text(f"The {len(FIELDS)} arguments of SGLang 0.5.2 are keys under their own names (tp_size=8).")],
    ]
    return lines


def matching_fields(words: Sequence[str]) -> list[Line]:
    """The arguments that match every word. Raises ConfigError, with the nearest name, when none does."""
    found = [
        field
        for field in FIELDS.values()
        if all(word.lower() in f"{field.name} {' '.join(field.flags)} {field.arg.help}".lower() for word in words)
    ]
    if not found:
        near = nearest("_".join(words), FIELDS)
        raise ConfigError(
            Finding(
                "error", "CLI016", f"no argument matches {' '.join(words)!r}", hint=f"--help {near}" if near else None
            )
        )
    lines: list[Line] = []
    for field in found:
        kind = field.type if not field.arg.choices else "|".join(map(str, field.arg.choices))
        unit = f", {field.arg.unit}" if field.arg.unit else ""
        lines.append(
            [text(field.name, "bold cyan"), text(f" = {shown(field.default)}"), text(f"  ({kind}{unit})", "dim")]
        )
        said = field.arg.help + (f" null: {field.arg.none}." if field.arg.none else "")
        lines += [[text(f"    {part}")] for part in textwrap.wrap(said, _WIDTH)]
    lines += [[], [text("Where a value comes from: python serve.py explain FIELD gpu=... model=...", "dim")]]
    return lines
