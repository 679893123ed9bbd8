//! Kernel dispatches and their summaries.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::csv::TableRow;
use super::{StatsRow, Table};
use crate::Error;
use crate::stats::Summary;

/// One dispatch of a kernel. A value that the tool does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRow {
    /// The name of the kernel.
    pub name: String,
    /// The dispatch number of the tool.
    pub dispatch: u64,
    /// The tool's name for the GPU, such as `1` or `Agent 4`.
    pub agent: String,
    /// The start time on the tool's clock.
    pub start_ns: Option<u64>,
    /// The duration of the kernel.
    pub duration_ns: u64,
    /// Vector registers per lane.
    pub vgprs: Option<u32>,
    /// Accumulation registers per lane (CDNA).
    pub accum_vgprs: Option<u32>,
    /// Scalar registers per wave.
    pub sgprs: Option<u32>,
    /// LDS bytes per workgroup, which rocprof rounds up.
    pub lds_bytes: Option<u32>,
    /// Scratch memory per lane. More than 0 means spilled registers or arrays in memory.
    pub scratch_bytes: Option<u32>,
    /// Threads per workgroup.
    pub workgroup_threads: Option<u64>,
    /// Threads in the grid.
    pub grid_threads: Option<u64>,
}

impl KernelRow {
    /// Returns true if a table contains dispatches with their times.
    pub fn fits(table: &Table) -> bool {
        let has = |columns: &[&str]| columns.iter().any(|column| table.has(column));
        has(&["Kernel_Name", "KernelName"])
            && (has(&["Start_Timestamp", "BeginNs"]) || has(&["DurationNs"]))
    }

    /// Reads the dispatches of a table. A row without times belongs to an unfinished kernel and is
    /// skipped.
    ///
    /// # Errors
    ///
    /// [`Error::NoColumn`] and [`Error::Malformed`].
    pub fn all(table: &Table) -> Result<Vec<Self>, Error> {
        table.rows().filter_map(|row| Self::of(&row).transpose()).collect()
    }

    fn of(row: &TableRow<'_>) -> Result<Option<Self>, Error> {
        let start_ns = row.number_of(&["Start_Timestamp", "BeginNs"])?;
        let end_ns: Option<u64> = row.number_of(&["End_Timestamp", "Stop_Timestamp", "EndNs"])?;
        let duration_ns = match (start_ns, end_ns) {
            (Some(start), Some(end)) if end < start => {
                return Err(row.malformed("a kernel ends before it starts"));
            }
            (Some(start), Some(end)) => Some(end - start),
            _ => row.number_of(&["DurationNs"])?,
        };
        let Some(duration_ns) = duration_ns else { return Ok(None) };
        let name = row.find(&["Kernel_Name", "KernelName"]);
        Ok(Some(Self {
            name: name.ok_or_else(|| row.no_column("Kernel_Name"))?.to_owned(),
            dispatch: row.number_of(&["Dispatch_Id", "Index"])?.unwrap_or(0),
            agent: row.find(&["Agent_Id", "GPU_ID", "gpu-id"]).unwrap_or_default().to_owned(),
            start_ns,
            duration_ns,
            vgprs: row.number_of(&["VGPR_Count", "Arch_VGPR", "vgpr"])?,
            accum_vgprs: row.number_of(&["Accum_VGPR_Count", "Accum_VGPR"])?,
            sgprs: row.number_of(&["SGPR_Count", "SGPR"])?,
            lds_bytes: row.number_of(&[
                "LDS_Block_Size",
                "Group_Segment_Size",
                "LDS_Per_Workgroup",
                "lds",
            ])?,
            scratch_bytes: row.number_of(&[
                "Scratch_Size",
                "Private_Segment_Size",
                "Scratch_Per_Workitem",
                "scr",
            ])?,
            workgroup_threads: threads(row, "Workgroup_Size", "wgr")?,
            grid_threads: threads(row, "Grid_Size", "grd")?,
        }))
    }
}

/// The product of a size, which is in one column or in three.
fn threads(row: &TableRow<'_>, name: &str, short: &str) -> Result<Option<u64>, Error> {
    if let Some(all) = row.number_of(&[name, short])? {
        return Ok(Some(all));
    }
    let mut product = None;
    for axis in ["X", "Y", "Z"] {
        if let Some(size) = row.number_of::<u64>(&[&format!("{name}_{axis}")])? {
            product = Some(product.unwrap_or(1_u64).saturating_mul(size));
        }
    }
    Ok(product)
}

