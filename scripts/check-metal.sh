#!/usr/bin/env bash
# Type-checks the models with candle's Metal back end on a machine that is no Mac.
#
# The bindings of Apple's frameworks refuse other systems in three places: two crates want to be told
# that another Objective-C runtime is meant, and one asks the linker for a framework. This makes a
# workspace aside in which they are told, and in which the request to the linker is left out, and
# checks the ports there. `cargo check` links nothing, so that is enough. Code of our own that is
# compiled on macOS alone, and the shaders, are not covered.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

version() { sed -n "/^name = \"$1\"\$/{n;s/version = \"\\(.*\\)\"/\\1/p}" Cargo.lock | tail -1; }
fetched() {
    local found
    found=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 2 -name "$1-$(version "$1")" | head -1)
    [[ -n $found ]] && printf '%s' "$found"
}

cargo fetch --quiet
aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
cp -r "$(fetched objc2-metal)" "$aside/objc2-metal"
sed -i '/link(name = "Metal", kind = "framework")/d' "$aside/objc2-metal/src/generated/mod.rs"
for crate in inference-core model-kit dinov2 sam3; do
    mkdir -p "$aside/crates"
    ln -s "$root/crates/$crate" "$aside/crates/$crate"
done
mkdir -p "$aside/metal/src"
cat >"$aside/metal/src/lib.rs" <<'RUST'
//! Names what is to be checked.
pub use {shelfscan_dinov2::Dinov2, shelfscan_sam3::Sam3};
RUST
cat >"$aside/metal/Cargo.toml" <<TOML
[package]
name = "check-metal"
edition = "2024"

[dependencies]
shelfscan-dinov2 = { path = "../crates/dinov2", features = ["metal"] }
shelfscan-sam3 = { path = "../crates/sam3", features = ["metal"] }
objc2 = { version = "$(version objc2)", features = ["gnustep-2-1"] }
block2 = { version = "$(version block2)", features = ["gnustep-2-1"] }
TOML
# The settings of the workspace with other members.
sed -e 's|^members = .*|members = ["metal", "crates/*"]|' -e '/^default-members/d' -e '/^exclude/d' \
    Cargo.toml >"$aside/Cargo.toml"
cat >>"$aside/Cargo.toml" <<TOML

[patch.crates-io]
objc2-metal = { path = "objc2-metal" }
TOML
cp Cargo.lock "$aside/Cargo.lock"

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/check-metal"
cargo check --manifest-path "$aside/metal/Cargo.toml" "$@"
