//! Requests served together: the answers of each one alone, and every way to end.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod answers;
mod backend;
mod checkpoints;
mod choices;
mod constraints;
mod distribution;
mod doors;
mod drafts;
mod fairness;
mod faults;
mod host_states;
mod limits;
mod mtp;
mod random;
mod recurrent;
mod saved;
mod support;
mod tensor;
mod tiers;
mod tiers_killed;
mod window;
