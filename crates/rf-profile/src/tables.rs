//! Typed rows of the tables that profilers write.
//!
//! [`Table`] reads CSV and finds columns by name, because their order and number change with every
//! release. The tools use different names for the same column, so each row type accepts all of
//! them: [`KernelRow`] reads the `kernel_trace` of rocprofv3, the `results.csv` of rocprof, and the
//! tables of rocprofv2 and rocprof-compute.
//!
//! ```
//! use rf_profile::tables::{CopyRow, KernelRow, StatsRow, Table};
//!
//! let csv = "Direction,Source_Agent_Id,Destination_Agent_Id,Start_Timestamp,End_Timestamp\n\
//!            HOST_TO_DEVICE,0,1,500,1700\n";
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
pub use csv::{Table, TableRow};
pub use kernels::{KernelRow, KernelSummary, kernel_table, summarize_kernels};
pub use other::{AllocationRow, ApiRow, CopyRow, PcSample, StatsRow, TimelineEvent};
