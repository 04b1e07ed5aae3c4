"""Whose log it is: another engine's looks alike, but its failures have other reasons and other remedies."""

from __future__ import annotations

import re

_LOOKED_AT = 2000
_LONGEST = 600
_OWN = re.compile(r"sglang|sgl[_-]kernel|SGLang|server_args=ServerArgs", re.IGNORECASE)
# What each prints of itself at its start or in front of every line; none is a word of a model's or a folder's name.
_OTHERS = (
    ("vLLM", r"vLLM API server version|Initializing an? (?:V1 )?LLM engine \(v|\((?:EngineCore|APIServer)\w{0,8} pid="),
    ("vLLM", r"/vllm/(?:v1/|entrypoints/|engine/)[\w/]{1,80}\.py\"|\bvllm serve "),
    ("TensorRT-LLM", r"TensorRT-LLM version: |\[TRT-LLM\] \[|/tensorrt_llm/[\w/]{1,80}\.py\"|\btrtllm-serve "),
    ("text-generation-inference", r"\btext_generation_(?:launcher|router|server)\b"),
    (
        "llama.cpp",
        r"\bllama_(?:model_load(?:er)?|load_model_from_file|init_from_model): |\bggml_(?:cuda|backend)_\w+: ",
    ),
    ("Ollama", r"level=\w+ source=\w+\.go:\d+ msg="),
    ("LMDeploy", r" - lmdeploy - |/lmdeploy/[\w/]{1,80}\.py\"|/src/turbomind/"),
)
_PATTERN = re.compile("|".join(f"(?P<e{number}>{pattern})" for number, (_, pattern) in enumerate(_OTHERS)))


class Others:
    """Looks at the first lines of a log. ``name`` is the other engine's, None where SGLang is in it or nothing says."""

    def __init__(self) -> None:
        self._own = False
        self._name: str | None = None
        self._count = 0

    @property
    def name(self) -> str | None:
        return None if self._own else self._name

    def read(self, raw: str, text: str) -> None:
        """Looks at one line, whole and without its prefixes: a container or an actor can have any engine's name.

        After a word of SGLang, or after enough lines without another engine's, it looks no more.
        """
        if self._own or (self._name is None and self._count >= _LOOKED_AT):
            return
        self._count += 1
        if _OWN.search(text) is not None:
            self._own = True
        elif self._name is None:
            found = _PATTERN.search(raw[:_LONGEST])
            if found is not None and found.lastgroup is not None:
                self._name = _OTHERS[int(found.lastgroup[1:])][0]
