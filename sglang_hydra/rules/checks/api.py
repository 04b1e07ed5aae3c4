"""Checks combinations that SGLang's HTTP server does not support, and parsers that do not fit the model's family."""

from __future__ import annotations

from sglang_hydra.arguments.fields import ServerArgs
from sglang_hydra.rules.checks.releases import Arguments, table_of
from sglang_hydra.rules.rule import Facts, Notice, Outcome, Refusal, rule


def parser_of(model: str, argument: str, version: str) -> str | None:
    """Returns the parser to use for a model under a release, or None where none is known."""
    from sglang_hydra.arguments.meant import parser_meant

    return parser_meant(argument, model, table_of(version).arguments[argument].choices or ())


@rule("API002", stage="plan")
def check_parsers_of_the_model(args: Arguments, facts: Facts) -> Outcome:
    """What: warns of a tool_call_parser or reasoning_parser for another family than the model's.
    Why: the server starts, and leaves tool calls in the text of the answer, or reasoning in its content.
    Upstream: function_call/function_call_parser.py 0.5.2, parser/reasoning_parser.py; the families are the cookbook's.
    Example: model=glm_5_2 tool_call_parser=glm45 -> warned"""
    model, wrong = str(args.model_path), {}
    typed = {name: getattr(args, name) for name in ("tool_call_parser", "reasoning_parser")}
    for argument, parser in typed.items():
        if parser in (None, "auto", "response_template"):
            continue
        from sglang_hydra.arguments.meant import reads_alike

        meant = parser_of(model, argument, facts.release)
        if meant is not None and not reads_alike(argument, model, parser):
            wrong[argument] = (parser, meant)
    if not wrong:
        return None
    said = "; ".join(f"{argument}={typed} does not read what {model} writes" for argument, (typed, _) in wrong.items())
    return Notice(said, *wrong, offers=" ".join(f"{argument}={meant}" for argument, (_, meant) in wrong.items()))


@rule("API001", stage="plan")
def check_key_with_tokenizer_workers(args: ServerArgs, facts: Facts) -> Outcome:
    """What: api_key works with one tokenizer worker only.
    Why: each further worker asserts that there is no key, and the server dies while they start.
    Upstream: entrypoints/http_server.py 0.5.2, init_multi_tokenizer.
    Example: api_key=... tokenizer_worker_num=4 -> refused"""
    if args.api_key is None or args.tokenizer_worker_num <= 1:
        return None
    return Refusal(
        f"tokenizer_worker_num={args.tokenizer_worker_num} does not work with an api_key",
        "tokenizer_worker_num",
        "api_key",
        hint="check keys in front of the server",
        offers="tokenizer_worker_num=1",
    )
