#!/usr/bin/env bash
# Type-checks the program with its CUDA back end on a machine that has no CUDA toolkit.
#
# Build scripts of candle call nvcc and look for its files. A stand-in answers them: it says which
# version it is and writes an empty file wherever an output is asked for. That is enough for
# `cargo check`, which never opens them. It says nothing about the kernels themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

toolkit=$(mktemp -d)
trap 'rm -rf "$toolkit"' EXIT
mkdir -p "$toolkit/bin" "$toolkit/include" "$toolkit/lib64"
: >"$toolkit/include/cuda.h"
cat >"$toolkit/bin/nvcc" <<'NVCC'
#!/usr/bin/env bash
out=
folder=.
kind=object
sources=()
while (($#)); do
    case "$1" in
        --version)
            echo 'nvcc: NVIDIA (R) Cuda compiler driver'
            echo 'a stand-in that compiles nothing'
            echo 'made for type checks'
            echo 'Cuda compilation tools, release 13.0, V13.0.88'
            exit
            ;;
        -o | --output-file) out=$2; shift ;;
        --output-directory | -odir) folder=$2; shift ;;
        -ptx | --ptx) kind=ptx ;;
        *.cu) sources+=("$1") ;;
    esac
    shift
done
if [[ -n $out ]]; then
    case "$out" in
        *.a) ar rcs "$out" ;;
        *) : >"$out" ;;
    esac
elif [[ $kind == ptx ]]; then
    for source in "${sources[@]}"; do
        name=$(basename "$source")
        : >"$folder/${name%.cu}.ptx"
    done
fi
NVCC
chmod +x "$toolkit/bin/nvcc"

# A target folder of its own: cuda turns features of candle on that would rebuild the usual one.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/check-cuda"
PATH="$toolkit/bin:$PATH" CUDA_HOME="$toolkit" CUDA_PATH="$toolkit" NVCC="$toolkit/bin/nvcc" \
    CUDA_COMPUTE_CAP=80 cargo check --package shelfscan-cli --features cuda "$@"
