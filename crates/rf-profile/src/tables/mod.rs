//! What profilers write, as typed rows.
//!
//! [`Table`] reads CSV and finds columns by name, because their order and number change with every release. A row's
//! type is made from any table that has its columns under one of the names that the tools give them:
//! [`KernelRow`] from rocprofv3's `kernel_trace`, rocprof's `results.csv`, rocprofv2's and rocprof-compute's tables.
//!
//! ```
//! use rf_profile::tables::{CopyRow, KernelRow, StatsRow, Table};
//!
//! let csv = "Kind,Direction,Source_Agent_Id,Destination_Agent_Id,Start_Timestamp,End_Timestamp\n\
//!            MEMORY_COPY,HOST_TO_DEVICE,0,1,500,1700\n";
//! let table = Table::parse(csv, "memory_copy_trace.csv")?;
//! assert!(CopyRow::fits(&table) && !KernelRow::fits(&table) && !StatsRow::fits(&table));
//! assert_eq!(CopyRow::all(&table)?[0].end_ns, 1700);
//! # Ok::<(), rf_profile::Error>(())
//! ```

mod counters;
mod csv;
mod kernels;
mod other;

pub use counters::{CounterProfile, CounterRow};
pub use csv::{Row, Table};
pub use kernels::{KernelRow, KernelSummary, kernel_table, summarize_kernels};
pub use other::{AllocationRow, ApiRow, CopyRow, PcSample, StatsRow, TimelineEvent};
