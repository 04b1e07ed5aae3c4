"""The table of classes: its ids and kinds never change, and every declaration is whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sglang_hydra.arguments.fields import FIELDS
from sglang_hydra.cli.id_pages import id_screen
from sglang_hydra.run.diagnose.classes import (
    UNKNOWN,
    FailureClass,
    classes_by_kind,
    failure_classes,
    page_of,
    read_classes,
)

ROOT = Path(__file__).parents[3]
# What others have stored: an id or a kind that was given out is never changed and never used again.
GIVEN_OUT = """
DIA001 oom_load
DIA002 mem_fraction_too_low
DIA003 oom_kv
DIA004 oom_graph
DIA005 oom_runtime
DIA006 oom_gpu
DIA007 gpu_occupied
DIA008 shm_too_small
DIA009 host_oom
DIA010 hub_access
DIA011 hub_unreachable
DIA012 model_not_found
DIA013 missing_weights
DIA014 corrupt_weights
DIA015 weights_mismatch
DIA016 bad_config
DIA017 unsupported_architecture
DIA018 trust_remote_code
DIA019 tokenizer
DIA020 context_length
DIA021 parallel_size
DIA022 quantization
DIA023 chat_template
DIA024 lora
DIA025 bad_flag
DIA026 invalid_arguments
DIA027 unsupported_backend
DIA028 driver_too_old
DIA029 no_gpu
DIA030 too_few_gpus
DIA031 unsupported_gpu
DIA032 kernel_resources
DIA033 cuda_fault
DIA034 gpu_hardware
DIA035 graph_capture
DIA036 nccl_timeout
DIA037 rendezvous_timeout
DIA038 nccl_error
DIA039 peer_access
DIA040 expert_parallel_comm
DIA041 pd_bootstrap
DIA042 port_in_use
DIA043 bad_address
DIA044 disk_full
DIA045 too_many_open_files
DIA046 permission_denied
DIA047 too_many_processes
DIA048 storage_error
DIA049 version_mismatch
DIA050 missing_package
DIA051 compile_failure
DIA052 watchdog_timeout
DIA053 health_check
DIA054 warmup_failed
DIA055 pool_leak
DIA056 spawn_without_main
DIA057 crash
DIA058 stopped
DIA059 peer_lost
DIA061 router_workers
DIA062 release_fault
"""


def test_ids_and_kinds_are_those_that_were_given_out() -> None:
    given = dict(line.split() for line in GIVEN_OUT.strip().splitlines())
    assert {failure.id: failure.kind for failure in failure_classes()} == given
    assert len(classes_by_kind()) == len(failure_classes())
    assert UNKNOWN not in classes_by_kind()


@pytest.mark.parametrize("failure", failure_classes(), ids=lambda failure: failure.kind)
def test_a_class_is_whole(failure: FailureClass) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", failure.kind)
    assert not failure.what.endswith(".")
    assert failure.meaning.endswith(".")
    assert len(failure.meaning) > 80
    assert failure.signatures
    assert all(len(needle) >= 3 for signature in failure.signatures for needle in signature.needles)
    assert set(failure.fields) <= set(FIELDS)
    assert all(change.partition("=")[0] in FIELDS for change in failure.changes)
    assert isinstance(failure.retryable, bool)


@pytest.mark.parametrize("failure", failure_classes(), ids=lambda failure: failure.kind)
def test_every_expression_of_a_class_compiles(failure: FailureClass) -> None:
    for signature in (*failure.signatures, *failure.places):
        for expression in (signature.pattern, signature.unless, signature.frame):
            re.compile(expression or "")
        assert all(isinstance(needle, str) for needle in signature.needles)
        assert all(isinstance(one, bool) for one in (signature.in_warning, signature.request, signature.exception))
    for detail in failure.details:
        pattern = re.compile(detail.pattern)
        assert pattern.groups
        numbers = [int(number) for number in re.findall(r"\\(\d)", detail.text or r"\1")]
        assert set(numbers) == set(range(1, pattern.groups + 1)) if detail.text else pattern.groups


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, r"x\.yaml: DIA999: .*'colour'"),
        ({"advice": None}, r"x\.yaml: DIA999: 'advice'"),
        ({"what": None}, r"x\.yaml: DIA999: .*'what'"),
        ({"signatures": [{"needle": "boom", "stage": "lunch"}]}, r"x\.yaml: DIA999: 'LUNCH'"),
        ({"signatures": [{"needle": "boom", "regex": "x"}]}, r"x\.yaml: DIA999: .*'regex'"),
        ({"signatures": [{"pattern": "boom"}]}, r"x\.yaml: DIA999: 'needle'"),
    ],
)
def test_an_entry_that_is_not_whole_is_named(change: dict[str, object], message: str) -> None:
    row = {"what": "w", "meaning": "m", "advice": ["a"], "signatures": ["boom"]} | change
    text = yaml.safe_dump({"DIA999 k": {key: value for key, value in row.items() if value is not None}})
    with pytest.raises(ValueError, match=message):
        read_classes(text, "x.yaml")


def test_advice_names_arguments_that_exist() -> None:
    known = {
        *FIELDS,
        "engine.env.SGLANG_ENABLE_JIT_DEEPGEMM",
        "engine.env.SGLANG_FLASHINFER_WORKSPACE_SIZE",
        "topology.router.args",
        "topology.router.worker_startup_timeout_secs",
    }
    typed = [
        (failure.kind, word)
        for failure in failure_classes()
        for text in [*failure.advice, *(text for signature in failure.signatures for text in signature.advice)]
        for word in re.findall(r"(?<![\w./-])([a-z][a-z0-9_.]*[a-z0-9_A-Z]*)=(?=[\w/\[\.])", text)
    ]
    assert {(kind, word) for kind, word in typed if word not in known and "_" in word} == set()


def test_a_signal_means_one_class() -> None:
    signals = [number for failure in failure_classes() for number in failure.signals]
    assert len(signals) == len(set(signals))


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("port_in_use", True),
        ("nccl_timeout", True),
        ("hub_unreachable", True),
        ("oom_load", False),
        ("bad_flag", False),
    ],
)
def test_only_what_can_pass_is_tried_again(kind: str, retryable: bool) -> None:
    assert classes_by_kind()[kind].retryable is retryable


def test_every_class_can_be_explained() -> None:
    for failure in failure_classes():
        page = page_of(failure.id)
        assert page is not None
        for part in ("What: ", "Why: ", "To type: ", "Again: "):
            assert part in page.page
        screen = id_screen(failure.id)
        assert screen is not None
        assert "".join(content for content, _ in screen[0]) == f"{failure.id}  {failure.kind.replace('_', ' ')}"
        assert failure.known_by or failure.kind == "invalid_arguments"  # by its place alone
    assert page_of("DIA999") is None


def test_the_page_of_all_classes_is_not_stale() -> None:
    done = subprocess.run([sys.executable, "tools/diagnosis_page.py", "--check"], cwd=ROOT, timeout=250)
    assert done.returncode == 0, "docs/diagnosis.md is stale: make generate"


@pytest.mark.thorough
def test_the_benchmark_prints_its_table_by_class() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/diagnosis_table.py"], cwd=ROOT, timeout=250, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("class ")
    assert "none is wrong" in done.stdout
    assert re.search(r"^a grep for the last error shows the deciding line of \d+ ", done.stdout, re.MULTILINE)
    for kind in ("oom_graph", "port_in_use", "unknown"):
        assert re.search(rf"^{kind} +\d+ +\d+ +\d+ +0 +\d+$", done.stdout, re.MULTILINE)
