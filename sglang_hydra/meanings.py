"""What the ids mean that no rule and no check has: the pages of ``explain CLI006`` and its like."""

from __future__ import annotations

from collections.abc import Mapping


def known_ids() -> frozenset[str]:
    """Every id that a finding or a ledger entry can have."""
    from sglang_hydra.argv import MEANINGS as ARGUMENTS
    from sglang_hydra.checks.launchable import PLAN_CHECKS
    from sglang_hydra.rules import ORDER

    return frozenset((*(rule.id for rule in (*ORDER, *PLAN_CHECKS)), *ARGUMENTS, *MEANINGS))


def meaning_of(id: str) -> str | None:
    """One or two sentences about a finding's id; None for an id that is not used."""
    from sglang_hydra.argv import MEANINGS as ARGUMENTS

    if id in ARGUMENTS:
        return f"SGLang's own command line: {ARGUMENTS[id]}."
    return MEANINGS.get(id)


MEANINGS: Mapping[str, str] = {
    "ACT001": "A running server holds another value for an argument than the plan. A warning where the server is the "
    "release whose rules the plan follows: there, they should have been equal.",
    "ACT002": "The KV cache of a running server is larger or smaller than the memory fit allows for, its error included.",
    "ACT003": "A running server could not be compared with its plan: it did not say in time what it runs with, or "
    "refused to. The server is left alone.",
    "ACT004": "The running server is another release of SGLang than the plan was made for.",
    "ARG001": "An argument that SGLang 0.5.2 does not have was given to resolve().",
    "ARG002": "No model was named. It is the one argument that has no default: model=PRESET, model=org/name, "
    "model=./folder or model_path=...",
    "CLI001": "A key that is neither an argument of SGLang nor one of ours, on the command line or in a YAML file. "
    "Nothing would read it, so it is refused rather than ignored.",
    "CLI002": "A value of the wrong type, or one that is not among the choices. Numbers are written bare, text needs "
    "quotes only where YAML or Hydra would read it as something else (off, null, a comma).",
    "CLI003": "A value that Hydra's override grammar cannot read. Quoted text is taken letter by letter: key='...'.",
    "CLI004": "A word that is no key=value: a verb that does not come first, a flag with dashes, a preset without its "
    "group.",
    "CLI005": "~key deletes a key in Hydra. Arguments always exist; they can only be left at their default.",
    "CLI006": "A config group or an option of it that does not exist. Options are YAML files in conf/GROUP/ or in "
    "GROUP/ of a folder that --config-dir names.",
    "CLI007": "Several values where one plan takes one: a comma outside of brackets, choice(...), range(...).",
    "CLI008": "What Hydra or OmegaConf refused while composing: an interpolation that leads nowhere, a defaults list "
    "that cannot be followed, a file that cannot be read.",
    "CLI009": "A config file is no YAML; file, line and column say where.",
    "CLI010": "A secret was typed on the command line, where the shell's history and the process list show it. "
    "Put it into a variable and type ${oc.env:NAME}.",
    "CLI011": "ignore=[ID] names a finding that cannot be silenced because SGLang itself refuses, or an id that "
    "does not exist.",
    "CLI012": "A flag without its value, or one that names a folder that does not exist.",
    "CLI013": "-m (several runs) with a verb that makes one plan.",
    "CLI014": "The first word is no verb.",
    "CLI015": "explain takes the name of an argument or the id of a finding.",
    "CLI016": "No argument has these words in its name or its help.",
    "CLI017": "A file that check cannot read: not there, no YAML, no plan.",
    "CLI018": "The primary config is not there, or does not hold SGLang's arguments.",
    "CLI019": "A flag of Hydra's own with a verb that runs without Hydra's run folder.",
    "CLI020": "A variable of engine.env that no environment can hold: a name that is no identifier, a zero byte.",
    "ENG001": "engine= names something that is no engine.",
    "ENG002": "No engine on this machine can serve the plan: not installed, or not enough memory. Exit code 3.",
    "ENG003": "The embedded engine has no way to check an API key, so it does not start with one.",
    "ENG004": "Arguments that the embedded engine does not use. The plan shows what SGLang would do with them.",
    "ENG005": "A value that the engine's command line cannot say.",
    "ENG006": "The port is in use.",
    "ENG007": "Nothing can listen on this host and port.",
    "ENG008": "The server ended before it was ready. Its last lines are shown; the rest is in server.log.",
    "ENG009": "The server was not ready in launch.ready_timeout seconds.",
    "ENG010": "The server ended by itself after it had been ready.",
    "CLI023": "Hydra itself refused to set up the run: a key of its own that does not exist, or a run folder that "
    "cannot be made.",
    "CLI024": "A time-out of the launch node that is no time.",
    "ENG012": "engine.version is no version number.",
    "ENG013": "engine.python names no program on this machine.",
    "ENG011": "Servers are started on Linux and macOS only.",
    "CLI021": "recipes takes gpu=, model= and scenario=, each a part of a name.",
    "CLI022": "A setting of the fit node that means nothing: a negative size, a context of no token.",
    "EXP001": "fabric is none of tcp, roce and ib.",
    "EXP002": "No published image of this SGLang release is known for this hardware. Tags follow no formula, so none is "
    "guessed: the artifact asks for one where it is used.",
    "EXP003": "launch.image is no image reference.",
    "EXP004": "An argument holds bytes that are no UTF-8 text; a script or manifest cannot hold them.",
    "EXP005": "The flags of several nodes, and the plan does not say where node 0 is: HEAD:PORT stands for it.",
    "EXP006": "The plan's host is a loopback address. In a container the server listens on every address of it.",
    "EXP007": "The API key is in no artifact. Where it cannot be asked for by name, it is left out.",
    "EXP008": "sglang.Engine logs less than a server unless log_level is set.",
    "EXP009": "The plan sets variables, which keyword arguments cannot hold.",
    "EXP010": "How a container gets this vendor's accelerators is not known here.",
    "EXP011": "Compose knows one host, and the plan has several nodes: the file runs on each of them.",
    "EXP012": "export without a format, or with one that does not exist.",
    "EXP013": "A job on other machines whose server listens on the loopback address only.",
    "EXP014": "The manifest takes a folder from the node that its pod runs on.",
    "EXP015": "A size of the cache volume that is none.",
    "EXP016": "-o with a verb that writes no file.",
    "EXP017": "The file that -o names cannot be written.",
    "EXP018": "An export of a plan for the embedded engine. Exports start SGLang.",
    "EXP019": "A relative path in an artifact that may be run from another folder.",
    "EXP020": "A value that SGLang's own --config file cannot hold: it would be read as a flag.",
    "LCH001": "The run folder cannot be made or written. Exit code 3.",
    "LCH002": "The plan takes more GPUs of this machine than a process sees here, from base_gpu_id on. Exit code 3.",
    "LCH003": "Other processes hold memory of the GPUs that the plan takes. A warning where the server starts with a "
    "smaller KV cache, an error where it would stop.",
    "LCH004": "The environment of engine.python has another SGLang than the one that engine.version names. Exit code 3.",
    "LCH005": "The model is not here, and this user may not write where it would be downloaded to. Exit code 3.",
    "LCH006": "Part of the server's output is not in server.log: the disk was full, or the folder went away. The server "
    "is not stopped for that.",
    "LCH007": "status, stop or logs with a name that no detached server has, or that several have.",
    "LCH008": "The folder for the files of detached servers cannot be written. Exit code 3.",
    "LCH009": "The process that stays with a detached server was killed or failed; its server ends with it.",
    "LCH010": "This machine starts no more processes. Exit code 3.",
    "LCH011": "The log of a detached server was removed.",
    "FIT001": "The plan does not fit into the memory of its GPUs: the least that it can need is more than there is. "
    "The hint names changes that fit, each of them planned.",
    "FIT002": "The plan fits only if everything outside of the weights takes the least that was ever seen.",
    "FIT010": "A field of config.json that sizes the model is no size.",
    "FIT011": "An index of safetensors files that cannot be read; file and field are named.",
    "FIT012": "A safetensors file whose header cannot be read.",
    "FCT001": "model_path is not the checkpoint of the preset that was chosen: the preset's facts do not speak for it, "
    "and its own config.json is read instead, or nothing is known.",
    "FCT002": "Facts that no GPU can have: an unknown vendor or device, a memory or a count out of range.",
    "FCT003": "gpu=auto recognised the class of this machine's GPUs, and one fact of theirs differs from the class. "
    "What the machine says is used.",
    "GPU002": "The plan is for a kind of GPU that this machine does not have. Exit code 3.",
    "GPU003": "The plan is for another GPU of the same vendor than this machine's. The server asks its own GPU and "
    "resolves other values than the plan shows.",
    "HUB001": "A config.json that cannot be used; file, line and column say where.",
    "HUB002": "A local model_path without a config.json.",
    "HUB003": "model.facts_from names a file that is not there.",
    "HUB004": "Nothing is known of the model: its config.json is neither here nor could it be fetched. The rules that "
    "read it are not applied.",
    "HUB005": "The model's config.json leaves fields out whose defaults only transformers knows.",
    "HUB006": "The model's config.json leaves fields out, and the installed transformers filled its defaults in.",
    "NOD005": "Several nodes with the embedded engine, which runs on one.",
    "NOD006": "A node other than the first is started without dist_init_addr: only who started node 0 knows its "
    "address.",
    "NOD007": "Node 0 cannot listen on the port of dist_init_addr, or none is free. Exit code 3.",
    "NOD008": "This node does not reach node 0: the host is unknown, or nothing answers there. A head that is up but "
    "does not listen yet is waited for. Exit code 3.",
    "PRT001": "The port is no number.",
    "PRT002": "No free port for NCCL: SGLang would search for one without end.",
    "PRT003": "dist_init_addr is no HOST:PORT.",
    "RCP001": "A published recipe uses an argument of a later SGLang.",
    "RCP002": "What the catalog notes about a recipe.",
    "RCP003": "A published recipe leaves an argument to a variable of the script that it stands in; it is not set.",
    "SLM001": "A setting of launch.slurm that Slurm would misread: not one of its values, more than one line, an option "
    "of sbatch that has a setting of its own or would make another job of it.",
    "SLM002": "launch.slurm.container without an image, or with a model that the container does not find.",
    "SLM003": "launch=slurm on a machine without Slurm's commands, or without the package submitit. Exit code 3.",
    "SLM004": "Slurm refused the job; its own words are shown. Exit code 3.",
    "SLM005": "A function that runs inside a Slurm job was called outside of one.",
    "SLM006": "The first node of the job has no address that the others could reach.",
    "SLM007": "A secret in a setting that goes into the job's script, which Slurm keeps and shows.",
    "SLM011": "The job ended with its walltime, and the server with it.",
    "SLM012": "The job was preempted: another one needed its nodes.",
    "SLM013": "A node of the job went down.",
    "SLM014": "The job used more host memory than it had asked for.",
    "SLM015": "The job was cancelled from outside.",
    "SLM016": "The job ended without a word from the server's watcher: its batch process did not start or was killed.",
}
