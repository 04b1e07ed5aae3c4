"""``hydra/sweeper=sglang``: judges every point before one starts, and runs the points of a server one after another.

Hydra imports this in every app of an environment, so it imports nothing of sglang_hydra before a sweep is made."""

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SglangSweeper(Sweeper):
    """Sweeps an app with SGLang's arguments in its config: runs the task for each point that can be launched.

    The settings are those of the ``sweep`` node and override it: ``hydra.sweeper.where='tp_size <= gpu.count'``."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> object:
        from sglang_hydra.measure.sweep.hydra_sweeps import sweep_app
        from sglang_hydra.measure.sweep.points import HydraRun

        running = HydraRun(self.config, self.hydra_context, self.task_function)
        return sweep_app(running, arguments, self.settings)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="sglang",
    node={
        "_target_": "hydra_plugins.sglang_hydra.sweeper.SglangSweeper",
        "params": {},
        "zip": [],
        "where": None,
        "dry_run": False,
        "budget_gpu_hours": None,
    },
    provider="sglang_hydra",
)
