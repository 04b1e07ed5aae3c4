"""Rules for the tokenizer."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.rule import Change, Facts, Outcome, rule


@rule("DEF001", (440, 441))
def take_tokenizer_from_model(args: ServerArgs, facts: Facts) -> Outcome:
    """What: tokenizer_path, if unset, is model_path.
    Why: Inferred: a checkpoint nearly always carries its tokenizer.
    Example: model_path=org/name -> tokenizer_path=org/name"""
    if args.tokenizer_path is not None:
        return None
    return Change("the model's own", tokenizer_path=args.model_path)
