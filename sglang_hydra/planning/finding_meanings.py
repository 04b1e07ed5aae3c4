"""What each finding id means that belongs to no rule and no check; ``explain CLI006`` shows it."""

from __future__ import annotations

from collections.abc import Mapping


def plan_ids() -> frozenset[str]:
    """Every id that a finding or a ledger entry of a plan can have."""
    from sglang_hydra.arguments.argv import MEANINGS as ARGUMENTS
    from sglang_hydra.rules.checks.launchable import PLAN_CHECKS
    from sglang_hydra.rules.order import ORDER

    return frozenset((*(rule.id for rule in (*ORDER, *PLAN_CHECKS)), *ARGUMENTS, *MEANINGS, *RETIRED))


def meaning_of(id: str) -> str | None:
    """One or two sentences about a finding's id; None for an id that is not used."""
    from sglang_hydra.arguments.argv import MEANINGS as ARGUMENTS

    if id in ARGUMENTS:
        return f"SGLang's own command line: {ARGUMENTS[id]}."
    if id in RETIRED:
        return f"Retired: {RETIRED[id]}"
    return MEANINGS.get(id)


RETIRED: Mapping[str, str] = {}
"""Ids that no finding has any more, each with the id that took its place or why it went. ``explain`` and ``ignore``
still know them, and no new rule takes one."""

