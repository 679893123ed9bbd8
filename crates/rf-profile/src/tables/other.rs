//! Calls, copies, allocations, samples, summaries and timelines.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::Table;
use super::csv::TableRow;
use crate::Error;

/// A row of the summaries that a tool computes (`*_stats.csv`, `results.stats.csv`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StatsRow {
    /// The name of the kernel or function.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// The total time.
    pub total_ns: f64,
    /// The mean time.
    pub average_ns: f64,
    /// The percentage of the total time of all rows.
    pub percentage: f64,
    /// The shortest time, which only rocprofv3 reports.
    pub min_ns: Option<f64>,
    /// The longest time, which only rocprofv3 reports.
    pub max_ns: Option<f64>,
}

/// A call of the HIP or HSA runtime, or a marker of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiRow {
    /// The API, such as `HIP_RUNTIME_API_EXT` or `HIP_API`.
    pub domain: String,
    /// The name of the function.
    pub function: String,
    /// The calling thread, if the tool reports it.
    pub thread: Option<u64>,
    /// The start of the call.
    pub start_ns: u64,
    /// The end of the call.
    pub end_ns: u64,
}

/// A copy between memories.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyRow {
    /// The tool's name for the direction, such as `MEMORY_COPY_HOST_TO_DEVICE`.
    pub direction: String,
    /// The agent that owns the source.
    pub source: String,
    /// The agent that owns the destination.
    pub destination: String,
    /// The start of the copy.
    pub start_ns: u64,
    /// The end of the copy.
    pub end_ns: u64,
}

/// An allocation or deallocation of device memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRow {
    /// The tool's name for the operation, such as `MEMORY_ALLOCATION_ALLOCATE`.
    pub operation: String,
    /// The tool's name for the GPU.
    pub agent: String,
    /// The size of the allocation.
    pub bytes: u64,
    /// The address as the tool formats it.
    pub address: String,
    /// The time of the operation.
    pub start_ns: u64,
}

/// A program counter sample of a wave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcSample {
    /// The dispatch number of the tool.
    pub dispatch: u64,
    /// The instruction or its offset in the code object.
    pub instruction: String,
    /// The source line, if the tool knows it.
    pub comment: String,
}

/// A complete event of a timeline in Chrome's format, such as rocprof's `results.json`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimelineEvent {
    /// The name of the event.
    pub name: String,
    /// The process in the timeline. rocprof uses one for each kind of activity.
    pub process: u64,
    /// The thread in the timeline.
    pub thread: u64,
    /// The start in microseconds.
    pub start_us: f64,
    /// The duration in microseconds.
    pub duration_us: f64,
}

macro_rules! rows_of {
    ($type:ty, $columns:expr) => {
        impl $type {
            /// Returns true if a table contains rows of this type.
            pub fn fits(table: &Table) -> bool {
                $columns.iter().all(|column| table.has(column))
            }

            /// Reads the rows of a table.
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
    fn of(row: &TableRow<'_>) -> Result<Self, Error> {
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
    fn of(row: &TableRow<'_>) -> Result<Self, Error> {
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
    fn of(row: &TableRow<'_>) -> Result<Self, Error> {
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
    fn of(row: &TableRow<'_>) -> Result<Self, Error> {
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
    fn of(row: &TableRow<'_>) -> Result<Self, Error> {
        Ok(Self {
            dispatch: row.number("Dispatch_Id")?,
            instruction: row.text("Instruction")?.to_owned(),
            comment: row.find(&["Instruction_Comment"]).unwrap_or_default().to_owned(),
        })
    }
}

impl TimelineEvent {
    /// Reads the complete events (`"ph": "X"`) of a file in Chrome's format.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] and [`Error::Malformed`].
    pub fn read(path: &Path) -> Result<Vec<Self>, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::read(path, source))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Parses the complete events of a text in Chrome's format.
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
                    // rocprof writes numbers as strings.
                    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
                };
                let missing = |field: &str| {
                    Error::malformed(origin, 0, format!("an event has no number in {field}"))
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
