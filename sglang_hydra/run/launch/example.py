"""A first request for a server that is up, as a line to be copied."""

from __future__ import annotations

import json

from sglang_hydra.planning.plan import Plan
from sglang_hydra.text.shell import shell_word


def curl_line(plan: Plan, url: str, *, stream: bool = True) -> str:
    """``curl -N URL/v1/chat/completions ...`` for a server of ``plan`` at ``url``. An API key is left to ``$KEY``."""
    name = plan.values["served_model_name"] or plan.values["model_path"]
    body: dict[str, object] = {"model": name, "messages": [{"role": "user", "content": "Hello!"}]}
    body |= {"stream": True, "max_tokens": 32} if stream else {"max_tokens": 32}
    key = ' -H "Authorization: Bearer $KEY"' if plan.secrets else ""
    typed = f"-H 'Content-Type: application/json' -d {shell_word(json.dumps(body))}"
    return f"curl -N {url}/v1/chat/completions{key} {typed}"
