"""The model's files: where they are, whether they are whole, and who may read them."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight, sign

# An image or a video that a request names is fetched by its own address: no failure of the hub.
_OF_HUB = (
    r"(?!.*(?:for url: |host=['\"])"
    r"(?!.*(?:hugging|hf\.co|hf-mirror|modelscope|cdn-lfs|xethub|/resolve/|/api/)))"
)
_FILE = re.compile(r"['\"`(]?(/[\w./@+-]{2,200}|[\w-]{1,96}/[\w.-]{1,96})['\"`)]?")


def _file(line: str) -> str | None:
    """The path or the name on the hub that the line is about."""
    without_urls = re.sub(r"https?://\S+", "", line)
    found = _FILE.search(without_urls)
    return found[1] if found else None


CLASSES = (
    FailureClass(
        "DIA010",
        "hub_access",
        "the hub refuses access to the model: gated, private, or the token is not valid",
        "Gated models need the terms accepted on their page, and a token of that account in the environment of the "
        "server (in a container: of the container). A fine-grained token needs the right to read gated repositories.",
        "accept the model's terms on huggingface.co; or export HF_TOKEN=... where the server runs; or"
        " model_path=/local/folder, with the files downloaded before",
        (
            sign("GatedRepoError"),
            sign("gated repo", r"Cannot access gated repo|trying to access a gated repo", Weight.CAUSE),
            sign("Access to model", r"Access to model \S+ is restricted"),
            sign("401 Client Error", rf"401 Client Error{_OF_HUB}(?!.*Repository Not Found)", Weight.GENERAL),
            sign("403 Client Error", rf"403 Client Error{_OF_HUB}", Weight.GENERAL),
            sign("fine-grained token settings"),
            sign("Cannot access content at:", r"hugging|hf\.co|/resolve/|/api/", Weight.GENERAL),
            sign("403 Forbidden", r"huggingface|hf\.co|modelscope", Weight.GENERAL),
            sign("Invalid user token"),
            sign("Invalid username or password", None, Weight.GENERAL),
            sign("Token is required", r"token", Weight.GENERAL),
        ),
        fields=("model_path", "download_dir"),
        details=_file,
    ),
    FailureClass(
        "DIA011",
        "hub_unreachable",
        "the model's files are not here, and the hub cannot be reached",
        "Nothing of that name is in the cache, and downloading failed. Inferred: no network, a proxy, "
        "HF_HUB_OFFLINE=1, a rate limit, or the hub itself. In a container the cache of the host is not there unless "
        "it is mounted.",
        "model_path=/local/folder; or huggingface-cli download MODEL where there is a network, and the same HF_HOME "
        "for the server; or HF_HUB_OFFLINE=0; or HF_ENDPOINT=... for a mirror",
        (
            sign("We couldn't connect to '"),
            sign("outgoing traffic has been disabled"),
            sign("OfflineModeIsEnabled"),
            sign("LocalEntryNotFoundError", None, Weight.GENERAL),
            sign("An error happened while trying to locate the file", None, Weight.GENERAL),
            sign("429 Client Error", rf"429 Client Error{_OF_HUB}"),
            sign("Too Many Requests", r"hugging|hf\.co|Hub|/resolve/|/api/models"),
            sign("Server Error", rf"50\d Server Error: {_OF_HUB}.*for url"),
            sign("hf_transfer", r"error occurred while downloading using", Weight.GENERAL),
            sign("ConnectionPool(host=", r"huggingface\.co|hf\.co|modelscope|cdn-lfs|xethub|hf-mirror", Weight.GENERAL),
            sign("Max retries exceeded with url", r"/resolve/|/api/models|huggingface|modelscope", Weight.GENERAL),
            sign("Temporary failure in name resolution", r"hugging|hf\.|modelscope", Weight.GENERAL),
            sign("Name or service not known", r"hugging|hf\.|modelscope", Weight.GENERAL),
            sign("ReadTimeoutError", r"hugging|hf\.|cdn-lfs|xethub|modelscope"),
            sign("ConnectTimeout", r"hugging|hf\.|cdn-lfs|xethub|modelscope"),
            sign("cannot find the requested files in the local cache", None, Weight.GENERAL),
            sign("Cannot reach https://huggingface.co"),
            sign(
                "CERTIFICATE_VERIFY_FAILED",
                rf"^{_OF_HUB}.*(?:hugging|hf\.|modelscope|urlopen|SSLError|MaxRetryError)",
                Weight.GENERAL,
            ),
            sign("CAS service error", None, Weight.GENERAL),
            sign("IncompleteRead(", None, Weight.GENERAL),
            sign("httpx.", r"^httpx\.\w+(?::|$)", Weight.GENERAL, exception=True, frame=r"huggingface_hub|modelscope"),
            sign(
                "exceptions.",
                r"^(?:requests|urllib3)\.exceptions\.\w+(?::|$)",
                Weight.GENERAL,
                exception=True,
                frame=r"huggingface_hub|modelscope",
            ),
        ),
        retryable=True,
        fields=("model_path", "download_dir"),
    ),
    FailureClass(
        "DIA012",
        "model_not_found",
        "there is no model at model_path",
        "The path is not there where the server runs (in a container: not mounted), or no repository of the hub has "
        "this name. A path with a typing mistake is taken for the name of a repository, hence the odd words.",
        "model_path=... spelled as it is; or mount the folder into the container; or revision=..., where it was the "
        "revision that is not there",
        (
            sign("RepositoryNotFoundError"),
            sign("Repository Not Found for url"),
            sign("is not a valid model identifier listed on"),
            sign("HFValidationError"),
            sign("Repo id must"),
            sign("RevisionNotFoundError"),
            sign("Revision Not Found for url"),
            sign("is not a valid git identifier"),
            sign("FileNotFoundError: ", exception=True, frame=r"hf_file_system\.py"),
            sign("Can't load the configuration of '"),
            sign("does not appear to have a file named config.json"),
            sign("Incorrect path_or_model_id"),
            sign("No such file or directory", r"config\.json"),
            sign("EntryNotFoundError", r"config\.json", Weight.GENERAL),
            sign("Entry Not Found for url", r"config\.json", Weight.GENERAL),
            sign("Failed to load the model config", None, Weight.GENERAL),
            sign("model_path", r"[Mm]odel_?path.{0,80}(?:does not exist|not found|is not a directory)"),
            sign("NotExistError", r"[Mm]odel|repo"),
            sign("404 Client Error", r"for url: \S*modelscope"),
        ),
        fields=("model_path", "revision"),
        details=_file,
    ),
    FailureClass(
        "DIA013",
        "missing_weights",
        "the checkpoint has no weights, or not all of them",
        "A file of weights that is listed or looked for is not there. Inferred: the download was cut short, only some "
        "files were fetched, the folder holds adapters or another format, or load_format asks for files that it does "
        "not have.",
        "huggingface-cli download MODEL, once more and whole; or load_format=auto; or model_path=..., the folder with "
        "the *.safetensors files",
        (
            sign("Cannot find any model weights with"),
            sign("Cannot find any safetensors"),
            sign("shard file(s) missing"),
            sign("No model weights found in"),
            sign("Could not find checkpoint files"),
            sign("No such file or directory", r"\.(?:safetensors|bin|pt|gguf)\b"),
            sign("No such file", r"FileNotFoundError.*(?:safetensors|pytorch_model)"),
            sign("EntryNotFoundError", r"\.safetensors|pytorch_model|\.bin", Weight.GENERAL),
            sign("Entry Not Found for url", r"\.safetensors|pytorch_model|\.bin"),
            sign("no file named", r"model\.safetensors|pytorch_model\.bin"),
            sign("weight shards", r"[Mm]issing.{0,40}shard"),
            sign("Missing", r"Missing \d+ (?:shard|file)s?\b.*(?:safetensors|index)"),
            sign("Following weights were not initialized from checkpoint"),
            sign("Some parameters are not initialized from checkpoints", None, Weight.GENERAL),
            sign("No weights found", None, Weight.GENERAL),
            sign("No model files found in"),
            sign("in loaded state!", r"Error: Missing keys ", exception=True),
            sign("Integrity check failed"),
        ),
        fields=("model_path", "load_format", "download_dir"),
        details=_file,
    ),
    FailureClass(
        "DIA014",
        "corrupt_weights",
        "a file of weights is broken: cut short, empty, or not what its name says",
        "Inferred: a download that was interrupted, a full disk, or a clone without git-lfs (the file is then a "
        "pointer of a few lines). Every rank fails at the same file.",
        "delete the file and download it again; or git lfs pull, where the repository was cloned; or compare the sizes "
        "with those on the hub",
        (
            sign("SafetensorError", r"SafetensorError: (?!device)"),
            sign("Error while deserializing header"),
            sign("HeaderTooLarge"),
            sign("MetadataIncompleteBuffer"),
            sign("InvalidHeaderDeserialization"),
            sign("PytorchStreamReader failed"),
            sign("invalid load key"),
            sign("UnpicklingError", r"UnpicklingError: (?:Weights only|invalid load|pickle|unpickling stack)"),
            sign("failed finding central directory"),
            sign("Consistency check failed"),
            sign("GGUF magic invalid"),
            sign("unexpected EOF", r"corrupted|expected \d+ more bytes"),
            sign("corrupted", r"(?:file|checkpoint|weights?|safetensors).{0,60}corrupted", Weight.GENERAL),
        ),
        fields=("model_path",),
        details=_file,
    ),
    FailureClass(
        "DIA015",
        "weights_mismatch",
        "the weights do not fit the model that config.json describes",
        "Names or shapes in the files are not those that the model class expects. Inferred: another revision of "
        "config.json, a fine-tune saved with other names, a quantized checkpoint read without its format, or a release "
        "of SGLang that does not know this variant yet.",
        "the config.json and the weights of one revision (revision=...); or quantization=..., where the checkpoint is "
        "quantized and does not say so; or a later release of SGLang",
        (
            sign(
                "KeyError: ",
                r"KeyError: '[\w.]*(?:layers\.\d|weight|scale|_proj|experts|lm_head|embed|norm|qzeros)",
                frame=r"load_weights|_load_weights|loader",
            ),
            sign("KeyError: ", r"KeyError: '[\w.]*layers\.\d[\w.]*'", Weight.GENERAL),
            sign("size mismatch for", r"size mismatch for \S+: copying a param"),
            sign(
                "AssertionError",
                None,
                Weight.GENERAL,
                exception=True,
                frame=r"weight_loader|default_weight_loader|load_qkv_weight|load_merged_column|load_row_parallel",
            ),
            sign(
                "RuntimeError",
                r"start \(.*\) \+ length|size of tensor a|shape '\[|must match the size",
                exception=True,
                frame=r"weight_loader|load_weights|default_weight_loader",
            ),
            sign("Attempted to load weight", r"into parameter"),
            sign("loaded_weight.shape"),
            sign("There is no module or parameter named"),
            sign("not found in params_dict", None, Weight.GENERAL, in_warning=False, frame=r"load_weights"),
            sign("Unexpected key(s) in state_dict"),
        ),
        fields=("model_path", "revision", "quantization"),
    ),
    FailureClass(
        "DIA016",
        "bad_config",
        "config.json cannot be used: broken, or without what SGLang reads from it",
        "The file is no JSON, or lacks model_type or a field that the model class needs. Inferred: often it was cut "
        "short, or edited by hand, or the folder is a checkpoint of another tool.",
        "the model's own config.json, downloaded again; or json_model_override_args, for one field of it",
        (
            sign("is not a valid JSON file"),
            sign("Unrecognized model in"),
            sign("No model architectures are specified", exception=True),
            sign("does not contain a valid config", None, Weight.GENERAL),
            sign("Can't find config file in"),
            sign("Couldn't determine number of kv heads"),
            # OpenGVLab's and Tencent's own configurations: sgl-project/sglang#2520, Tencent/POINTS-Reader#7.
            sign(
                "object has no attribute",
                r"'\w*Config' object has no attribute",
                Weight.GENERAL,
                advice="a later release of SGLang, or the transformers that this release names: the configuration has "
                "other fields than are read; or json_model_override_args, for one field of it; or the model's own "
                "config.json, downloaded again",
            ),
            sign("JSONDecodeError", None, Weight.GENERAL, exception=True, frame=r"configuration_utils"),
            sign("Unrecognized configuration class", None, Weight.GENERAL),
            sign("rope_scaling", r"(?:KeyError|ValueError|AssertionError).*rope_scaling|Unknown RoPE scaling type"),
            sign("Unknown RoPE scaling type"),
            sign("StrictDataclass", r"StrictDataclass\w*(?:Validation)?Error"),
        ),
        fields=("model_path", "json_model_override_args"),
        details=_file,
    ),
)
