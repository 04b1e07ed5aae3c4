"""Less room than what is needed is a warning, with remedies that a plan proves; ``fit.context`` and ``fit.users``."""

from __future__ import annotations

import shlex

import pytest

from sglang_hydra.fit.result import Wanted
from sglang_hydra.show.memory import verdict
from sglang_hydra.text.errors import ConfigError
from tests.plans import planned

LLAMA = ("gpu=h100", "model=llama_3_1_70b")
CASES: dict[str, tuple[tuple[str, ...], str | None, str | None]] = {
    "less_than_the_longest": ((*LLAMA, "tp_size=2"), "less than one request of 131,072", "tp_size=4"),
    "no_idle_gpu": ((*LLAMA, "tp_size=2", "gpu.count=2"), "less than one request", "model_path=hugging-quants/"),
    "a_shorter_context_holds": ((*LLAMA, "tp_size=2", "context_length=4096"), None, None),
    "a_stated_context": ((*LLAMA, "tp_size=2", "fit.context=4096"), None, None),
    "stated_users": ((*LLAMA, "tp_size=8", "fit.context=32768", "fit.users=64"), "64 are needed", "kv_cache_dtype="),
    "sizes_as_upstream": ((*LLAMA, "tp_size=8", "fit.context=32k", "fit.users=64"), "requests of 32,000", "kv_cache_"),
    "sizes_in_powers_of_two": ((*LLAMA, "tp_size=8", "fit.context=32Ki", "fit.users=64"), "of 32,768", "kv_cache_"),
    "more_servers": ((*LLAMA, "tp_size=8", "fit.context=32k", "fit.users=640"), "17 servers like this one hold", None),
    "nothing_helps": ((*LLAMA, "tp_size=8", "fit.users=640"), "640 are needed", None),
    "enough": ((*LLAMA, "tp_size=8"), None, None),
    "it_does_not_fit_at_all": (LLAMA, None, "tp_size=4"),
}


@pytest.mark.parametrize(("typed", "message", "hint"), CASES.values(), ids=CASES)
def test_too_little_room_is_a_warning(typed: tuple[str, ...], message: str | None, hint: str | None) -> None:
    plan = planned(*typed)
    found = [finding for finding in plan.findings if finding.id.startswith("FIT")]
    assert [finding.id for finding in found] == (["FIT003"] if message else ["FIT001"] if hint else [])
    for finding in found:
        assert (message or "") in finding.message
        assert plan.launchable is (finding.level == "warning") is (finding.id == "FIT003")
        assert (finding.hint or "").startswith(hint or "")
        assert (finding.hint is None) is (hint is None)


@pytest.mark.parametrize(
    "typed", [case[0] for case in CASES.values() if case[2]], ids=[k for k in CASES if CASES[k][2]]
)
def test_every_remedy_can_be_launched_and_says_its_room(typed: tuple[str, ...]) -> None:
    hint = next(str(finding.hint) for finding in planned(*typed).findings if finding.id.startswith("FIT"))
    for remedy in hint.split("; or "):
        words, _, why = remedy.partition(": ")
        replaced = {word.partition("=")[0] for word in shlex.split(words)}
        kept = [word for word in typed if word.partition("=")[0] not in replaced]
        plan = planned(*kept, *shlex.split(words))
        assert plan.launchable
        assert not [finding for finding in plan.findings if finding.id.startswith("FIT")]
        assert plan.fit is not None
        assert f"{plan.fit.kv_tokens:,} KV tokens" in why
        assert " of " in why


def test_the_verdict_is_about_what_is_needed() -> None:
    fit = planned(*LLAMA, "tp_size=2").fit
    assert fit is not None
    verdicts = [verdict(fit), verdict(fit, Wanted(4096)), verdict(fit, Wanted(4096, 2))]
    assert verdicts == ["too little KV cache", "fits", "too little KV cache"]


@pytest.mark.parametrize("typed", ["fit.users=0", "fit.users=-3", "fit.context=0"])
def test_a_number_that_means_nothing_is_refused(typed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        planned(*LLAMA, typed)
    assert (refused.value.findings[0].id, refused.value.findings[0].fields) == ("CLI022", (typed.partition("=")[0],))
