#!/usr/bin/env bash
# Type-checks the program with its CUDA back end, without and with the flash attention kernels, on a
# machine that has no CUDA toolkit.
#
# Build scripts of candle call nvcc and look for its files. A stand-in answers them: it says which
# version it is and writes an empty file wherever an output is asked for. That is enough for
# `cargo check`, which never opens them. The build script of candle-flash-attn also clones the headers
# of CUTLASS; a stand-in for git makes an empty folder instead, in a place of its own, so that a real
# build does not find it. It says nothing about the kernels themselves.
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
cat >"$toolkit/bin/git" <<'GIT'
#!/usr/bin/env bash
# A stand-in that clones nothing and agrees to the rest.
if [[ ${1-} == clone ]]; then
    mkdir -p "${!#}"
fi
GIT
chmod +x "$toolkit/bin/nvcc" "$toolkit/bin/git"

# A target folder of its own: cuda turns features of candle on that would rebuild the usual one.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/check-cuda"
export PATH="$toolkit/bin:$PATH" CUDA_HOME="$toolkit" CUDA_PATH="$toolkit" NVCC="$toolkit/bin/nvcc"
export CUDA_COMPUTE_CAP=80 CUDAFORGE_HOME="$toolkit/cudaforge"
for features in cuda cuda,flash-attn; do
    cargo check --package shelfscan-cli --features "$features" "$@"
done
