#!/usr/bin/env bash
# Makes an environment with the real SGLang for a machine without a GPU. Only tests use it.
#
#   tests/real/install.sh 0.5.2 .venv-sglang-0.5.2
#
# About 70 seconds and 2.5 GB. Does nothing where the environment is complete. The compiled kernels, which need CUDA
# libraries, are not installed: standin.py takes their names. torch is pinned in each step: any step may pull in
# another one, which brings gigabytes of CUDA.
set -euo pipefail

version=${1:?the SGLang version, 0.5.2}
venv=${2:?the folder of the environment}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}

if [ "$version" != 0.5.2 ]; then
    echo "install.sh knows what SGLang 0.5.2 needs, not $version" >&2
    exit 2
fi

stamp=$venv/.complete
want=$(cat "$here/install.sh" "$here/standin.py" "$root/constraints.txt" | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    exit 0
fi

echo "Installing SGLang $version for the CPU into $venv: about 70 seconds, 2.5 GB"
rm -rf "$venv"
"$python" -m venv "$venv"
install() {
    PIP_CONSTRAINT=$root/constraints.txt "$venv/bin/python" -m pip --quiet --disable-pip-version-check install "$@"
}

install torch
# Its own requirements name the CUDA kernels: the ones that a server on the CPU imports follow by hand.
install --no-deps "sglang==$version"
install transformers==4.56.1 triton==3.9.0 \
    aiohttp compressed-tensors dill einops fastapi gguf interegular ipython llguidance msgspec numpy openai \
    openai-harmony orjson partial-json-parser pillow prometheus-client psutil pybase64 pydantic python-multipart pyzmq \
    requests scipy sentencepiece setproctitle tiktoken tqdm uvicorn uvloop

# The router of its day; on a Python or a machine that has no wheel of it, a later one.
install --only-binary=:all: sglang-router==0.1.9 2> /dev/null || install --only-binary=:all: sglang-router

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp "$here/standin.py" "$site/kernel_standin.py"
echo "import kernel_standin; kernel_standin.install()" > "$site/kernel_standin.pth"
"$venv/bin/python" -c 'import sglang.srt.server_args'
echo "$want" > "$stamp"
