"""Logs, metrics and what is kept of a crash."""

from __future__ import annotations

from sglang_hydra.arguments.fields.arg import arg, argument_class

_BUCKET_RULE = "default, tse <middle> <base> <count> (exponential both ways) or customer <list of values>"


@argument_class
class Logs:
    """Logs, metrics and what is kept of a crash."""

    log_level: str = arg("info", "Level of all logs: debug, info, warning, error or critical.")
    log_level_http: str | None = arg(
        None, "Level of the HTTP access log; warning hides the line of every request.", none="the same as log_level"
    )
    log_requests: bool = arg(False, "Log every request, as much of it as log_requests_level says.")
    log_requests_level: int = arg(
        2,
        "What log_requests writes: 0 metadata, 1 also sampling parameters, 2 also texts cut short, 3 everything.",
        choices=(0, 1, 2, 3),
    )
    crash_dump_folder: str | None = arg(
        None,
        "Folder for the requests of the last five minutes before a crash, so that it can be replayed.",
        none="nothing is dumped",
    )
    show_time_cost: bool = arg(False, "Print the time that marked sections of the code take.")
    enable_metrics: bool = arg(False, "Serve Prometheus metrics at /metrics.")
    enable_metrics_for_all_schedulers: bool = arg(
        False, "Let the scheduler of every rank report metrics and not rank 0 alone; use it with DP attention."
    )
    bucket_time_to_first_token: list[float] | None = arg(
        None,
        "Histogram bounds of the time to first token.",
        unit="seconds",
        none="built-in bounds",
        nargs="+",
    )
    bucket_inter_token_latency: list[float] | None = arg(
        None,
        "Histogram bounds of the time between tokens.",
        unit="seconds",
        none="built-in bounds",
        nargs="+",
    )
    bucket_e2e_request_latency: list[float] | None = arg(
        None,
        "Histogram bounds of the time of a whole request.",
        unit="seconds",
        none="built-in bounds",
        nargs="+",
    )
    collect_tokens_histogram: bool = arg(False, "Keep histograms of prompt and answer lengths among the metrics.")
    prompt_tokens_buckets: list[str] | None = arg(
        None,
        f"Histogram bounds of prompt lengths: {_BUCKET_RULE}.",
        unit="tokens",
        none="built-in bounds",
        nargs="+",
    )
    generation_tokens_buckets: list[str] | None = arg(
        None,
        f"Histogram bounds of answer lengths: {_BUCKET_RULE}.",
        unit="tokens",
        none="built-in bounds",
        nargs="+",
    )
    decode_log_interval: int = arg(40, "Decode steps between two lines of the decode log.", unit="steps")
    enable_request_time_stats_logging: bool = arg(
        False, "Log for each request how long it spent in each stage; for finding where latency comes from."
    )
    kv_events_config: str | None = arg(
        None,
        "JSON object that turns on publishing KV cache events, as NVIDIA Dynamo's router reads them.",
        none="no events",
        json=True,
    )
    gc_warning_threshold_secs: float = arg(
        0.0, "Warn when Python's garbage collector stops the tokenizer for longer; 0 never warns.", unit="seconds"
    )
