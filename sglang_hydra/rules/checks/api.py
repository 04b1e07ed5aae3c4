"""What SGLang's HTTP server cannot do together."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Facts, Outcome, Refusal, rule


@rule("API001", stage="plan")
def check_key_with_tokenizer_workers(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: api_key works with one tokenizer worker only.
    Why: each further worker asserts that there is no key, and the server dies while they start.
    Upstream: entrypoints/http_server.py 0.5.2, init_multi_tokenizer.
    Example: api_key=... tokenizer_worker_num=4 -> refused
    """
    if args.api_key is None or args.tokenizer_worker_num <= 1:
        return None
    return Refusal(
        f"tokenizer_worker_num={args.tokenizer_worker_num} does not work with an api_key",
        "tokenizer_worker_num",
        "api_key",
        hint="check keys in front of the server",
        offers="tokenizer_worker_num=1",
    )
