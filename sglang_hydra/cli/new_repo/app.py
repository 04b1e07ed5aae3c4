"""Plans the server of each job and leaves the plan in the job's folder."""

import json
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig

import sglang_hydra

# Hydra 1.3 asks for version_base, Hydra 1.4 warns of it.
OF_1_3 = {"version_base": None} if hydra.__version__.startswith("1.3.") else {}


@hydra.main(config_path="conf", config_name="config", **OF_1_3)
@sglang_hydra.main
def run(plan: sglang_hydra.Plan) -> None:
    """Runs your experiment. Replace the last lines: start the server, train, measure."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    (folder / "plan.json").write_text(json.dumps(plan.to_json(), indent=2) + "\n")
    print(f"{plan.gpu.name}, tp_size={plan.values['tp_size']}, context_length={plan.values['context_length']}")
    print(" ".join(plan.command))


if __name__ == "__main__":
    run()
