"""The rollout of a verl run, planned before verl starts anything.

python train.py
python train.py +experiment=dp_attention
"""

import json
from typing import Any

import hydra
from omegaconf import OmegaConf

import sglang_hydra
import sglang_hydra.convert.verl


@hydra.main(version_base=None, config_path="conf", config_name="trainer")
@sglang_hydra.convert.verl.main
def train(config: Any) -> None:
    """Shows what verl would get. With verl installed this is ``verl.trainer.main_ppo.run_ppo(config)``."""
    kwargs = OmegaConf.to_container(config.actor_rollout_ref.rollout.engine_kwargs.sglang)
    print("engine_kwargs " + json.dumps(kwargs, sort_keys=True))


if __name__ == "__main__":
    train()
