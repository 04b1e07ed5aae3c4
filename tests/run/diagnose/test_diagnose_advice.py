"""The general advice of a class never names what the server had, nor the wrong direction."""

import pytest

from sglang_hydra.run.diagnose.advice import fitted
from sglang_hydra.run.diagnose.classes import failure_classes, page_of
from sglang_hydra.run.diagnose.diagnosis import diagnose


@pytest.mark.parametrize(
    ("advice", "args", "expected"),
    [
        (
            "mem_fraction_static=0.8, or the value that fit shows; or x",
            {},
            "mem_fraction_static=0.8, or the value that fit shows; or x",
        ),
        ("mem_fraction_static=0.8, or the value that fit shows", {"mem_fraction_static": 0.89}, None),
        ("mem_fraction_static=0.8; or x", {"mem_fraction_static": 0.7}, "mem_fraction_static=0.65; or x"),
        ("mem_fraction_static=0.8; or x", {"mem_fraction_static": 0.2}, "x"),
        ("mem_fraction_static=0.9; or x", {"mem_fraction_static": 0.9}, "mem_fraction_static=0.95; or x"),
        ("mem_fraction_static=0.9; or x", {"mem_fraction_static": 0.95}, "x"),
        ("chunked_prefill_size=2048; or x", {"chunked_prefill_size": 2048}, "x"),
        ("chunked_prefill_size=2048; or x", {"chunked_prefill_size": 512}, "x"),
        ("chunked_prefill_size=2048; or x", {"chunked_prefill_size": -1}, None),
        ("disable_cuda_graph=true, which is slower; or x", {"disable_cuda_graph": True}, "x"),
        ("disable_cuda_graph=true, which is slower; or x", {"disable_cuda_graph": False}, None),
        ("attention_backend=null, so; or x", {"attention_backend": None}, "x"),
        ("attention_backend=triton, slower; or x", {"attention_backend": "triton"}, "x"),
        ("tp_size=N, that divides; or x", {"tp_size": 2}, None),
        ("tp_size=2 or more; or x", {"tp_size": 1}, None),
        ("tp_size=2 or more; or x", {"tp_size": 2}, "tp_size=4 or more; or x"),
        ("tp_size=2 or more; or x", {"tp_size": 4}, "tp_size=8 or more; or x"),
        ("watchdog_timeout=1200, where slow", {"watchdog_timeout": 3600.0}, "watchdog_timeout=7200, where slow"),
        ("dist_timeout=3600, where slow", {"dist_timeout": None}, None),
        ("mem_fraction_static=0.8", {"mem_fraction_static": 0.1}, None),
    ],
)
def test_what_the_server_had_is_not_advised(advice, args, expected):
    parts = (advice if expected is None else expected).split("; or ")
    assert list(fitted(advice.split("; or "), args)) == parts


def test_every_class_keeps_some_advice_for_any_server():
    for failure in failure_classes():
        assert fitted(failure.advice, dict.fromkeys(failure.fields, 0.5))


def test_the_hint_of_a_diagnosis_is_below_what_the_server_had():
    log = [
        "[2025-06-26 07:25:31] server_args=ServerArgs(model_path='/models/m', mem_fraction_static=0.72, tp_size=1)",
        "[2025-06-26 07:25:41 TP0] Load weight begin. avail mem=78.50 GB",
        "[2025-06-26 07:25:51 TP0] Load weight end. type=M, dtype=torch.bfloat16, avail mem=46.46 GB",
        "[2025-06-26 07:25:52 TP0] KV Cache is allocated. #tokens: 4, K size: 0.68 GB, V size: 0.68 GB.",
        "[2025-06-26 07:25:52 TP0] Capture cuda graph begin. This can take up to several minutes.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 MiB. GPU 0 has 0 bytes free.",
    ]
    found = diagnose(log)
    assert found.kind == "oom_graph"
    assert found.finding.hint.startswith("mem_fraction_static=0.7")


@pytest.mark.parametrize(
    ("started", "name"), [("/x/serve.py", "python serve.py check"), ("/x/sglang-hydra", "sglang-hydra check")]
)
def test_commands_in_the_advice_are_those_of_the_program_that_was_started(
    started: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [started, "diagnose"])
    flag = diagnose(["launch_server.py: error: unrecognized arguments: --bogus"])
    together = diagnose(["AssertionError: chunked_prefill_size must be divisible by page_size"])
    assert (flag.kind, together.kind) == ("bad_flag", "invalid_arguments")
    for found in (flag, together):
        assert name in str(found.finding.hint)
        page = page_of(found.finding.id)
        assert page is not None
        assert name in page.page


def test_the_advice_on_cudnn_names_the_package_of_both_cuda_releases() -> None:
    found = diagnose(["RuntimeError: CRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected"])
    assert found.kind == "version_mismatch"
    assert "nvidia-cudnn-cu12==9.16.0.29 (nvidia-cudnn-cu13 with CUDA 13)" in str(found.finding.hint)
    assert "SGLANG_DISABLE_CUDNN_CHECK=1" in str(found.finding.hint)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("aiter", "pip install --no-build-isolation git+https://github.com/ROCm/aiter"),
        ("deep_ep", "pip install --no-build-isolation git+https://github.com/deepseek-ai/DeepEP"),
        ("zmq", "pip install pyzmq"),
        ("xgrammar", "pip install xgrammar"),
        ("mori.ops", "install it from its own source, because the package index has no such package: mori"),
    ],
)
def test_a_missing_module_gets_the_package_that_has_it_and_no_other_of_its_name(module, expected):
    found = diagnose([f"ModuleNotFoundError: No module named '{module}'"], 1)
    assert found.kind == "missing_package"
    assert str(found.finding.shown[0]) == expected
    assert f"pip install {module.replace('_', '-')}" not in {*map(str, found.finding.shown)} - {expected}
