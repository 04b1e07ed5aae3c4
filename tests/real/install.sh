#!/usr/bin/env bash
# Makes an environment with a real SGLang for a machine without a GPU. Only tests use it.
#
#   tests/real/install.sh 0.5.2 .venv-sglang-0.5.2       about 70 seconds, 2.5 GB
#   tests/real/install.sh 0.5.23 .venv-sglang-0.5.23     about 100 seconds, 3 GB
#   tests/real/install.sh 0.5.9 .venv-sglang-0.5.9       any other: for its arguments alone, 4 minutes, 3 GB
#
# Does nothing where the environment is complete. The compiled kernels, which need CUDA libraries, are not installed:
# standin.py takes their names. torch is pinned in each step: any step may pull in another one, which brings gigabytes
# of CUDA.
set -euo pipefail

version=${1:?the SGLang version}
venv=${2:?the folder of the environment}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}

# What SGLang imports on its way to serving on the CPU. Its own list of requirements names the CUDA kernels too.
both="aiohttp dill einops fastapi gguf interegular ipython msgspec numpy orjson partial-json-parser pillow \
    prometheus-client psutil pybase64 pydantic python-multipart pyzmq requests scipy setproctitle tiktoken tqdm \
    triton==3.9.0 uvicorn uvloop"
case $version in
0.5.2)
    size="70 seconds, 2.5 GB"
    router=0.1.9
    own="compressed-tensors llguidance openai openai-harmony sentencepiece transformers==4.56.1"
    standins="sgl_kernel='0.3.9.post2', torchao='0.9.0'"
    ;;
0.5.23)
    size="100 seconds, 3 GB"
    router=0.3.2
    own="apache-tvm-ffi==0.1.11 compressed-tensors==0.18.0 datasets jsonschema llguidance>=1.7.6,<2 nvidia-ml-py \
        openai==2.8.0 openai-harmony==0.0.4 packaging regex sentencepiece==0.2.1 soundfile==0.13.1 tokenizers==0.23.2 \
        transformers==5.19.0 watchfiles xgrammar==0.2.7 xxhash zstandard"
    kernels=0.4.10
    standins="sgl_kernel='$kernels'"
    ;;
*) # for tools/random_release_cases.py, which stands in for the kernels itself
    size="4 minutes, 3 GB"
    router=0.3.2
    own="apache-tvm-ffi compressed-tensors datasets jsonschema llguidance nvidia-ml-py openai==2.8.0 openai-harmony \
        packaging regex sentencepiece==0.2.1 soundfile==0.13.1 watchfiles xgrammar xxhash zstandard"
    standins=
    ;;
esac

stamp=$venv/.complete
want=$(cat "$here/install.sh" "$here/standin.py" "$root/constraints.txt" | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    exit 0
fi

echo "Installing SGLang $version for the CPU into $venv: about $size"
rm -rf "$venv"
"$python" -m venv "$venv"
pip() {
    PIP_CONSTRAINT=$root/constraints.txt "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"
}

pip install torch
# shellcheck disable=SC2086 # lists of words
pip install $both $own
# Last, and without what it requires: pip would name everything that is left out.
pip install --no-deps "sglang==$version"
# The router of its day; a later one on a Python or a machine that has no wheel of it.
pip install --only-binary=:all: "sglang-router==$router" || pip install --only-binary=:all: sglang-router

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [ "$version" != 0.5.2 ]; then
    pip install --no-deps torchvision==0.28.0
    # It describes the compiled operators of torchvision, which are not loaded beside a torch for the CPU.
    : > "$site/torchvision/_meta_registrations.py"
fi
if [ -z "$standins" ]; then
    pip install "$("$venv/bin/python" -c '
from importlib.metadata import requires
print(next(line for line in requires("sglang") if line.startswith("transformers==")))')"
    echo "$want" > "$stamp"
    exit 0
fi
if [ "$version" = 0.5.23 ]; then
    # A module of the kernels' package that is Python alone, and that is really used.
    modules=$site/kernel_standin_modules
    mkdir "$modules"
    pip download --no-deps --dest "$modules" "sglang-kernel==$kernels"
    "$python" -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' \
        "$modules"/*.whl sgl_kernel/scalar_type.py > "$modules/sgl_kernel.scalar_type.py"
    rm "$modules"/*.whl
fi
cp "$here/standin.py" "$site/kernel_standin.py"
echo "import kernel_standin; kernel_standin.install($standins)" > "$site/kernel_standin.pth"
"$venv/bin/python" -c 'import sglang.srt.server_args'
echo "$want" > "$stamp"
