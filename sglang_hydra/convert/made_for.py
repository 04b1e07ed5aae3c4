"""The line of an export that says what it was made for: the GPU class, the release, the plan, a seed that was drawn.

A comment, in Kubernetes an annotation. Whoever reads the file back reads its flags; this line adds what no flag says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sglang_hydra.planning.plan import Plan

TITLE = "Made for"
ANNOTATION = "sglang-hydra/made-for"
_KEYS = re.compile(r"gpu|gpu\.\w+|engine\.version|plan|seed")
_LINE = re.compile(rf"(?:{TITLE}|{ANNOTATION}):\s*[\"']?((?:[a-z_.]+=[\w.+-]+ ?)+)")
_WORD = re.compile(r"[\w.+-]+")


def made_for(plan: Plan) -> str:
    """``gpu=h200 engine.version=0.5.23 plan=0123456789abcdef seed=drawn``, without what is not known."""
    words: dict[str, object] = {"gpu": plan.choices.get("gpu")}
    if plan.probed:
        words |= {"gpu.count": plan.gpu.count, "gpu.memory_mib": plan.gpu.memory_mib}
    for key in plan.settings:
        if key.startswith("gpu."):
            words[key] = plan.nodes["gpu"].get(key.partition(".")[2])
    words |= {"engine.version": plan.engine.version, "plan": plan.server_id}
    words["seed"] = "drawn" if plan.seed_drawn else None
    return " ".join(
        f"{key}={value}" for key, value in words.items() if _WORD.fullmatch(str(value)) and value is not None
    )


def words_in(text: str) -> Mapping[str, str]:
    """Reads the words of the first such line; none where there is no such line. Other keys are not read."""
    found = _LINE.search(text)
    pairs = (word.partition("=")[::2] for word in found[1].split()) if found is not None else ()
    return {key: value for key, value in pairs if _KEYS.fullmatch(key)}
