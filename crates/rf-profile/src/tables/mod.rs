//! What profilers write, as typed rows.
//!
//! [`Table`] reads CSV and finds columns by name, because their order and number change with every release. A row's
//! type is made from any table that has its columns under one of the names that the tools give them:
//! [`KernelRow`] from rocprofv3's `kernel_trace`, rocprof's `results.csv`, rocprofv2's and rocprof-compute's tables.

mod counters;
mod csv;
mod kernels;
mod other;

pub use counters::{CounterProfile, CounterRow};
pub use csv::{Row, Table};
pub use kernels::{KernelRow, KernelSummary, kernel_table, summarize_kernels};
pub use other::{AllocationRow, ApiRow, CopyRow, PcSample, StatsRow, TimelineEvent};
