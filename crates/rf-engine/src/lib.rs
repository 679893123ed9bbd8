//! Sequences, scheduling, sampling.
