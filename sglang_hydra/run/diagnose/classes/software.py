"""What is installed: packages, versions, compilers."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight, sign

_MODULE = re.compile(r"No module named '?([\w.]{1,80})'?|pip3? install (?:-U |--upgrade )?['\"`]?([\w.\[\]<>=-]{2,60})")
_LIBRARY = re.compile(r"(lib[\w.+-]{1,60}\.so[\w.]*)|undefined symbol: (\w{1,160})|`?(GLIBC\w*_[\d.]+)'?")
_PACKAGE = re.compile(r"([\w-]{2,40}) is installed with version ([\w.+]{1,30}).*?version ([\w.+]{1,30}?)\.? ")


def _module(line: str) -> str | None:
    found = _MODULE.search(line) or _LIBRARY.search(line)
    return next((name for name in found.groups() if name), None) if found else None


def _versions(line: str) -> str | None:
    found = _PACKAGE.search(line + " ")
    if found:
        return f"{found[1]} {found[2]} is installed, and {found[3]} is needed"
    found = _LIBRARY.search(line)
    return next((name for name in found.groups() if name), None) if found else None


CLASSES = (
    FailureClass(
        "DIA049",
        "version_mismatch",
        "installed packages do not go together",
        "sglang, sgl-kernel, flashinfer, torch and transformers are made for each other: a compiled extension looks "
        "for symbols of another torch, or Python code for names of another release.",
        "a fresh environment with pip install sglang==VERSION and nothing beside it; or the image of that release; or "
        "the package that the line names, in the version that it names",
        (
            sign("which is less than the minimum required version"),
            sign("with minimum required version", r"is not installed"),
            sign("undefined symbol"),
            sign("Could not load any common_ops library"),
            sign("cannot import name"),
            sign("has no attribute", r"module '[\w.]+' has no attribute", Weight.GENERAL),
            sign("object has no attribute", r"'_OpNamespace' '\w+' object has no attribute"),
            sign("partially initialized module", None, Weight.GENERAL),
            sign("is already used by a Transformers model"),
            # An operator that an extension registers without having it for this device: sgl-project/sglang#6322.
            sign("Could not run '", r"Could not run '\w+::\w+' with arguments from the '\w+' backend"),
            # A package that fails while it is only imported: sgl-project/sglang#27654, #4607.
            sign(
                "Error",
                r"^\w*(?:Value|Type|Attribute|Runtime|Name|Key|Index|Syntax|Assertion)Error\b",
                Weight.EFFECT,
                exception=True,
                frame=r"/(?:sglang/srt|transformers|sgl_kernel|flashinfer|kernels|triton|torch|torchvision|torchao|"
                r"xgrammar)/[^ ]*(?<!/__main__\.py) in <module>$",
            ),
            sign("GLIBCXX_", r"not found"),
            sign("GLIBC_", r"not found"),
            sign("CXXABI_", r"not found"),
            sign("A module that was compiled using NumPy 1.x cannot be run"),
            sign("numpy.dtype size changed"),
            sign("is not supported for model", r"Transformers version"),
            sign("Please upgrade transformers", None, Weight.CAUSE),
            sign("Please upgrade your", None, Weight.GENERAL, exception=True),
            sign("version is wrong. Please install"),
            sign("Please increase the version of"),
            sign("is not compatible with this version", None, Weight.GENERAL),
            sign("DistributionNotFound", None, Weight.GENERAL),
            sign("VersionConflict", None, Weight.GENERAL),
            sign("libcudart.so", r"cannot open shared object file"),
            sign("libnvrtc.so", r"cannot open shared object file"),
            sign("libcublas", r"cannot open shared object file"),
            sign("libcudnn", r"cannot open shared object file"),
            sign("libc10", r"cannot open shared object file"),
            sign("libtorch", r"cannot open shared object file"),
            sign("cuDNN version incompatibility"),
            # A check that SGLang makes of models with images under torch 2.9.1: sgl-project/sglang#14119
            # (package and version, 9.15 at least), ai-dynamo/dynamo#5482 (the whole message, the variable),
            # sgl-project/sglang#17668 (the CUDA 13 images), gpustack/gpustack#4407 (the variable helped).
            sign(
                "CuDNN Compatibility Issue Detected",
                in_warning=True,
                advice="pip install nvidia-cudnn-cu12==9.16.0.29 (nvidia-cudnn-cu13 with CUDA 13), or the image of a "
                "later release; or SGLANG_DISABLE_CUDNN_CHECK=1, for models without 3D convolutions",
            ),
            sign("got an unexpected keyword argument", None, Weight.GENERAL, exception=True),
            sign("flashinfer-cubin version"),
            sign("flashinfer-jit-cache version"),
            sign("does not match flashinfer version"),
            sign("requires vllm==", None, Weight.GENERAL),
        ),
        details=_versions,
    ),
    FailureClass(
        "DIA050",
        "missing_package",
        "a package that these arguments need is not installed",
        "Quantization formats, grammar backends, transfer engines and multimodal models bring requirements that "
        "sglang itself does not install. System libraries are of that kind too.",
        "pip install the package that the line names, into the environment of the server; or apt-get install libnuma1, "
        "for libnuma.so.1",
        (
            # AITER looks for a module before it compiles it.
            sign("ModuleNotFoundError", r"^(?!.*'aiter\.jit\.)"),
            sign(
                "No module named", r"^(?!.*(?:Ignore|Warning|disabled|'aiter\.jit\.)).*No module named", Weight.GENERAL
            ),
            sign("is not installed", exception=True),
            sign("ImportError", r"(?i)ImportError: .*install", Weight.CAUSE),
            sign("Please install", exception=True),
            sign("lease install", r"(?:ValueError|RuntimeError|ImportError|Exception): .*[Pp]lease install"),
            sign("libnuma.so", r"cannot open shared object file"),
            sign("cannot open shared object file", r"lib(?:ibverbs|rdmacm|nl|GL|gomp|sndfile|numa|mlx5)[\w-]*\.so"),
            sign("cannot open shared object file", None, Weight.GENERAL),
            sign("library but it was not found in your environment", None, Weight.GENERAL),
            sign("PackageNotFoundError"),
            sign("is required when run on", exception=True),
            sign("detected, but failed to import", exception=True),
            sign("requires package"),
            sign("command not found", r"(?:python3?|sglang|nvidia-smi): command not found", Weight.GENERAL),
        ),
        details=_module,
    ),
    FailureClass(
        "DIA051",
        "compile_failure",
        "kernels could not be compiled on this machine",
        "FlashInfer, Triton, DeepGEMM and torch.compile compile kernels when they are first needed, with nvcc, ninja, "
        "a C compiler and Python's headers. Inferred: slim images have none of these; or the CUDA toolkit does not "
        "know the GPU, or the host ran out of memory under many compilers at once.",
        "an image with the CUDA toolkit (devel), or CUDA_HOME=/usr/local/cuda; or pip install ninja, apt-get install "
        "gcc g++ python3-dev; or MAX_JOBS=4, where memory ran out; or rm -rf ~/.cache/flashinfer ~/.triton, for "
        "leftovers of another version",
        (
            sign("Ninja build failed", None, Weight.GENERAL),
            sign("ninja: build stopped", None, Weight.GENERAL),
            sign("Command '['ninja'", None, Weight.GENERAL),
            sign("Error building extension", None, Weight.GENERAL),
            sign("Could not find nvcc"),
            sign("nvcc: not found"),
            sign("nvcc: No such file"),
            sign("nvcc not found"),
            sign("nvcc fatal"),
            sign("nvcc", r"No such file or directory: '[^']*nvcc'"),
            sign("CUDA_HOME environment variable is not set"),
            sign("Ninja is required to load C++ extensions"),
            sign("No such file or directory: 'ninja'"),
            sign("Failed to find C compiler"),
            sign("Python.h: No such file"),
            sign("fatal error: ", r"fatal error: [\w./]+\.h(?:pp)?: No such file"),
            sign("cuda_utils", r"Command '\[.*(?:gcc|cc|clang).*returned non-zero exit status"),
            sign(
                "returned non-zero exit status",
                r"(?:gcc|g\+\+|/cc|clang|nvcc|hipcc|ptxas)\b.*returned non-zero exit",
                Weight.GENERAL,
            ),
            sign("PTXASError", None, Weight.GENERAL),
            sign("ptxas fatal"),
            sign("ptxas", r"`ptxas` failed|ptxas died", Weight.GENERAL),
            sign("Internal Triton PTX codegen error", None, Weight.GENERAL),
            sign("CompilationError", r"triton|at \d+:\d+:"),
            sign("NVCC compilation failed"),
            sign("NVCC", r"NVCC (?:compiler with version|version should be) ?>="),
            # AITER, on AMD: Dao-AILab/flash-attention#2580, HazyResearch/HipKittens#3, ROCm/aiter#257.
            sign("failed jit build ["),
            sign("failed build jit ["),
            sign("NVRTC", r"(?i)nvrtc.{0,40}(?:error|compil)", Weight.GENERAL),
            sign("BackendCompilerFailed", None, Weight.GENERAL),
            sign("InductorError", None, Weight.GENERAL),
            sign("torch._dynamo.exc.", None, Weight.GENERAL),
            sign("Cannot find a working triton installation"),
            sign("cicc", r"(?i)cicc.{0,40}(?:not found|No such file|died|Killed)"),
            sign("DeepGEMM", r"(?i)deep_?gemm.*(?:compil|nvcc).*(?:fail|error)", Weight.GENERAL),
            sign("deep_gemm", r"(?i)(?:assertion error|failed).*(?:nvcc|/jit|compiler)", Weight.GENERAL),
            sign("Failed to compile", None, Weight.GENERAL),
            sign("cannot find -lcuda"),
        ),
        fields=("attention_backend", "enable_torch_compile"),
    ),
)
