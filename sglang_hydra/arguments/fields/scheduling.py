"""Which requests run when, and how prompts are cut into chunks."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class
from sglang_hydra.arguments.memory_classes import CHUNK_SIZES, CHUNK_WITHOUT_MEMORY

UNLIMITED = (1 << 63) - 1  # SGLang's "no limit": the largest machine integer


@argument_class
class Scheduling:
    """Which requests run when, and how prompts are cut into chunks."""

    max_running_requests: int | None = arg(
        None,
        "Most requests that run at once; lower it to hold the inter-token latency under load.",
        unit="requests",
        none="as many as the KV cache and the request pool hold; 48 with speculative decoding",
    )
    max_queued_requests: int | None = arg(
        UNLIMITED,
        "Most requests that wait; more are refused at once. Not used under disaggregation.",
        unit="requests",
        none="nothing sensible: the server fails with it, so leave the default (no limit)",
    )
    chunked_prefill_size: int | None = arg(
        None,
        "Prompt tokens processed in one step; larger prefills faster, smaller keeps running requests smooth and needs "
        "less memory. -1 turns chunking off.",
        unit="tokens",
        none=f"by the GPU's memory: {CHUNK_SIZES}; {CHUNK_WITHOUT_MEMORY} where it is unknown",
    )
    max_prefill_tokens: int = arg(
        16384,
        "Prompt tokens that one prefill batch admits; a single longer prompt still runs, alone.",
        unit="tokens",
    )
    schedule_policy: str = arg(
        "fcfs",
        "Order of waiting requests: first come (fcfs), longest cached prefix (lpm), busiest branch of the prefix tree "
        "(dfs-weight), longest output (lof) or random.",
        choices=("lpm", "random", "fcfs", "dfs-weight", "lof"),
    )
    schedule_conservativeness: float = arg(
        1.0,
        "How much future output is reserved when a request is admitted; raise it (1.3) when requests are retracted "
        "often, lower it (0.3) when the KV cache stays half empty. DP attention multiplies it by 0.3.",
    )
    disable_overlap_schedule: bool = arg(
        False, "Schedule the next batch only after the GPU is done with this one; for debugging, costs throughput."
    )
    enable_mixed_chunk: bool = arg(
        False, "Put decoding requests and a prefill chunk into one batch; steadier latency under long prompts."
    )
    num_continuous_decode_steps: int = arg(
        1, "Decode steps between two scheduling decisions. SGLang 0.5.2 accepts it and reads it nowhere.", unit="steps"
    )
    scheduler_recv_interval: int = arg(
        1,
        "Decode steps between two looks for new requests; raise it to save scheduler time at high concurrency. Not "
        "with DP attention.",
        unit="steps",
    )
