"""``mcp``: offers the verbs that plan and judge as Model Context Protocol tools, over standard input and output.

A tool calls its verb in this process. Its words come from a model that has read foreign files, so they have a file's
rights: nothing they name is run, and no variable of this process is read."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from sglang_hydra.cli.invocation import Invocation, read_invocation
from sglang_hydra.cli.main import is_limited, over_budget, report
from sglang_hydra.cli.reading import read_words, verb_of
from sglang_hydra.compose.overrides import KEPT
from sglang_hydra.facts.machine_cache import asking_once
from sglang_hydra.text.budget import OverBudget, cpu_limit
from sglang_hydra.text.errors import ConfigError, SglangHydraError
from sglang_hydra.text.json_types import JsonDict, json_beside
from sglang_hydra.text.words import install_command, program, short

if TYPE_CHECKING:
    from mcp.server.fastmcp import FastMCP

_TABLE: JsonDict = json_beside(__file__)
TOOLS: dict[str, JsonDict] = _TABLE["tools"]
"""For each tool its verb, the words in front of the caller's, the flags allowed among these, what it does."""
_LONGEST = 8 << 20
_MOST_WORDS = 1000


def run(invocation: Invocation) -> int:
    """Serves until the client closes the streams. Raises ConfigError (CLI038) if the SDK is not installed."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigError.of("CLI038", "the SDK of the protocol is not installed here", hint=install_command("mcp"))
    if invocation.requests:
        message = f"mcp takes no {short(invocation.requests[0].text)}: it speaks over standard input and output"
        raise ConfigError.of("CLI038", message, hint=f"{program()} mcp, as the command that the agent starts")
    server().run("stdio")
    return 0


def server() -> FastMCP:
    """Returns the server with its tools."""
    from mcp.server.fastmcp import FastMCP
    from mcp.types import ToolAnnotations

    made = FastMCP("sglang-hydra", instructions=_TABLE["instructions"], log_level="ERROR")
    about = ToolAnnotations(readOnlyHint=True, idempotentHint=True)
    for name, row in TOOLS.items():
        made.tool(name, description=row["about"], annotations=about)(_tool(name))
    return made


def _tool(name: str) -> Callable[..., JsonDict]:
    def tool(words: list[str], text: str = "", file_name: str = "launch.sh", detail: bool = False) -> JsonDict:
        return answer(name, words, text, file_name, detail)

    return tool


def answer(tool: str, words: Sequence[str], text: str, file_name: str, detail: bool) -> JsonDict:
    """Returns a tool's answer: the verb's screen, or with ``detail`` its record. ``text`` is written to a file."""
    with tempfile.TemporaryDirectory(prefix="sglang-hydra-") as made, asking_once():
        folder = Path(made).resolve()
        given = _with_text(tool, list(words), text, folder / (PurePath(file_name).name or "launch.sh"))
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown if not detail else io.StringIO()):
            code = _code(tool, given, detail)
        said = shown.getvalue().replace(f"{folder}/", "")
    found: object = json.loads(said) if detail and said.lstrip().startswith("{") else said.rstrip()
    return {"ok": code == 0, "exit_code": code, "answer": found}


def _code(tool: str, words: Sequence[str], detail: bool) -> int:
    row = TOOLS[tool]
    try:
        before, behind = _parted(tool, words)
        invocation = read_invocation([row["verb"], *row["first"], *before, *(["--json"] if detail else []), *behind])
        invocation.requests = [request._replace(layer=KEPT) for request in invocation.requests]
        with cpu_limit("command") if is_limited(invocation) else contextlib.nullcontext():
            read_words(invocation)
            return verb_of(row["verb"])(invocation)
    except (SglangHydraError, OverBudget) as failure:
        if isinstance(failure, OverBudget):
            failure = over_budget(failure, words)
        report(failure, detail)
        return failure.exit_code


def _with_text(tool: str, words: list[str], text: str, file: Path) -> list[str]:
    """Returns the words with the file of the text added, after the subject in the case of ``explain``."""
    if not text:
        return words
    file.write_text(text[:_LONGEST], encoding="utf-8", errors="replace")
    at = 1 if tool == "explain" else 0
    return [*words[:at], str(file), *words[at:]]


def _parted(tool: str, words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the words before a bare ``--``, and the rest. Raises ConfigError for a flag that the tool does not allow,
    as one that writes a file, and for a word of Hydra's, which may name code."""
    allowed, cut = TOOLS[tool]["flags"], list(words).index("--") if "--" in words else len(words)
    for word in words[:cut]:
        if word.startswith("-") and word.partition("=")[0] not in allowed:
            hint = f"flags of {tool}: {', '.join(allowed) or 'none'}; SGLang's own flags go after --"
            raise ConfigError.of("CLI012", f"{tool} takes no flag {short(word)}", hint=hint)
        if word.lstrip("+~").startswith("hydra"):
            raise ConfigError.of("SEC002", f"no tool takes {short(word)}, which only Hydra reads")
    if len(words) > _MOST_WORDS:
        raise ConfigError.of("CLI012", f"{len(words)} words are more than {_MOST_WORDS}")
    return words[:cut], words[cut:]