/// The dispatches of one kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KernelSummary {
    /// The name of the kernel.
    pub name: String,
    /// Durations in microseconds. If only the tool's own summary was available, every percentile is
    /// the mean.
    pub us: Summary,
    /// The fraction of the time of all kernels.
    pub share: f64,
    /// Vector registers per lane.
    pub vgprs: Option<u32>,
    /// Scratch memory per lane.
    pub scratch_bytes: Option<u32>,
    /// LDS bytes per workgroup.
    pub lds_bytes: Option<u32>,
}

/// Summarises dispatches by kernel, in descending order of the total time.
///
/// # Examples
///
/// ```
/// use rf_profile::tables::{KernelRow, Table, kernel_table, summarize_kernels};
///
/// let csv = "Kernel_Name,Start_Timestamp,End_Timestamp\n\
///            norm,0,1000\nmatvec,1000,31000\nmatvec,40000,72000\n";
/// let rows = KernelRow::all(&Table::parse(csv, "kernel_trace.csv")?)?;
/// let summaries = summarize_kernels(&rows);
/// assert_eq!((&*summaries[0].name, summaries[0].us.median), ("matvec", 31.0));
/// println!("{}", kernel_table(&summaries));
/// # Ok::<(), rf_profile::Error>(())
/// ```
pub fn summarize_kernels(rows: &[KernelRow]) -> Vec<KernelSummary> {
    let mut by_name: BTreeMap<&str, Vec<&KernelRow>> = BTreeMap::new();
    for row in rows {
        by_name.entry(&row.name).or_default().push(row);
    }
    let total: f64 = rows.iter().map(|row| row.duration_ns as f64 / 1e3).sum();
    let mut summaries: Vec<KernelSummary> = by_name
        .into_iter()
        .filter_map(|(name, rows)| {
            let us: Vec<f64> = rows.iter().map(|row| row.duration_ns as f64 / 1e3).collect();
            let us = Summary::of(&us)?;
            Some(KernelSummary {
                name: name.to_owned(),
                us,
                share: if total > 0.0 { us.total / total } else { 0.0 },
                vgprs: rows.iter().filter_map(|row| row.vgprs).max(),
                scratch_bytes: rows.iter().filter_map(|row| row.scratch_bytes).max(),
                lds_bytes: rows.iter().filter_map(|row| row.lds_bytes).max(),
            })
        })
        .collect();
    summaries.sort_by(|a, b| b.us.total.total_cmp(&a.us.total));
    summaries
}

impl From<&StatsRow> for KernelSummary {
    fn from(stats: &StatsRow) -> Self {
        let us = |ns: f64| ns / 1e3;
        let mean = us(stats.average_ns);
        Self {
            name: stats.name.clone(),
            us: Summary {
                count: stats.calls,
                total: us(stats.total_ns),
                mean,
                median: mean,
                p95: mean,
                p99: mean,
                min: stats.min_ns.map_or(mean, us),
                max: stats.max_ns.map_or(mean, us),
                mad: 0.0,
            },
            share: stats.percentage / 100.0,
            vgprs: None,
            scratch_bytes: None,
            lds_bytes: None,
        }
    }
}

/// Formats summaries as a table for terminals.
pub fn kernel_table(summaries: &[KernelSummary]) -> String {
    const NAME: usize = 60;
    let mut out = format!(
        "{:<NAME$}  {:>8}  {:>11}  {:>6}  {:>10}  {:>10}  {:>5}  {:>7}\n",
        "kernel", "calls", "total ms", "share", "median us", "p95 us", "VGPRs", "scratch"
    );
    for summary in summaries {
        let optional = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
        // Writing into a String cannot fail.
        _ = writeln!(
            out,
            "{:<NAME$}  {:>8}  {:>11.3}  {:>5.1}%  {:>10.2}  {:>10.2}  {:>5}  {:>7}",
            shortened(&summary.name, NAME),
            summary.us.count,
            summary.us.total / 1e3,
            100.0 * summary.share,
            summary.us.median,
            summary.us.p95,
            optional(summary.vgprs),
            optional(summary.scratch_bytes),
        );
    }
    out
}

fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width - 1).chain(['…']).collect()
}
