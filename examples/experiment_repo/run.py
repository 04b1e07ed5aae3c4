"""An experiment: Hydra composes it, sglang_hydra plans the server, and what is done with the plan is ours.

python run.py +experiment=long_context gpu=h200
python run.py -m tp_size=1,2,4
"""

import json
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig

import sglang_hydra


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
@sglang_hydra.main
def run(plan: sglang_hydra.Plan) -> float:
    """Leaves the plan in the run folder; returns how many tokens the KV cache of one GPU holds, for a sweeper."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    (folder / "plan.json").write_text(json.dumps(plan.to_json(), indent=2) + "\n")
    tokens = plan.fit.kv_tokens if plan.fit and plan.fit.kv_tokens else 0
    verdict = "can be launched" if plan.launchable else "; ".join(f"{item.id} {item.message}" for item in plan.errors)
    print(f"{plan.gpu.name}, tp_size={plan.values['tp_size']}, page_size={plan.values['page_size']}: {verdict}")
    print(f"  {tokens} tokens of KV cache on each GPU; server {plan.server_id}")
    print(f"  {' '.join(plan.command)}")
    return float(tokens)


if __name__ == "__main__":
    run()
