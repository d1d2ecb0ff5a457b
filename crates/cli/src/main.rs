//! The shelfscan command.
fn main() {}
