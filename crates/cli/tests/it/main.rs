//! Behaviour of the command, through the binary.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod configuration;
mod frames;
mod galleries;
mod interrupted;
mod prompts;
mod report;
mod support;
mod terminal;
mod whole_scans;
