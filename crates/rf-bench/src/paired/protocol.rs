//! The protocol between a paired comparison and its workers: one JSON object per line.
//!
//! The comparison writes a [`WorkerRequest`] to the worker's stdin and reads one [`Response`] from
//! its stdout. The first request is [`WorkerRequest::Hello`]. End of input ends the worker.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of the protocol. Workers refuse any other.
pub const VERSION: u64 = 1;

/// A command to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerRequest {
    /// Opens the target.
    Hello(WorkerSettings),
    /// Prepares a workload instead of the current one.
    Prepare {
        /// The name of the workload.
        name: String,
    },
    /// Runs the current workload for about this long, at least once.
    Slice {
        /// The duration in milliseconds.
        ms: u64,
    },
}

/// The backend and the settings of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerSettings {
    /// The version of the protocol.
    pub version: u64,
    /// The GPU computes if true, otherwise the CPU.
    pub gpu: bool,
    /// Threads of the CPU; `None` for the default.
    pub threads: Option<usize>,
    /// Instruction set of the CPU; `None` for the best one.
    pub isa: Option<String>,
    /// The model of the suite `inference`.
    pub model: Option<PathBuf>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The answer to [`WorkerRequest::Hello`].
    Ready {
        /// The version of the protocol.
        version: u64,
        /// The backend: `avx512-vnni, 2 threads`.
        backend: String,
    },
    /// The answer to [`WorkerRequest::Prepare`]: the workload has run at least twice.
    Prepared {
        /// The time of the last run.
        run_ns: u64,
    },
    /// The answer to [`WorkerRequest::Prepare`]: the target or this build does not support the
    /// workload.
    Unsupported {
        /// The reason.
        reason: String,
    },
    /// The answer to [`WorkerRequest::Slice`].
    Times(Slice),
    /// The request failed.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// The measurement of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Times of a run, each the mean of the runs that share a sample.
    pub samples_ns: Vec<f64>,
    /// Fraction of the slice in which threads of the worker were ready and had no CPU, and in which
    /// the hypervisor withheld CPUs, per thread; 0 where the system does not report it.
    pub contention: f64,
}
