"""What clients see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_hydra.rules.rule import Change, Facts, Outcome, rule

if TYPE_CHECKING:
    from sglang_hydra.fields import ServerArgs


@rule("DEF002", (442, 443))
def name_the_served_model(args: ServerArgs, facts: Facts) -> Outcome:
    """
    What: served_model_name, if unset, is model_path.
    Why: it is what clients must send as model, and what /v1/models lists.
    Upstream: server_args.py 0.5.2 lines 442-443.
    Example: model_path=org/name -> served_model_name=org/name
    """
    if args.served_model_name is not None:
        return None
    return Change("the model's path", served_model_name=args.model_path)
