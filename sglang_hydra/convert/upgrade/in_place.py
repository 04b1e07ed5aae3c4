"""Changes a foreign file in place: only arguments, the image and pinned releases.

Edits the text at the places of the flags, so that comments, order and everything outside the servers stay. Reads the
new text again, with the release of its image: writes nothing if it does not start the planned servers, or cannot be
launched."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml

from sglang_hydra.arguments.tables.order import same_release
from sglang_hydra.arguments.tables.table import Release, nearest_known, release
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.export.docker import driver_lines
from sglang_hydra.convert.export.images import image_of, images, without_digest
from sglang_hydra.convert.importing.manifests import started, words_of
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.convert.importing.proof import argv_of, differences
from sglang_hydra.convert.importing.reading import version_in
from sglang_hydra.convert.importing.script import UNREAD
from sglang_hydra.convert.importing.sources import Source, launches_of
from sglang_hydra.convert.made_for import ANNOTATION, TITLE
from sglang_hydra.convert.upgrade.upgraded import Upgrade, composable
from sglang_hydra.planning.recorded.input_files import WHOLE
from sglang_hydra.show.verdicts import judged
from sglang_hydra.text.budget import yaml_nodes
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Level
from sglang_hydra.text.words import short

_IN_LIST = r"[ \t]*(?:#[^\n]*)?\n[ \t]*-[ \t]+|\s*,\s*"
_GAP = rf"(?:[ \t]*\\\n[ \t]*|[ \t]+|{_IN_LIST}|\n[ \t]+(?!-[ \t]))"
_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,\"'\\\]#]+)"
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#.*$", re.MULTILINE)
_PUBLISHER, _HUB = "lmsysorg/sglang:", "docker.io/"
_TAGS = "hub.docker.com/r/lmsysorg/sglang/tags"
_IMAGE = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)*/?[\w.-]*(?:sglang|sgl-dev)[\w./-]*[:@][\w.@:-]+")
_PIN = r"(sglang(?:\[[\w,-]{0,80}\])?==)"
_PLAN = re.compile(r"((?:sglang-hydra/)?plan[=:] ?\"?)[0-9a-f]{16}")
_MARKED = re.compile(
    rf"^.*(?:{TITLE}: |; once more: |# The image holds |{ANNOTATION}: |sglang-hydra/(?:plan|version): "
    r"|: plan [0-9a-f]{16}$).*$",
    re.M,
)


def changed_text(
    file: Path, text: str, made: Sequence[Upgrade], composer: Composer, variables: Mapping[str, str]
) -> str:
    """Returns the text of a file with the changes of all its servers. Raises ConfigError (UPG007) if the text cannot be
    changed at the places of its flags."""
    changed = text
    spans = server_spans(text)
    edits = [list(_edits(one)) for one in made]
    if len(spans) != len(made):  # workers of a group, commands in a text
        spans, edits = spans or [(0, len(text))], [[edit for each in edits for edit in each]] * (len(spans) or 1)
    for (first, last), each in reversed(list(zip(spans, edits, strict=True))):
        part = changed[first:last]
        for edit in each:
            part = _outside_of_comments(part, edit)
        changed = changed[:first] + part + changed[last:]
    held = {image: version_in([image]) for image in _images_in(file, text, composer)}
    for one in made:
        changed = _with_release(changed, one, {one.start.version, *filter(None, held.values())})
    typed = made[0].plan.nodes.launch.image
    for image in [image for image in held if held[image] is None and typed is not None]:
        whole = re.compile(rf"(?<![\w./-]){re.escape(image)}(?![\w.:@/-])")
        changed = _outside_of_comments(changed, partial(whole.sub, lambda _: str(typed)))
    _check(file, text, changed, made, composer, variables)
    return changed


def image_findings(file: Path, text: str, made: Sequence[Upgrade], composer: Composer) -> list[Finding]:
    """Returns an error for each image of the changed ``text`` with another release than its flags, and for one build of
    an unknown release (a digest); a warning for each tag of an unknown release (UPG008). An image that was typed holds
    the new release."""
    new, typed = made[0].version, made[0].plan.nodes.launch.image
    hint = f"launch.image=REPOSITORY:TAG, an image of SGLang {new}; {_TAGS} has what is published"
    found = []
    for image in _images_in(file, text, composer):
        holds = version_in([image])
        if holds is None and image != typed:
            message = f"the image {short(image)} does not say which SGLang it holds: it must be {new} from now on"
            level: Level = "error" if "@" in image else "warning"  # one build stays what it is
            found.append(Finding(level, "UPG008", message, ("launch.image",), hint))
        elif holds is not None and not same_release(holds, new):
            message = f"the image {short(image)} holds SGLang {holds}, and the flags would be those of {new}"
            found.append(Finding("error", "UPG008", message, ("launch.image",), hint))
    return found


def _images_in(file: Path, text: str, composer: Composer) -> list[str]:
    launches = launches_of(Source(str(file), text), composer)
    words = dict.fromkeys(word for launch in launches for word in launch.mentions)
    return [word for word in words if _IMAGE.fullmatch(word) or word.removeprefix(_HUB) == _PUBLISHER[:-1]]


def refusals(
    file: Path, text: str, composer: Composer, typed: Sequence[Request], variables: Mapping[str, str]
) -> list[Finding]:
    """Returns why ``check`` would refuse the changed ``text`` of a file with the ``typed`` overrides (UPG009)."""
    found = native_reader(composer, typed, variables)(file, text)
    found = found[:1] if found[0][0] == WHOLE else found
    verdicts = [(name or str(file), judged(composer, document, typed).verdict) for name, document in found]
    return [
        Finding("error", "UPG009", f"the new {name} {verdict.sentence}: {verdict.why}")
        for name, verdict in verdicts
        if verdict.launchable is False
    ]


def _images_of(version: str) -> str:
    """Returns a pattern for the images of a release by their tags, with an optional digest."""
    name = r"(?<![\w.-])(?=[\w./-]{0,200}(?:sglang|:[\w.-]{0,80}sgl-dev))\w[\w./-]{0,200}"
    tag = rf"(?:[\w.-]{{0,80}}[-_])?v?{re.escape(version)}(?:-[\w.-]*)?"
    return rf"{name}:{tag}(?:@sha256:[0-9a-f]{{64}})?(?![\w.-])"


def difference(name: str, before: str, after: str) -> list[str]:
    """Returns the lines of a unified diff."""
    old, new = before.splitlines(), after.splitlines()
    return list(difflib.unified_diff(old, new, name, name, lineterm=""))


def _edits(one: Upgrade) -> Iterator[Callable[[str], str]]:
    """Yields the edits to the text of one server: its arguments, then its variables."""
    old = release(nearest_known(one.start.version) or one.start.version)
    for item in one.steps.respelled:
        yield partial(_with_words, _flags(old, item.key, item.before[:1]), item.before[1:], item.after)
    for broken in one.steps.broken:
        listed = broken.value if isinstance(broken.value, list) else [broken.value]
        values = [] if isinstance(broken.value, bool) else [str(value) for value in listed]
        yield partial(_with_words, _flags(old, broken.key, [f"--{broken.key.replace('_', '-')}"]), values, ())
    for flag in one.subject.idle:  # the old release accepts and ignores it
        if flag not in _all_flags(release(nearest_known(one.version) or one.version)):
            yield partial(_with_words, [flag], [], ())
    for variable in one.variables:
        if variable.state == "renamed" and variable.place == "engine.env" and variable.instead:
            yield partial(re.compile(rf"\b{re.escape(variable.name)}\b").sub, variable.instead)


def _flags(old: Release, name: str, more: Sequence[str]) -> list[str]:
    argument = old.arguments.get(name)
    others = [flag for flag, item in old.old_flags.items() if item.field == name]
    return list(dict.fromkeys([*(argument.flags if argument else ()), *more, *others]))


def _outside_of_comments(text: str, change: Callable[[str], str]) -> str:
    """Applies ``change`` to the text with a number in place of each comment."""
    comments: list[str] = []

    def number(found: re.Match[str]) -> str:
        comments.append(found[2])
        return f"{found[1]}#{len(comments) - 1}"

    changed = change(re.sub(r"(^|[ \t])(#[^\n]*)", number, text, flags=re.MULTILINE))
    return re.sub(r"(^|[ \t])#(\d+)$", lambda found: found[1] + comments[int(found[2])], changed, flags=re.MULTILINE)


def _with_words(flags: Sequence[str], values: Sequence[str], words: Sequence[str], text: str) -> str:
    """Replaces an argument of the old release, its ``flags`` and ``values``, by ``words``; no words remove it."""
    names = "|".join(map(re.escape, sorted(flags, key=len, reverse=True)))
    keys = "|".join(re.escape(flag[2:]) + "|" + re.escape(flag[2:].replace("-", "_")) for flag in flags)
    if words and list(words[1:]) == list(values):
        text = re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", lambda _: words[0], text)
        return re.sub(rf"^([ \t]*(?:- )?)(?:{keys})(?=:)", lambda found: found[1] + words[0][2:], text, flags=re.M)
    value = rf"(?:=(?:{_VALUE})(?P=quote)|(?P=quote)(?:{_GAP}{_VALUE}){{{len(values)}}})" if values else "(?P=quote)"
    flag = rf"(?P<quote>[\"']?)(?<![\w-])(?:{names})(?![\w-]){value}"
    if not words:
        text = re.sub(rf"[ \t]*\\\n[ \t]*{flag}[ \t]*$", "", text, flags=re.M)  # the last line of a command
        text = re.sub(
            rf"^(?P<indent>[ \t]*)(?:- )?{flag},?[ \t]*\\?(?P<comment>#\d+)?\n", _comment_alone, text, flags=re.M
        )
        text = re.sub(rf"[ \t]*{flag},?", "", text)
        of_key = rf"^(?P<indent>[ \t]*)(?:{keys}):[^\n#]*(?P<comment>#\d+)?\n"
        return re.sub(of_key, _comment_alone, text, flags=re.M)

    def respelled(found: re.Match[str]) -> str:
        """Replaces the old words by the new ones, with the same separators as these or the words before."""
        before = text[: found.start()]
        gaps: list[str] = re.findall(_GAP, found[0]) or re.findall(rf"{_GAP}$", before)
        gap = re.sub(r"[ \t]*(?:#[^\n]*)?(?=\n)", "", gaps[0]) if gaps else ", " if before.endswith("[") else " "
        quote: str = found["quote"]
        if not re.fullmatch(_IN_LIST, gap):
            return quote + " ".join(words) + quote
        quoted = (f"{quote}{word}{quote}" if quote or word.startswith("-") else json.dumps(word) for word in words)
        return gap.join(quoted)

    text = re.sub(flag, respelled, text)
    new = words[1] if len(words) == 2 else "true" if len(words) == 1 else f"[{', '.join(words[1:])}]"
    return re.sub(
        rf"^([ \t]*)(?:{keys}):[^\n#]*?(?=[ \t]*(?:#|$))",
        lambda found: f"{found[1]}{words[0][2:]}: {new}",
        text,
        flags=re.M,
    )


def _comment_alone(found: re.Match[str]) -> str:
    """Returns the comment after a removed flag as a line of its own."""
    return f"{found['indent']}{found['comment']}\n" if found["comment"] else ""


def _with_release(text: str, one: Upgrade, held: Collection[str]) -> str:
    """Replaces the images of releases in ``held``, pinned packages and an export's line by those of the new release.
    Keeps an image without a published counterpart, and a foreign one unless ``launch.image`` names its successor. Keeps
    comments about images, and the registry before a name."""
    old, new = one.start.version, one.version
    text = re.sub(rf"{_PIN}{re.escape(old)}(?![\w.])", rf"\g<1>{new}", text)
    image = image_of(one.plan)
    published = {without_digest(row.image): row for row in images() if row.version in held}
    is_typed = one.plan.nodes.launch.image is not None

    def put(found: re.Match[str]) -> str:
        registry = _HUB if found[0].startswith(_HUB) and not is_typed else ""
        name = found[0].removeprefix(registry)
        is_known = without_digest(name) in published or name.startswith(_PUBLISHER)
        is_known &= image is not None and ("rocm" in name) == (image.vendor == "amd")  # else for other GPUs
        return registry + image.image if image is not None and (is_typed or is_known) else found[0]

    for version in sorted(held, key=len, reverse=True):
        text = _outside_of_comments(text, partial(re.compile(_images_of(version)).sub, put))
    for row in published.values() if image is not None else ():
        for before, after in zip(driver_lines(row), driver_lines(image), strict=False):
            text = text.replace(before, after)

    def marked(found: re.Match[str]) -> str:
        line = re.sub(rf"(?<=[=:\s\"]){re.escape(old)}(?![\w.])", new, found[0])
        line = re.sub(r"(: plan )[0-9a-f]{16}$", rf"\g<1>{one.plan.server_id}", line)
        return _PLAN.sub(rf"\g<1>{one.plan.server_id}", line)

    return _MARKED.sub(marked, text)


def _check(
    file: Path, before: str, after: str, made: Sequence[Upgrade], composer: Composer, variables: Mapping[str, str]
) -> None:
    """Raises ConfigError unless ``after`` starts the planned servers and keeps every comment of ``before``."""
    lost = [line.strip() for line in _COMMENT.findall(before) if line.strip() not in after and not _MARKED.search(line)]
    try:
        by_release = [Request(f"engine.version={made[0].version}", "--to")]
        read = [item for item in native_reader(composer, by_release, variables)(file, after) if item[0] != WHOLE]
    except ConfigError as failure:
        raise _refused(failure.findings[0].message) from failure
    if lost:
        raise _refused(f"the comment {short(lost[0])} would be lost")
    remarks = (text for launch in launches_of(Source(str(file), after), composer) for text in launch.remarks)
    if unread := next((text for text in remarks if text.startswith(UNREAD)), None):
        raise _refused(unread)
    if stale := _stale(file, after, made[0], composer):
        raise _refused(f"{stale} has no place of its own in the file")
    if len(read) != len(made):
        raise _refused(f"{len(made)} servers would become {len(read)}")
    for one, (name, document) in zip(made, read, strict=True):
        found, wanted = (composer.compose(composable(side.requests)) for side in (document, one))
        ours, theirs = (argv_of(side.intent, one.version) or () for side in (wanted, found))
        both = (*differences(ours, theirs, one.version), *differences(theirs, ours, one.version))
        names = {item.name for item in both} - {"random_seed"}
        if names or wanted.nodes.engine.env != found.nodes.engine.env:
            what = ", ".join(sorted(names)[:3]) or "a variable"
            raise _refused(f"{name}: {what} would be another than planned")


def _stale(file: Path, text: str, one: Upgrade, composer: Composer) -> str | None:
    """Returns a remaining flag that only the old release has, or None."""
    old, new = (_all_flags(release(nearest_known(each) or each)) for each in (one.start.version, one.version))
    for launch in launches_of(Source(str(file), text), composer):
        keys = [f"--{key.replace('_', '-')}" for key in launch.values or ()]
        for flag in (*keys, *(word.partition("=")[0] for word in launch.words)):
            if flag in old and flag not in new:
                return flag
    return None


def _all_flags(known: Release) -> set[str]:
    return {*known.old_flags, *(flag for argument in known.arguments.values() for flag in argument.flags)}


def _refused(why: str) -> ConfigError:
    message = f"the file cannot be changed in place: {short(why, 300)}"
    return ConfigError(
        Finding("error", "UPG007", message, hint="upgrade ... -o FILE writes what it starts as a new file")
    )


_WORDS = ("entrypoint", "command", "args")
Span = tuple[int, int]
"""The offsets of the first character and of the one after the last."""


def server_spans(text: str) -> list[Span]:
    """Returns the spans of the containers that start servers, in order; none without containers."""
    try:
        documents = yaml_nodes(text, "manifest", yaml.SafeLoader)
        return sorted({span for document in documents for span in _spans(document, set())})
    except (yaml.YAMLError, ValueError, RecursionError):
        return []


def _spans(node: yaml.Node | None, seen: set[int]) -> Iterator[Span]:
    if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _spans(item, seen)
        return
    values = {str(key.value): value for key, value in node.value}
    words = [word for key in _WORDS if key in values for word in words_of(_plain(values[key]))]
    image = values.get("image")
    if any(True for _ in started(words, {}, "", str(_plain(image)) if image is not None else "")):
        yield node.start_mark.index, node.end_mark.index
        return
    for value in values.values():
        yield from _spans(value, seen)


def _plain(node: yaml.Node) -> str | list[str] | None:
    """Returns the text of a scalar, or the texts of a list."""
    if isinstance(node, yaml.SequenceNode):
        return [str(item.value) for item in node.value if isinstance(item, yaml.ScalarNode)]
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None
