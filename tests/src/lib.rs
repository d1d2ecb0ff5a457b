//! Home of the cross-crate tests; see `tests/`.
