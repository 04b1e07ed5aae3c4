"""Rules for the names that clients see."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("DEF002", (442, 443))
def name_the_served_model(args: ServerArgs, facts: Facts) -> Outcome:
    """What: served_model_name, if unset, is model_path.
    Why: it is the name that /v1/models lists and that metrics carry (entrypoints/http_server.py:990,
        managers/tokenizer_manager.py:290).
    Example: model_path=org/name -> served_model_name=org/name"""
    if args.served_model_name is not None:
        return None
    return Change("the model's path", served_model_name=args.model_path)
