"""0.5.2 by its own code, sealed, against our rules: every recorded command line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_hydra.arguments.reading import parse_argv
from sglang_hydra.releases import fetching, wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.process import end_children
from sglang_hydra.releases.records import record_of
from sglang_hydra.releases.release import ask_release
from sglang_hydra.rules.answer import Answer
from sglang_hydra.text.errors import ConfigError
from tools import conformance

RECORDED = Path(__file__).parents[1] / "data" / "conformance"
COUNT = 60 + 114
BEYOND_THE_ARGUMENTS = {
    "p/argv/35": "model type `x`",
    "t/argv-hand/5": "Quantization method specified in the model config (fp8) does not match",
    "t/argv-hand/109": "unanswered question: boto3.client()",
}
"""What the recording did not ask: no transformers knows the first model, SGLang's own model config refuses the second,
and the third lies in a bucket."""


def command_lines() -> Iterator[dict[str, Any]]:
    for name in ("public.jsonl.gz", "targeted.jsonl.gz"):
        for line in gzip.decompress((RECORDED / name).read_bytes()).splitlines():
            case = json.loads(line)["case"]
            if "argv" in case:
                yield case


def asked(case: dict[str, Any]) -> Answer:
    """The answer of the release; the case's config.json is that of its model, unless the model is a URL."""
    machine = {**case["hardware"], "count": 8, "name": "a GPU", "cuda": "12.8", "environment": {}, "seed": 42}
    try:
        intent = parse_argv(case["argv"])
        named = {str(intent[key]) for key in ("model_path", "speculative_draft_model_path") if intent.get(key)}
    except ConfigError:
        named = set()
    models = {name: case["hf_config"] for name in named if "://" not in name}
    return ask_release("0.5.2", [Case(tuple(case["argv"]), machine, models, case.get("files", {}))], use_kept=False)[0]


def differences(case: dict[str, Any], answer: Answer) -> list[str]:
    rules = conformance.produce(case, full=True)
    if answer.ok is None or bool(rules["ok"]) != answer.ok:
        return [f"{case['id']}: {answer.unanswered or answer.error or 'accepted'}; the rules: {rules.get('error')}"]
    wanted = json.loads(json.dumps(rules.get("resolved", {})))
    found = json.loads(json.dumps(answer.values), object_hook=without_id)
    return [
        f"{case['id']}: {name}: {found.get(name)!r}, the rules have {wanted.get(name)!r}"
        for name in sorted({*wanted, *found})
        if not conformance.same(wanted.get(name), found.get(name))
    ]


def without_id(item: dict[str, Any]) -> dict[str, Any]:
    """A LoRA adapter without the id that a server draws anew."""
    return {name: value for name, value in item.items() if name != "lora_id"}


@pytest.mark.registry
def test_0_5_2_sealed_makes_of_every_recorded_command_line_what_our_rules_make(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(fetching.OFFLINE_VARIABLE)
    monkeypatch.setattr(fetching, "_progress", lambda line: None)  # a line that reads another file of the wheel gets it
    record = record_of("0.5.2")
    assert record is not None
    wheels.fetch(record)
    answers = {case["id"]: (case, asked(case)) for case in command_lines()}
    end_children()
    assert len(answers) == COUNT
    for name, text in BEYOND_THE_ARGUMENTS.items():
        answer = answers.pop(name)[1]
        assert text in str(answer.unanswered or answer.error)
    assert [line for case, answer in answers.values() for line in differences(case, answer)] == []
