"""The table of images: every row has its source, and nothing is guessed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sglang_hydra.arguments.tables.order import at_least
from sglang_hydra.convert.export.images import LAUNCH_SERVER, Image, image_of, images
from sglang_hydra.run.doctor.driver import driver_for
from sglang_hydra.text.errors import ConfigError
from tests.convert.export.exports import artifact, plan_of

SOURCE = re.compile(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{7} \S+)(; [\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{7} \S+))*")
DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize("row", images(), ids=lambda row: row.image)
def test_every_row_is_whole_and_sourced(row: Image) -> None:
    assert SOURCE.fullmatch(row.source)
    assert row.vendor in ("nvidia", "amd", "none")
    assert row.version in row.image
    assert set(row.arch) <= {"amd64", "arm64"}
    assert (row.capabilities is None) == (row.vendor == "none")


@pytest.mark.parametrize("row", [row for row in images() if row.vendor == "nvidia"], ids=lambda row: row.image)
def test_the_driver_is_the_one_that_nvidia_names_for_the_toolkit(row: Image) -> None:
    assert row.toolkit is not None
    name, _, number = row.toolkit.partition(" ")
    assert name == "CUDA"
    assert row.driver == driver_for(tuple(map(int, number.split(".")))).full


@pytest.mark.parametrize("row", images(), ids=lambda row: row.image)
def test_releases_that_recommend_sglang_serve_are_started_so(row: Image) -> None:
    assert row.entry == (("sglang", "serve") if at_least(row.version, "0.5.10") else LAUNCH_SERVER)


def test_no_two_rows_claim_the_same_hardware_but_where_the_order_decides() -> None:
    claims = [
        (row.version, row.vendor, arch, capability)
        for row in images()
        for arch in row.arch
        for capability in row.capabilities or ("",)
    ]
    twice = {claim for claim in claims if claims.count(claim) > 1}
    assert {version for version, *_ in twice} <= {"0.5.3", "0.5.19"}


@pytest.mark.parametrize("typed", [None, "lmsysorg/sglang:v0.5.12-cu130", "lmsysorg/sglang:v0.5.12-cu130" + DIGEST])
def test_a_digest_in_the_table_is_exported_and_is_the_same_image(
    typed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [replace(row, image=row.image + DIGEST) for row in images()]
    monkeypatch.setattr("sglang_hydra.convert.export.images.images", lambda: rows)
    words = ["gpu=h200", "engine.version=0.5.12", *([] if typed is None else [f"launch.image={typed}"])]
    found = image_of(plan_of(*words))
    assert found is not None
    assert found.image == (typed or "lmsysorg/sglang:v0.5.12-cu130" + DIGEST)
    assert found.entry == ("sglang", "serve")


@pytest.mark.parametrize(
    ("gpu", "version", "image"),
    [
        ("h200", "0.5.2", "lmsysorg/sglang:v0.5.2-cu126"),
        ("a100_80gb", "0.5.2", "lmsysorg/sglang:v0.5.2-cu126"),
        ("b200", "0.5.2", "lmsysorg/sglang:v0.5.2-cu128-b200"),
        ("b200", "0.5.3rc1", "lmsysorg/sglang:v0.5.3rc1-cu129-b200"),
        ("h200", "0.5.12", "lmsysorg/sglang:v0.5.12-cu130"),
        ("b300", "0.5.12", "lmsysorg/sglang:v0.5.12-cu130"),
        ("h200", "0.5.19", "lmsysorg/sglang:v0.5.19-cu130"),
        ("gb200", "0.5.6", "lmsysorg/sglang:v0.5.6-cu129-arm64"),
        ("b200", "0.5.6", "lmsysorg/sglang:v0.5.6-cu129-amd64"),
        ("mi300x", "0.5.9", "lmsysorg/sglang:v0.5.9-rocm700-mi30x"),
        ("mi355x", "0.5.9", "lmsysorg/sglang:v0.5.9-rocm700-mi35x"),
        ("mi300x", "0.5.2", "rocm/7.0:rocm7.0_ubuntu_22.04_sgl-dev-v0.5.2-rocm7.0-mi30x-20250915"),
        # Nobody published these, or nobody said so where it can be found.
        ("gb200", "0.5.2", None),
        ("b300", "0.5.2", None),
        ("rtx_5090", "0.5.2", None),
        ("h200", "0.5.23", None),
        ("mi355x", "0.5.12", None),
    ],
)
def test_the_image_is_that_of_the_release_and_the_hardware(gpu: str, version: str, image: str | None) -> None:
    found = image_of(plan_of(f"gpu={gpu}", "model=qwen3_8b", f"engine.version={version}"))
    assert (found.image if found else None) == image


def test_a_host_with_an_arm_processor_gets_no_other_image() -> None:
    overrides = ("gpu=gb300", "gpu.name=lab", "model=qwen3_8b", "engine.version=0.5.12")
    assert image_of(plan_of(*overrides)) is None


@pytest.mark.parametrize(
    "image",
    [
        "lmsysorg/sglang:v0.5.23-cu130",
        "lmsysorg/sglang",
        "registry.example.com:5000/team/sglang_x:1.0",
        f"lmsysorg/sglang:v0.5.23-cu130{DIGEST}",
        f"lmsysorg/sglang{DIGEST}",
    ],
)
@pytest.mark.parametrize("format", ["docker", "compose", "k8s"])
def test_an_image_of_ones_own_is_taken_also_by_digest(format: str, image: str) -> None:
    made = artifact(format, "gpu=h200", "model=qwen3_8b", "engine.version=0.5.23", f'launch.image="{image}"')
    assert image in made.text
    assert "EXP002" not in [finding.id for finding in made.findings]


@pytest.mark.parametrize("image", ["lmsysorg/sglang:v0.5.2-cu126", f"lmsysorg/sglang:v0.5.22{DIGEST}"])
def test_an_image_of_another_release_is_not_exported(image: str) -> None:
    with pytest.raises(ConfigError, match="IMP019"):
        artifact("k8s", "gpu=h200", "model=qwen3_8b", "engine.version=0.5.23", f'launch.image="{image}"')


@pytest.mark.parametrize("tag", ["v0.5.9", "v0.5.23-cu129", "0.5.9"])
def test_a_tag_alone_is_completed_by_its_repository_and_planned_for_its_release(tag: str) -> None:
    with pytest.raises(ConfigError, match="EXP003") as refused:
        artifact("k8s", "gpu=h200", "model=qwen3_8b", "engine.version=0.5.23", f"launch.image={tag}")
    (remedy,) = refused.value.findings[0].remedies
    image = f"lmsysorg/sglang:{tag}"
    assert (
        f"image: {image}" in artifact("k8s", "gpu=h200", "model=qwen3_8b", "engine.version=0.5.23", *remedy.words).text
    )


@pytest.mark.parametrize(
    "image", ["", "Sglang:1", "a b", "a:b:c", "a@sha256:12", "-a", "a/", "$(x)", "a\nb", "https://a/b"]
)
def test_what_is_no_image_is_refused(image: str) -> None:
    plan = plan_of("gpu=h200", "model=qwen3_8b")
    with pytest.raises(ConfigError, match="EXP003"):
        image_of(replace(plan, nodes=plan.nodes.having("launch", {"image": image})))


def test_the_artifact_says_what_the_image_asks_of_its_host() -> None:
    text = artifact("docker", "gpu=b200", "model=qwen3_8b", "engine.version=0.5.12").text
    assert "CUDA 13.0; the host needs driver 580.65.06 or newer. Source: SemiAnalysisAI/InferenceX#1418" in text
    assert "  sglang serve \\\n" in text
