"""The released package, loaded from this environment among inert modules and on a faked machine."""

from __future__ import annotations

import ast
import importlib
import inspect
import logging
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .inert import InertFinder, install
from .world import OPTIONAL_PACKAGES, Hub, Machine

# What a recording calls or replaces, as MODULE: names ("a.b" is an attribute of an attribute).
NEEDED = {
    "sglang.srt.server_args": (
        "ServerArgs.__post_init__", "ServerArgs.add_cli_args", "ServerArgs.from_cli_args",
        "ServerArgs.check_server_args", "prepare_server_args", "PortArgs.init_new", "ZMQ_TCP_PORT_DELTA", "LoRARef",
        "FunctionCallParser.ToolCallParserEnum", "ReasoningParser.DetectorMap", "SUPPORTED_LORA_TARGET_MODULES",
        "LORA_TARGET_ALL_MODULES", "get_config", "is_port_available", "get_device", "get_device_memory_capacity",
        "is_cuda", "is_hip", "is_flashinfer_available", "is_sm90_supported", "is_sm100_supported",
        "is_triton_kernels_available",
    ),
    "sglang.srt.configs.model_config": (
        "ModelConfig.from_server_args", "multimodal_model_archs", "is_multimodal_model",
    ),
}  # fmt: skip


class LayoutError(Exception):
    """The installed release is not laid out as the recorder needs it; the text says what is missing."""


class Log(logging.Handler):
    """The messages of one case: those at level INFO, and those above it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.infos: list[str] = []
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        (self.infos if record.levelno == logging.INFO else self.warnings).append(record.getMessage())

    def clear(self) -> None:
        self.infos, self.warnings = [], []


class Released:
    """The package's server_args and model_config modules and what was faked around them."""

    def __init__(self) -> None:
        try:
            self.version = version("sglang")
        except PackageNotFoundError as error:
            raise LayoutError("there is no sglang in this environment") from error
        self.machine = Machine()
        install(InertFinder(OPTIONAL_PACKAGES, self.machine.present))
        self.machine.install()
        self.server_args = _load("sglang.srt.server_args")
        self.model_config = _load("sglang.srt.configs.model_config")
        self.file = str(self.server_args.__file__)
        self.text_only = self._local_list("mm_disabled_models")

        self.hub = Hub(self.model_config.is_multimodal_model, self.text_only)
        self.server_args.get_config = self.hub.get_config
        self.model_config.ModelConfig.from_server_args = self.hub.from_server_args

        self.log = Log()
        logger = logging.getLogger("sglang.srt.server_args")
        logger.addHandler(self.log)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logging.lastResort = None

    def _local_list(self, name: str) -> list[str]:
        """The list of strings that ModelConfig's constructor assigns to its local variable `name`."""
        source = Path(inspect.getfile(self.model_config)).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
                return list(ast.literal_eval(node.value))
        raise LayoutError(f"sglang.srt.configs.model_config assigns no list to {name}")


def _load(name: str) -> Any:
    try:
        module: Any = importlib.import_module(name)
    except Exception as error:  # whatever an unknown release raises while it is imported
        raise LayoutError(f"{name} cannot be imported among inert modules: {type(error).__name__}: {error}") from error
    for path in NEEDED[name]:
        value: Any = module
        for part in path.split("."):
            if not hasattr(value, part):
                raise LayoutError(f"{name} has no {path}")
            value = getattr(value, part)
    return module
