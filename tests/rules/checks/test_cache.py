"""The hierarchical cache."""

from __future__ import annotations

import pytest

from sglang_hydra.rules.checks.nodes import check_storage_needs as check
from sglang_hydra.rules.table import TABLE
from tests.rules.cases import Row, refused, unchanged, warned

STORED = "gpu=h200 engine.version=0.5.23 model=qwen3_8b enable_hierarchical_cache=true hicache_storage_backend"
EXTRA = "hicache_storage_backend_extra_config"
ROWS = (
    refused(TABLE["HIC002"], "radix", enable_hierarchical_cache=True, disable_radix_cache=True),
    unchanged(TABLE["HIC002"], enable_hierarchical_cache=True),
    unchanged(TABLE["HIC002"], disable_radix_cache=True),
    warned(check, "its master", "mooncake_store.py", overrides=f"{STORED}=mooncake"),
    warned(check, "its master", overrides=f'{STORED}=mooncake {EXTRA}={{"prefetch_threshold":8}}'),
    unchanged(check, overrides=f'{STORED}=mooncake {EXTRA}={{"master_server_address":"10.0.0.1:50051"}}'),
    unchanged(check, overrides=f"{STORED}=mooncake engine.env.MOONCAKE_MASTER=10.0.0.1:50051"),
    unchanged(check, overrides=f"{STORED}=mooncake {EXTRA}=@mooncake.json"),
    unchanged(check, overrides=f"{STORED}=file"),
    unchanged(check, overrides=f"{STORED}=nixl"),
    unchanged(check, overrides=f"{STORED}=hf3fs"),
    warned(check, "latent attention", overrides=f"{STORED}=hf3fs".replace("qwen3_8b", "deepseek_v3 tp_size=8")),
    warned(check, "manager", overrides=f"{STORED}=simm"),
    warned(check, "class_name", overrides=f"{STORED}=dynamic"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_check_answers_as_its_row_says(row: Row) -> None:
    row.check()
