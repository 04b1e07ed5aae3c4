"""What type checkers see of sglang_hydra: each comment names an error that mypy and pyright have to find."""

from collections.abc import Mapping

from omegaconf import DictConfig

import sglang_hydra

sglang_hydra.ServerArgs(model_path="org/name", tp_size=2)
sglang_hydra.ServerArgs(tp_size="x")  # type: ignore[arg-type]
sglang_hydra.ServerArgs(tpsize=3)  # type: ignore[call-arg]


@sglang_hydra.main
def one(plan: sglang_hydra.Plan) -> float:
    return float(plan.values["tp_size"])


@sglang_hydra.main(strict=False)
def with_config(config: DictConfig, plan: sglang_hydra.Plan) -> str:
    return plan.server_id


@sglang_hydra.main
def several(config: DictConfig, plans: Mapping[str, sglang_hydra.Plan]) -> list[str]:
    return [plan.server_id for plan in plans.values()]


@sglang_hydra.main(strict="no")  # type: ignore[call-overload,untyped-decorator]
def wrong(plan: sglang_hydra.Plan) -> None: ...


def results() -> tuple[float, str, list[str]]:
    return one(), with_config(), several()


def refused() -> int:
    return with_config()  # type: ignore[return-value]
