//! Sequences, scheduling, sampling.

pub mod sampling;