MEANINGS: Mapping[str, str] = {
    "ACT001": "A running server holds another value for an argument than the plan. A warning where the server is the "
    "release whose rules the plan follows: there, they should have been equal.",
    "ACT002": "The KV cache of a running server is larger or smaller than the memory fit allows for, its error "
    "included.",
    "ACT003": "A running server could not be compared with its plan: it did not say in time what it runs with, or "
    "refused to. The server is left alone.",
    "ACT004": "The running server is another release of SGLang than the plan was made for.",
    "ACT005": "A server answers, and is not the one that was planned: it says another value of an argument than it was "
    "started with, or neither whose its port is nor what it runs with can be seen. It is stopped, and nothing of it is "
    "measured. launch.force=true takes it all the same.",
    "ACT006": "Which process listens on the server's port cannot be seen here: another container or network namespace, "
    "a process of another user, no /proc. What the server says of itself is then all that identifies it.",
    "ARG001": "An argument that SGLang 0.5.2 does not have was given to resolve().",
    "ARG002": "No model was named. It is the one argument that has no default: model=PRESET, model=org/name, "
    "model=./folder or model_path=...",
    "CLI001": "A key that is neither an argument of SGLang nor one of ours, on the command line or in a YAML file. "
    "Nothing would read it, so it is refused rather than ignored.",
    "CLI002": "A value of the wrong type, or one that is not among the choices. Numbers are written bare, text needs "
    "quotes only where YAML or Hydra would read it as something else (off, null, a comma).",
    "CLI003": "A value that Hydra's override grammar cannot read. Quoted text is taken letter by letter: key='...'.",
    "CLI004": "A word that is no key=value: a verb that does not come first, a flag with dashes, a preset without its "
    "group, a file that is not there or is no experiment, a second file.",
    "CLI005": "~key deletes a key in Hydra. Arguments always exist; they can only be left at their default.",
    "CLI006": "A config group or an option of it that does not exist. Options are YAML files in conf/GROUP/ or in "
    "GROUP/ of a folder that --config-dir names.",
    "CLI007": "Several values where one plan takes one: a comma outside of brackets, choice(...), range(...).",
    "CLI008": "What Hydra or OmegaConf refused while composing: an interpolation that leads nowhere, a defaults list "
    "that cannot be followed, a file that cannot be read.",
    "CLI009": "A config file is no YAML, or not one with keys; file, line and column say where.",
    "CLI010": "A secret was typed on the command line, where the shell's history and the process list show it. "
    "Put it into a variable and type ${oc.env:NAME}.",
    "CLI011": "ignore=[ID] names a finding that cannot be silenced because SGLang itself refuses, or an id that "
    "does not exist.",
    "CLI012": "A flag without its value, or one that names a folder that does not exist.",
    "CLI013": "-m (several runs) with a verb that makes one plan.",
    "CLI014": "The first word is no verb.",
    "CLI015": "explain takes the name of an argument or the id of a finding.",
    "CLI016": "No argument has these words in its name or its help.",
    "CLI017": "A file that cannot be read: not there, no YAML, no experiment, no plan.",
    "CLI018": "The primary config is not there, or does not hold SGLang's arguments.",
    "CLI019": "A flag of Hydra's own with a verb that runs without Hydra's run folder.",
    "CLI020": "A variable of engine.env that no environment can hold: a name that is no identifier, a zero byte.",
    "BEN001": "A setting of the load that no client can run: a length of nothing, a rate below zero, an unknown word.",
    "BEN002": "Settings of the load that do not go together: a file without its dataset, a prefix as long as the "
    "prompt.",
    "BEN003": "The file of prompts cannot be read, or an entry of it holds no prompt.",
    "BEN004": "The file of fixed questions cannot be read, or holds no question.",
    "BEN014": "Prompt and answer together are longer than what the planned server has room for: its context, or the "
    "whole KV cache. Measured, each request would fail or be cut short.",
    "BEN015": "A server that cannot answer what is sent: an embedding model, one half of prefill-decode "
    "disaggregation, text for a server without a tokenizer.",
    "BEN010": "The server did not become idle, so its prefix cache could not be emptied and the point was not taken.",
    "BEN011": "The model's tokenizer cannot be used in the engine's environment: prompts of exact length need it.",
    "BEN012": "bench_serving was asked for where it is not to be had, or for a load that it cannot express.",
    "BEN013": "bench_serving ended without leaving a result.",
    "BEN016": "A process of the load client ended in the middle of a run, so the point was not taken.",
    "UPG001": "upgrade was told no release, or one that is not in the table: --to and --from take what is listed.",
    "UPG002": "upgrade takes one thing: overrides, recipe=ID, a launch command, or one file that is there.",
    "UPG003": "The SGLang that --against names is another release than --to.",
    "UPG004": "upgrade looks at one server of SGLang: not at the embedded engine, nor at a topology of several.",
    "UPG005": "The new file is there already, or cannot be written. Nothing is ever written over.",
    "UPG006": "--to and --from belong to upgrade.",
    "REP001": "report was called without the folder of a sweep.",
    "REP002": "A file of the report cannot be written.",
    "REV001": "--base and --format belong to check. --format is text, markdown or json, and one of them at a time.",
    "REV002": "--base names neither a folder nor a git revision that is here, or git refused to read it.",
    "RNR001": "Planned where it is to run, a sweep's server is another one than was planned: the machine differs, or "
    "the planned engine is not installed there.",
    "RNR002": "A setting of the sweep node that no run can follow: a state in sweep.rerun that is none, less than one "
    "job at a time.",
    "SEC001": "A program that a file names (engine.python, topology.router.python) was not asked what it has, since "
    "planning starts nothing that nobody typed. Type the key, or trust its folder: docs/security.md.",
    "SEC002": "A primary config of somebody else's adds a package or a folder elsewhere to Hydra's search path. Type "
    "hydra.searchpath, or trust the folder of the file: docs/security.md.",
    "VAR001": "A file reads an environment variable that files may not read: its value would be in the plan and in all "
    "that is made of it. docs/security.md lists those that files may read; --allow-env NAME allows another one.",
    "VAR002": "A value that is taken from a secret field (${api_key}), which no plan shows.",
    "VAR003": "The variable of a secret field is read when the server starts. It is not set, or only a file names it, "
    "and a server gets SGLANG_HYDRA_API_KEY and what the user allows.",
    "SET001": "The settings of the user (docs/security.md) cannot be read, or hold a key or a value that is none. "
    "Nothing is decided by settings that are wrong.",
    "STO001": "A folder that is to hold a sweep holds something else, or nothing.",
    "STO002": "A file of a sweep's folder cannot be read.",
    "STO003": "A file of a sweep's folder was written in another schema than this release reads.",
    "DIA000": "A log whose failure is of no known class. Its last lines are shown. Exit code 5.",
    "DIA060": "A log in which the server became ready and nothing failed, whether it still runs or was asked to stop.",
    "DIA901": "diagnose takes the file of a log, or - for standard input; exit_code= is what the server ended with.",
    "DIA902": "A log that cannot be read.",
    "DIF001": "diff did not get two sides, each quoted as one word.",
    "ENG001": "engine= names something that is no engine.",
    "ENG002": "No engine on this machine can serve the plan: not installed, or not enough memory. Exit code 3.",
    "ENG003": "The embedded engine has no way to check an API key, so it does not start with one.",
    "ENG004": "Arguments that the embedded engine does not use. The plan shows what SGLang would do with them.",
    "ENG005": "A value that the engine's command line cannot say.",
    "ENG006": "The port is in use.",
    "ENG007": "Nothing can listen on this host and port.",
    "ENG008": "The server ended before it was ready, or another process answers on its port. Its last lines are shown; "
    "the rest is in server.log.",
    "ENG009": "The server was not ready in launch.ready_timeout seconds.",
    "ENG010": "The server ended by itself after it had been ready.",
    "CLI023": "Hydra itself refused to set up the run: a key of its own that does not exist, or a run folder that "
    "cannot be made.",
    "CLI026": "status, stop, logs or diagnose with an option that it does not have.",
    "CLI025": "completion takes the name of a shell that it knows.",
    "CLI024": "A time-out of the launch node that is no time.",
    "ENG012": "engine.version is no version number.",
    "ENG013": "engine.python names no program on this machine.",
    "ENG011": "Servers are started on Linux and macOS only.",
    "CLI027": "The disk, or the quota on it, is full where the output goes. Exit code 3.",
    "CLI021": "recipes takes gpu=, model= and scenario=, each a part of a name.",
    "CLI022": "A setting of the fit node that means nothing: a negative size, a context of no token.",
    "EXP001": "fabric is none of tcp, roce and ib.",
    "EXP002": "No published image of this SGLang release is known for this hardware. Tags follow no formula, so "
    "none is "
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
    "EXP015": "A setting below launch.k8s that Kubernetes would refuse.",
    "EXP016": "-o with a verb that writes no file.",
    "EXP017": "The file that -o names cannot be written.",
    "EXP018": "An export of a plan for the embedded engine. Exports start SGLang.",
    "EXP019": "A relative path in an artifact that may be run from another folder.",
    "EXP021": "A format that knows one server, and a topology of several.",
    "EXP022": "A variable of the plan that a bash script cannot set, because bash or the script itself has one of that "
    "name.",
    "EXP023": "A path that Kubernetes cannot mount.",
    "EXP020": "A value that SGLang's own --config file cannot hold: adapters, and what would be read as a flag.",
    "LCH001": "The run folder cannot be made or written. Exit code 3.",
    "LCH002": "The plan takes more GPUs of this machine than a process sees here, from base_gpu_id on. Exit code 3.",
    "LCH003": "Other processes hold memory of the GPUs that the plan takes. A warning where the server starts with a "
    "smaller KV cache, an error where it would stop.",
    "LCH004": "The environment of engine.python has another SGLang than the one that engine.version names. Exit "
    "code 3.",
    "LCH005": "The model is not here, and this user may not write where it would be downloaded to. Exit code 3.",
    "LCH006": "Part of the server's output is not in server.log: the disk was full, or the folder went away. The "
    "server "
    "is not stopped for that.",
    "LCH007": "status, stop or logs with a name that no detached server has, or that several have.",
    "LCH008": "The folder for the files of detached servers cannot be written. Exit code 3.",
    "LCH009": "The process that stays with a detached server was killed or failed; its server ends with it.",
    "LCH010": "This machine starts no more processes. Exit code 3.",
    "LCH011": "The log of a detached server was removed.",
    "LCH012": "A file in the state folder of detached servers that is none of theirs, or half of one: it is left out "
    "and stays where it is.",
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
    "HUB005": "The model's config.json leaves fields out, and no config class is known that reads it: the checkpoint "
    "brings code of its own, which a plan does not run. What holds for these fields is unknown.",
    "HUB006": "The model's config.json leaves fields out. The defaults of its config class hold, as they were recorded "
    "from the transformers that SGLang 0.5.2 pins; whether transformers is installed changes nothing.",
    "IMP001": "import was given something that starts no SGLang server. It looks for launch commands, containers, "
    "srtctl recipes, logs with server_args and files of arguments.",
    "IMP002": "A source for import that cannot be read: no such file, a folder, too long.",
    "IMP003": "A flag of an imported command that no release of SGLang takes, or a value that its release refuses. It "
    "is left out, and marked in the file.",
    "IMP004": "A flag, a value or a release that is later than 0.5.2. It becomes engine.version and extra.NAME.",
    "IMP005": "A value that the source does not tell: a variable that nobody sets, the output of a command, a rank. It "
    "is left out.",
    "IMP006": "An imported server without a model.",
    "IMP007": "How the model of an imported server was found among the presets, or that none is for it.",
    "IMP008": "A flag that its release only still accepts; what it stands for is taken.",
    "IMP009": "A secret in an imported command. The file refers to a variable instead, as ${oc.env:NAME}.",
    "IMP010": "The GPU class of an imported server, where the source does not tell it or tells several.",
    "IMP011": "A part of a source that was passed over: variants of a recipe, flags behind a comment, a cut line.",
    "IMP012": "No preset and no smaller set of arguments planned to the same server: all of them are kept.",
    "IMP013": "Values of a log that no arguments lead to by the rules of 0.5.2, as where another release wrote it.",
    "IMP014": "An override behind the source of an import that an experiment of one server does not have.",
    "IMP015": "A file that import cannot write, or will not because it is there already.",
    "IMP016": "An imported server that SGLang would refuse, or that would fail after its start, on the GPU that it is "
    "for.",
    "LCK001": "lock= names a file that cannot be read: not there, no JSON, no whole plan.",
    "LCK002": "lock= names a file of another kind, or a plan that another version of this package wrote.",
    "LCK004": "What of a lock could not be compared on this machine: a GPU that is not here, a config.json that cannot "
    "be read, a secret. The recorded facts are used.",
    "LCK005": "An argument would now resolve to another value than the lock records: an override on top of it, another "
    "version of this package, other facts.",
    "LCK006": "The GPU facts are not those of the lock.",
    "LCK007": "The model's facts are not those of the lock: another revision, another config.json.",
    "LCK008": "Another engine than the lock's, or another version of it.",
    "LCK009": "Another container image than the lock's.",
    "LCK010": "SGLang would find other variables in its environment than the lock records.",
    "LCK011": "A lock holds one server: a topology has several, and a saved plan is a record itself.",
    "LCK012": "What to do about a lock that no longer holds.",
    "LCK013": "The locked server has an API key. Keys are in no file: it has to be given again.",
    "NOD005": "Several nodes with the embedded engine, which runs on one.",
    "NOD006": "A node other than the first is started without dist_init_addr: only who started node 0 knows its "
    "address.",
    "NOD007": "Node 0 cannot listen on the port of dist_init_addr, or none is free. Exit code 3.",
    "NOD008": "This node does not reach node 0: the host is unknown, or nothing answers there; or it is node 0 itself, "
    "and dist_init_addr is the address of another machine. A head that is up but "
    "does not listen yet is waited for. Exit code 3.",
    "PRT001": "The port is no number.",
    "PRT002": "No free port for NCCL: SGLang would search for one without end.",
    "PRT003": "dist_init_addr is no HOST:PORT.",
    "RCP001": "A published recipe uses an argument of a later SGLang.",
    "RCP002": "What the catalog notes about a recipe.",
    "RCP003": "A published recipe leaves an argument to a variable of the script that it stands in; it is not set.",
    "TOP001": "A setting of the topology that means nothing: a number of servers that cannot be, replicas without "
    "topology=replicas, an unknown word.",
    "TOP002": "An argument that a topology sets itself, or that can only be the same for all of its servers.",
    "STO004": "A sweep's folder cannot be written. The disk is full, this user has no right to, a link leads nowhere, "
    "a name is too long, it is mounted read-only: the finding says which, and what helps. What is in it stays whole. "
    "Exit code 3.",
    "STO005": "resume was called without the folder of a sweep.",
    "STO006": "A result that cannot be read. It is renamed to result.json.damaged-N, and its point is taken again. "
    "Inferred: a disk that was full, a crash, an editor.",
    "STO007": "resume needs an API key that no file keeps: the variable that the sweep's command named, or "
    "SGLANG_HYDRA_API_KEY, has to be set.",
    "RNR003": "A sweep measures one server on one node, which it starts itself or by a Hydra launcher. Points with a "
    "topology, on several nodes or with another launch are left out.",
    "RNR004": "A server of a sweep takes more GPUs than can be seen where it is to run.",
    "RNR005": "A search that cannot be made: a word that is none, no SLO to meet, nothing between its bounds, nothing "
    "that varies, a launcher that cannot carry it.",
    "RNR006": "A launcher could not submit the jobs of a sweep; its own words are shown. Exit code 3.",
    "RNR007": "A package that bench, report or sweep.search=tpe needs is not installed. Exit code 3.",
    "SWP001": "A sweep without a point: a list of no values, a pattern that no option matches.",
    "SWP002": "Values that cannot be listed: an interval has no list of values. range(0.7,0.9,0.05) has one; "
    "sweep.search=tpe draws from an interval.",
    "SWP003": "sweep.zip names keys that vary together, which takes as many values of each, and each key once.",
    "SWP004": "sweep.params maps each key to a list of its values, or to a text in Hydra's sweep grammar.",
    "SWP005": "sweep.where is no constraint: comparisons, arithmetic, and, or, not and in over the keys of a plan. "
    "The column says where. Nothing in it is ever executed.",
    "SWP006": "A point that sweep.where leaves out, or for which it cannot be computed.",
    "SWP007": "No point of the sweep can be launched. Nothing is started.",
    "SWP008": "The sweep would take more GPU hours than sweep.budget_gpu_hours. The estimate rests on "
    "sweep.start_seconds and sweep.point_seconds.",
    "SWP009": "A setting of the sweep node that means nothing: a time below zero, a name that no folder can have.",
    "SWP011": "hydra/sweeper=sglang in an app whose config does not hold SGLang's arguments.",
    "SWP020": "sweep.search_space names a file that is no master configuration of InferenceX, or an entry that one "
    "SGLang "
    "server cannot run; as a warning, rows of it that are left out.",
    "SWP021": "A launcher or sweeper of Hydra whose _target_ is none of the installed Hydra plugins, in a file or an "
    "override. Nothing is imported from it.",
    "SWP010": "A file that a sweep cannot take: resume goes on with what was begun, and of a file that bench was given "
    "its folder keeps words, without secrets.",
    "TOP003": "A topology is started on one node, by launch=local, in the foreground.",
    "TOP004": "The servers of a topology need more GPUs than the node has (gpu.count).",
    "TOP005": "Two servers of a topology would run on the same GPU.",
    "TOP006": "Two servers of a topology would listen on the same port, or a port that was set is none.",
    "TOP007": "Prefill and decode servers split attention over numbers of ranks of which neither is a multiple of the "
    "other.",
    "TOP008": "Decode servers with pipeline stages, which SGLang 0.5.2 cannot send a KV cache to.",
    "TOP009": "Prefill and decode servers use different transfer backends.",
    "TOP010": "Prefill and decode servers hold their KV cache in pages of different sizes or types; it is copied as it "
    "is.",
    "TOP011": "Prefill servers have to share requests out in turn (round_robin) where a side has data parallel ranks: "
    "both sides work out a request's rank from its number.",
    "TOP012": "Prefill and decode servers run different models or drafts.",
    "TOP013": "The router's policy power_of_two with one server to choose from; the router does not start.",
    "TOP014": "A setting of the router that its release does not have, or not with this value.",
    "TOP015": "The router's package is not installed, or its interpreter is not there. Exit code 3.",
    "TOP016": "The router that is installed is not the one that was out when this SGLang was released.",
    "TOP017": "The router is too old to know prefill and decode servers.",
    "TOP018": "What the router does with the servers' API key. It is never on a command line.",
    "TOP019": "A topology is made of SGLang servers; another engine is planned.",
    "TOP020": "explain takes the argument of one server of a topology: explain decode.tp_size, explain replica.1.port.",
    "TOP021": "A server of a topology ended by itself. topology.on_worker_exit says whether the others go on.",
    "TOP022": "The router of a topology ended by itself; the servers are stopped.",
    "SLM001": "A setting of launch.slurm that Slurm would misread: not one of its values, more than one line, an "
    "option "
    "of sbatch that has a setting of its own or would make another job of it.",
    "SLM002": "launch.slurm.container without an image, or with a model that the container does not find.",
    "SLM003": "launch=slurm on a machine without Slurm's commands, or without the package submitit. Exit code 3.",
    "SLM004": "Slurm refused the job; its own words are shown. Exit code 3.",
    "SLM005": "A function that runs inside a Slurm job was called outside of one, or in a job with too few nodes.",
    "SLM006": "The first node of the job has no address that the others could reach.",
    "SLM007": "A secret in a setting that goes into the job's script, which Slurm keeps and shows.",
    "SLM008": "launch.detach with launch=slurm: the job ends with the command that submitted it.",
    "SLM009": "The run folder still holds the secrets of another job that was submitted from it. Exit code 3.",
    "SLM010": "A job found its secrets taken. Inferred: it was started twice, or the command that submitted it "
    "had ended.",
    "SLM011": "The job ended with its walltime, and the server with it.",
    "SLM012": "The job was preempted: another one needed its nodes.",
    "SLM013": "A node of the job went down.",
    "SLM014": "The job used more host memory than it had asked for.",
    "SLM015": "The job was cancelled from outside.",
    "SLM016": "The job ended without a word from the server's watcher. Inferred: its batch process did not start "
    "or was killed.",
    "VER001": "engine.version names no release of SGLang that the table of releases has.",
    "VER002": "The installed SGLang is not in the table of releases: its command line is taken to be that of the last "
    "release before it.",
    "VER003": "An argument that the engine's release has under another name. It is told by that name.",
    "VER004": "An argument that the engine's release no longer has, and nothing that takes its place with this value.",
    "VER005": "A value that the engine's release does not take for an argument.",
    "VER006": "A flag that the engine's release still takes and calls deprecated.",
    "VER007": "Arguments that nobody set and whose defaults are others in the engine's release. The plan shows "
    "0.5.2's.",
    "VER008": "An extra argument that the engine's release does not have, cannot be given, or not with this value.",
    "VRL001": "What was given to plan_rollout is no tree of verl's, or names no SGLang rollout, no model, no GPUs.",
    "VRL002": "The node engine_kwargs.sglang holds what nobody can tell from SGLang's defaults, or is no mapping.",
    "VRL003": "A key of ours in the node engine_kwargs.sglang that says nothing about a rollout.",
    "VRL004": "verl itself refuses a value of its rollout node, but only in its workers.",
    "VRL005": "A value of verl's rollout node that its SGLang rollout passes to nobody.",
    "VRL006": "Data parallelism in verl shares the GPUs of one server, which SGLang does with DP attention only.",
    "VRL007": "An argument in engine_kwargs.sglang that verl overwrites, for a feature that is on elsewhere in it.",
    "AUT001": "--against names no environment that has SGLang. Exit code 3.",
    "AUT002": "The SGLang that --against names could not be asked about a plan; its values stay those of 0.5.2's "
    "rules.",
    "AUT003": "The SGLang that --against names refuses the command line, in its own words.",
    "AUT004": "The SGLang that --against names answered, and no test asks a release of this number: a test asks 0.5.2 "
    "and 0.5.23.",
    "AUT005": "--against with a verb or a flag that it does not go with.",
}
