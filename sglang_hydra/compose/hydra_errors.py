"""Turns errors of Hydra, OmegaConf and the YAML parser into findings: key, file and line, what to type."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from sglang_hydra.arguments.every import EVERY
from sglang_hydra.compose import recipes
from sglang_hydra.compose.corrections import known_keys
from sglang_hydra.compose.hydra_internals import UNMATCHED
from sglang_hydra.compose.schema import NODES
from sglang_hydra.compose.variables import without_values
from sglang_hydra.text.budget import OverBudget
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding, Remedy
from sglang_hydra.text.locations import shown_path
from sglang_hydra.text.words import nearest, short

_OTHER_PACKAGE = re.compile(
    r"Could not override '([\w./]+)'\.\s+Did you mean to override ([\w@./]+)\?\s+To append .* use \+[\w./]+=(\S+)"
)
"""Hydra's message for a group that is mounted elsewhere; to append it would change nothing of ours."""


@contextlib.contextmanager
def hydra_errors_as_findings(place_of: Callable[[str], str | None] = lambda key: None) -> Iterator[None]:
    """Turns each error of Hydra, OmegaConf or the YAML parser in its block into a ConfigError with a short finding.

    ``place_of`` returns the file and line, or the override, that set a key."""
    try:
        yield
    except yaml.YAMLError as failure:
        raise ConfigError(_broken_yaml(failure)) from failure
    except (HydraException, OmegaConfBaseException) as failure:
        raise ConfigError(_finding_of(failure, place_of)) from failure
    except RecursionError as failure:
        hint = "give one of the two keys a value; an example of such a circle is a: ${b} and b: ${a}"
        found = Finding("error", "CLI008", "the configuration refers to itself without end", hint=hint)
        raise ConfigError(found) from failure
    except (OSError, UnicodeError) as failure:
        raise ConfigError.of("CLI008", f"a config file cannot be read: {failure}") from failure
    except OverBudget:
        raise
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, AssertionError) as failure:
        # Hydra has no own message for a file or a value of an unexpected shape.
        error = short(without_values(" ".join(f"{type(failure).__name__}: {failure}".split())), 300)
        raise ConfigError.of("CLI008", f"this cannot be composed ({error})") from failure


def _finding_of(failure: Exception, place_of: Callable[[str], str | None]) -> Finding:
    """Returns a finding with the message of Hydra or OmegaConf, preceded by its key and place."""
    if isinstance(failure, MissingConfigException) and (unknown := _no_such_option(failure)) is not None:
        return unknown
    if meant := _OTHER_PACKAGE.match(str(failure)):
        key, chosen = meant[1], f"{meant[2]}={meant[3]}"
        message = f"Could not override '{key}'. Did you mean to override {meant[2]}?"
        return Finding("error", "CLI008", message, hint=Remedy.fixed(chosen))
    cause = failure.__cause__
    lines = [line.strip() for error in (failure, cause) if error for line in str(error).splitlines() if line.strip()]
    kept = [
        line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=", "See https"))
    ]
    message = short(without_values(" ".join(dict.fromkeys(kept))) or type(failure).__name__, 400)
    key = next((str(key) for error in (failure, cause) if (key := getattr(error, "full_key", None))), None)
    if key is None:
        return Finding("error", "CLI008", message, hint=_hint_of_group(message))
    place = place_of(key)
    message = f"{place + ': ' if place else ''}{key}: {message}"
    return Finding("error", "CLI008", message, (key,), _hint_of_interpolation(message, key))


