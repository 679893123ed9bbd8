//! `cargo xtask bench`: measures, compares, reports.

#[cfg(feature = "bench")]
pub(crate) mod results;
pub(crate) mod suite;
