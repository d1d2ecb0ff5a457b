//! Behaviour of the command, through the binary.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod configuration;
mod demo;
mod devices;
mod doctor;
mod frames;
mod galleries;
mod interrupted;
mod models;
mod nothing_lost;
mod prompts;
mod report;
mod support;
mod synth;
mod terminal;
mod whole_scans;
mod workers;
