//! Calls, copies, allocations, samples, sums and timelines.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::Table;
use super::csv::Row;
use crate::Error;

/// A row of a tool's own sums (`*_stats.csv`, `results.stats.csv`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StatsRow {
    /// Kernel or function.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// Together.
    pub total_ns: f64,
    /// Mean.
    pub average_ns: f64,
    /// Of the time of all rows.
    pub percentage: f64,
    /// The least, of rocprofv3.
    pub min_ns: Option<f64>,
    /// The greatest, of rocprofv3.
    pub max_ns: Option<f64>,
}

/// A call of the HIP or HSA runtime, or a marker of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiRow {
    /// `HIP_RUNTIME_API_EXT`, `HIP_API`…
    pub domain: String,
    /// The function.
    pub function: String,
    /// The calling thread, where it is stated.
    pub thread: Option<u64>,
    /// When the call began.
    pub start_ns: u64,
    /// When it returned.
    pub end_ns: u64,
}

/// A copy between memories.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyRow {
    /// As the tool says: `MEMORY_COPY_HOST_TO_DEVICE`…
    pub direction: String,
    /// From where.
    pub source: String,
    /// To where.
    pub destination: String,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// An allocation of device memory, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRow {
    /// As the tool says: `MEMORY_ALLOCATION_ALLOCATE`…
    pub operation: String,
    /// The GPU.
    pub agent: String,
    /// How much.
    pub bytes: u64,
    /// Where, as the tool writes it.
    pub address: String,
    /// When.
    pub start_ns: u64,
}

/// A sample of what a wave was executing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcSample {
    /// The dispatch it belongs to.
    pub dispatch: u64,
    /// The instruction, or its offset in the code object.
    pub instruction: String,
    /// Source line, where the tool knows it.
    pub comment: String,
}

/// Something that took time, of a timeline in Chrome's format (rocprof's `results.json`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimelineEvent {
    /// What.
    pub name: String,
    /// Process of the timeline: with rocprof, a kind of activity.
    pub process: u64,
    /// Thread of the timeline.
    pub thread: u64,
    /// When, in microseconds.
    pub start_us: f64,
    /// How long, in microseconds.
    pub duration_us: f64,
}

macro_rules! rows_of {
    ($type:ty, $columns:expr) => {
        impl $type {
            /// Whether a table holds such rows.
            pub fn fits(table: &Table) -> bool {
                $columns.iter().all(|column| table.has(column))
            }

            /// The rows of a table.
            ///
            /// # Errors
            ///
            /// [`Error::NoColumn`] and [`Error::Malformed`].
            pub fn all(table: &Table) -> Result<Vec<Self>, Error> {
                table.rows().map(|row| Self::of(&row)).collect()
            }
        }
    };
}

rows_of!(StatsRow, ["Name", "Calls", "TotalDurationNs"]);
rows_of!(ApiRow, ["Domain", "Function", "Start_Timestamp"]);
rows_of!(CopyRow, ["Direction", "Start_Timestamp"]);
rows_of!(AllocationRow, ["Operation", "Allocation_Size"]);
rows_of!(PcSample, ["Sample_Timestamp", "Instruction"]);

impl StatsRow {
    fn of(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            name: row.text("Name")?.to_owned(),
            calls: row.number("Calls")?,
            total_ns: row.number("TotalDurationNs")?,
            average_ns: row.number("AverageNs")?,
            percentage: row.number("Percentage")?,
            min_ns: row.number_of(&["MinNs"])?,
            max_ns: row.number_of(&["MaxNs"])?,
        })
    }
}

impl ApiRow {
    fn of(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            domain: row.text("Domain")?.to_owned(),
            function: row.text("Function")?.to_owned(),
            thread: row.number_of(&["Thread_Id"])?,
            start_ns: row.number("Start_Timestamp")?,
            end_ns: row.number("End_Timestamp")?,
        })
    }
}

impl CopyRow {
    fn of(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            direction: row.text("Direction")?.to_owned(),
            source: row.find(&["Source_Agent_Id"]).unwrap_or_default().to_owned(),
            destination: row.find(&["Destination_Agent_Id"]).unwrap_or_default().to_owned(),
            start_ns: row.number("Start_Timestamp")?,
            end_ns: row.number("End_Timestamp")?,
        })
    }
}

impl AllocationRow {
    fn of(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            operation: row.text("Operation")?.to_owned(),
            agent: row.find(&["Agent_Id"]).unwrap_or_default().to_owned(),
            bytes: row.number("Allocation_Size")?,
            address: row.find(&["Address"]).unwrap_or_default().to_owned(),
            start_ns: row.number("Start_Timestamp")?,
        })
    }
}

impl PcSample {
    fn of(row: &Row<'_>) -> Result<Self, Error> {
        Ok(Self {
            dispatch: row.number("Dispatch_Id")?,
            instruction: row.text("Instruction")?.to_owned(),
            comment: row.find(&["Instruction_Comment"]).unwrap_or_default().to_owned(),
        })
    }
}

impl TimelineEvent {
    /// Reads a file in Chrome's format. Events other than complete ones (`"ph": "X"`) are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] and [`Error::Malformed`].
    pub fn read(path: &Path) -> Result<Vec<Self>, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::read(path, source))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads a text in Chrome's format.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`].
    pub fn parse(text: &str, origin: &str) -> Result<Vec<Self>, Error> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| Error::json(origin, &error))?;
        let events = value.get("traceEvents").unwrap_or(&value).as_array();
        let events = events.ok_or_else(|| Error::malformed(origin, 0, "no traceEvents"))?;
        let complete =
            events.iter().filter(|event| event.get("ph").and_then(Value::as_str) == Some("X"));
        complete
            .map(|event| {
                let number = |field: &str| {
                    let value = event.get(field)?;
                    // rocprof writes numbers as texts.
                    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
                };
                let missing = |field: &str| {
                    Error::malformed(origin, 0, format!("an event without a number in {field}"))
                };
                Ok(Self {
                    name: event.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
                    process: number("pid").unwrap_or(0.0) as u64,
                    thread: number("tid").unwrap_or(0.0) as u64,
                    start_us: number("ts").ok_or_else(|| missing("ts"))?,
                    duration_us: number("dur").ok_or_else(|| missing("dur"))?,
                })
            })
            .collect()
    }
}
