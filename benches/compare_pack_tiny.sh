#!/bin/sh
# Times pack-tiny in this port and in PyTorch f32 in one run.
# Needs a Python with torch and safetensors; PYTHON names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cargo build --release --manifest-path "$here/Cargo.toml" --target-dir "${CARGO_TARGET_DIR:-$here/target}"
exec "${PYTHON:-python3}" "$here/compare_pack_tiny.py" "${CARGO_TARGET_DIR:-$here/target}/release/shelfscan-benches" "$@"
