//! The scan as a library, on shelves drawn by the tests.
#![allow(clippy::unwrap_used)]

mod drawn;
mod identity;
mod journal;
mod live;
mod real;
mod scan;