def _no_such_option(failure: MissingConfigException) -> Finding | None:
    """Returns the finding for an option that its group lacks; None for another missing file. It begins with the config
    that chose the option in Hydra's view: the primary one for a choice on the command line."""
    from sglang_hydra.compose.unknown_words import unknown_option

    file = failure.missing_cfg_file or ""
    offered = re.search(r"Available options in '([^']+)'", str(failure))
    group = offered[1] if offered else file.partition("/")[0]
    if group.startswith("model/") and (not failure.options or group.endswith(".")):
        group = "model"  # Hydra 1.4 takes the path of a model apart
    option = file.removeprefix(f"{group}/")
    if not option or option == file:
        return None
    options = [*(failure.options or ()), *(recipes.recipes() if group == "recipe" else ())]
    refused = unknown_option(group, option, options).finding
    if group == "experiment" and option.partition("/")[0] in NODES:
        group, option = option.partition("/")[::2]
        message = f"{group} is looked for below experiment"
        refused = replace(refused, message=message).said(f"'- override /{group}: {option}' in its defaults list")
    if group == "model" and "/" in option:
        hint = f"a defaults list names presets: '- model: unset' in it, and below it the key model_path: {option}"
        refused = refused.said(hint)
    if (line := getattr(failure, "line", None)) is not None:
        before = line[1][: -len(option)]
        there = [
            f"'{before}{one.said.partition('=')[2]}' in that line" if one.kind == "fix" else one
            for one in refused.remedies
        ]
        return replace(refused, message=f"{line[0]}: {refused.message}").said(there)
    where = re.match(r"In ('[^']+'): ", str(failure))
    return replace(refused, message=f"in {where[1]}: {refused.message}") if where else refused


def _hint_of_group(message: str) -> str | None:
    """Returns what to type if a second option was added to a group, or if a group's file has no package."""
    if group := re.match(r"Multiple values for ([\w@.]+)\. To override a value use 'override \1: (\w+)'", message):
        return f"without the +: {group[1]}={group[2]}"
    if loose := re.match(rf"(?s)In '(bench|experiment)/([\w/.-]+)': (ConfigKeyError|{UNMATCHED} '\w+@\1\.)", message):
        package = "bench" if loose[1] == "bench" else "_global_"
        return f"# @package {package} as the first line of {loose[1]}/{loose[2]}.yaml"
    added = re.match(r"force-add of config groups is not supported: '\+\+([^']+)'", message)
    return f"without the ++: {added[1]}" if added else None


def _hint_of_interpolation(message: str, key: str) -> str | None:
    """Returns what to type for an interpolation that cannot be resolved."""
    if variable := re.search(r"Environment variable '(\w+)' not found", message):
        return f"export {variable[1]}=..., or {key}='${{oc.env:{variable[1]},DEFAULT}}'"
    if missing := re.search(r"Interpolation key '(.*)' not found", message):
        if re.fullmatch("[A-Z][A-Z0-9_]*", missing[1]):
            return f"{key}='${{oc.env:{missing[1]},DEFAULT}}' reads a variable of the shell"
        near = nearest(missing[1], known_keys())
        if near is not None and key.rpartition(".")[2] in EVERY:
            return f"{key}='${{{near}}}'"
        return f"the name of a key that is there; a literal ${{ is written \\${{: {key}='...\\${{...'"
    if "Recursive interpolation" in message:
        return f"{key}=VALUE: an interpolation names another key"
    if message.endswith("Unsupported interpolation type env"):
        return f"{key}='${{oc.env:VARIABLE}}' reads a variable"
    if "HydraConfig was not set" in message:
        return "a server is planned before its Hydra job exists: ${hydra:...} works in an app (@sglang_hydra.main)"
    if "Unsupported interpolation type" in message:
        return "a resolver of your own is registered in an app: OmegaConf.register_new_resolver(NAME, FUNCTION)"
    return None


def _broken_yaml(failure: Exception) -> Finding:
    mark = getattr(failure, "problem_mark", None)
    problem = getattr(failure, "problem", None) or str(failure).splitlines()[0]
    if mark is None:
        name = shown_path(str(getattr(failure, "name", "a config file")).removeprefix("file://"))
        return Finding("error", "CLI009", f"{name}: this is no YAML: {problem}")
    place = f"{shown_path(str(mark.name).removeprefix('file://'))}:{mark.line + 1}:{mark.column + 1}"
    return Finding("error", "CLI009", f"{place}: this is no YAML: {problem}")
