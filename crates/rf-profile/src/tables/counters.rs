//! Hardware counters of dispatches and the metrics derived from them.

use std::collections::{BTreeMap, BTreeSet};

use super::{KernelRow, Table};
use crate::Error;

/// Columns that describe a dispatch. Every other column of a wide table is a counter.
const DESCRIPTION: [&str; 49] = [
    "guid",
    "kind",
    "correlation_id",
    "dispatch_id",
    "agent_id",
    "queue_id",
    "stream_id",
    "process_id",
    "thread_id",
    "pid",
    "tid",
    "gpu_id",
    "gpu-id",
    "queue-id",
    "queue-index",
    "index",
    "kernel_id",
    "kernel_name",
    "kernelname",
    "grid_size",
    "workgroup_size",
    "grd",
    "wgr",
    "lds",
    "scr",
    "lds_block_size",
    "lds_per_workgroup",
    "scratch_size",
    "scratch_per_workitem",
    "private_segment_size",
    "group_segment_size",
    "vgpr_count",
    "vgpr",
    "arch_vgpr",
    "accum_vgpr",
    "accum_vgpr_count",
    "sgpr",
    "sgpr_count",
    "wave_size",
    "sig",
    "obj",
    "start_timestamp",
    "end_timestamp",
    "dispatchns",
    "beginns",
    "endns",
    "completens",
    "durationns",
    "name",
];

/// Counters that cannot be 0 for a kernel that ran.
const NEVER_ZERO: [&str; 5] =
    ["SQ_WAVES", "SQ_WAVES_sum", "GRBM_COUNT", "GRBM_GUI_ACTIVE", "Wavefronts"];

/// The cause of zero counters and its cure, from the documentation of rocprofv3.
const ZERO_CAUSE: &str = "on RDNA 3 and 4 the clock of the counters is off at the performance level \
                          auto; set a stable level before profiling (sudo amd-smi set -g 0 -l \
                          stable_std, or write profile_standard to /sys/class/drm/card0/device/\
                          power_dpm_force_performance_level) and auto afterwards";

/// A counter value of one dispatch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CounterRow {
    /// The name of the kernel.
    pub kernel: String,
    /// The dispatch number of the tool.
    pub dispatch: u64,
    /// The name of the counter or derived metric.
    pub counter: String,
    /// The counted value.
    pub value: f64,
}

impl CounterRow {
    /// Returns true if a table contains counters.
    pub fn fits(table: &Table) -> bool {
        is_long(table) || (has_kernel(table) && wide_columns(table).next().is_some())
    }

    /// Reads the counters of a table with one row per counter (rocprofv3) or one column per counter
    /// (rocprof, rocprofv2, rocprof-compute). Cells without a value are skipped.
    ///
    /// # Errors
    ///
    /// [`Error::NoColumn`] and [`Error::Malformed`].
    pub fn all(table: &Table) -> Result<Vec<Self>, Error> {
        let mut all = Vec::new();
        for row in table.rows() {
            let kernel = row
                .find(&["Kernel_Name", "KernelName"])
                .ok_or_else(|| row.no_column("Kernel_Name"))?
                .to_owned();
            let dispatch = row.number_of(&["Dispatch_Id", "Index"])?.unwrap_or(0);
            let mut push = |counter: &str, value: Option<f64>| {
                if let Some(value) = value {
                    let (kernel, counter) = (kernel.clone(), counter.to_owned());
                    all.push(Self { kernel, dispatch, counter, value });
                }
            };
            if is_long(table) {
                push(row.text("Counter_Name")?, row.number_of(&["Counter_Value"])?);
            } else {
                for counter in wide_columns(table) {
                    push(counter, row.number_of(&[counter])?);
                }
            }
        }
        Ok(all)
    }
}

fn is_long(table: &Table) -> bool {
    table.has("Counter_Name") && table.has("Counter_Value")
}

fn has_kernel(table: &Table) -> bool {
    table.has("Kernel_Name") || table.has("KernelName")
}

fn wide_columns(table: &Table) -> impl Iterator<Item = &str> {
    let columns = table.columns().iter().map(String::as_str);
    columns.filter(|column| {
        let lower = column.to_ascii_lowercase();
        let axis = ["workgroup_size_", "grid_size_"].iter().any(|name| lower.starts_with(name));
        !lower.is_empty() && !axis && !DESCRIPTION.contains(&&*lower)
    })
}

/// Counters by kernel. A profile exists only if the hardware counted.
///
/// # Examples
///
/// ```
/// use rf_profile::tables::{CounterProfile, CounterRow, Table};
/// use rf_profile::Error;
///
/// let profile = |hits: u32, misses: u32| -> Result<CounterProfile, Error> {
///     let csv = format!(
///         "Kernel_Name,Counter_Name,Counter_Value\n\
///          matvec,GL2C_HIT_sum,{hits}\n\
///          matvec,GL2C_MISS_sum,{misses}\n"
///     );
///     CounterProfile::new(&CounterRow::all(&Table::parse(&csv, "counter_collection.csv")?)?)
/// };
/// assert_eq!(profile(30, 10)?.l2_hit_rate("matvec"), Some(0.75));
/// // The hardware did not count: an error with the known cause.
/// assert!(matches!(profile(0, 0), Err(Error::ZeroCounters { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CounterProfile {
    by_kernel: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
}

impl CounterProfile {
    /// Groups counters by kernel.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroCounters`] if all values are 0, or all values of those counters that cannot be
    /// 0 for a kernel that ran.
    pub fn new(rows: &[CounterRow]) -> Result<Self, Error> {
        let is_zero = |row: &&CounterRow| row.value == 0.0;
        let sure: Vec<&CounterRow> =
            rows.iter().filter(|row| NEVER_ZERO.contains(&&*row.counter)).collect();
        let all_zero = !rows.is_empty() && rows.iter().all(|row| is_zero(&row));
        if all_zero || (!sure.is_empty() && sure.iter().all(is_zero)) {
            let rows: Vec<&CounterRow> = if all_zero { rows.iter().collect() } else { sure };
            let counters: BTreeSet<&str> = rows.iter().map(|row| &*row.counter).collect();
            return Err(Error::ZeroCounters {
                values: rows.len(),
                counters: counters.into_iter().collect::<Vec<_>>().join(", "),
                cause: ZERO_CAUSE,
            });
        }
        let mut by_kernel: BTreeMap<String, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
        for row in rows {
            let kernel = by_kernel.entry(row.kernel.clone()).or_default();
            kernel.entry(row.counter.clone()).or_default().push(row.value);
        }
        Ok(Self { by_kernel })
    }

    /// The names of the kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.by_kernel.keys().map(String::as_str)
    }

    /// The mean of a counter per dispatch.
    pub fn mean(&self, kernel: &str, counter: &str) -> Option<f64> {
        let values = self.by_kernel.get(kernel)?.get(counter)?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Bytes read from and written to memory per dispatch: the derived metrics `FETCH_SIZE` and
    /// `WRITE_SIZE`, whose unit is KiB.
    pub fn memory_bytes(&self, kernel: &str) -> Option<(f64, f64)> {
        let kib = |names: [&str; 2]| names.iter().find_map(|name| self.mean(kernel, name));
        let read = kib(["FETCH_SIZE", "FetchSize"])?;
        let written = kib(["WRITE_SIZE", "WriteSize"])?;
        Some((1024.0 * read, 1024.0 * written))
    }

    /// Bytes per second from and to memory, computed with the durations of the kernel in `rows`.
    pub fn bandwidth_bytes_per_s(&self, kernel: &str, rows: &[KernelRow]) -> Option<f64> {
        let durations = rows.iter().filter(|row| row.name == kernel).map(|row| row.duration_ns);
        let (count, total_ns) =
            durations.fold((0_u64, 0.0), |(n, sum), ns| (n + 1, sum + ns as f64));
        let (read, written) = self.memory_bytes(kernel)?;
        (total_ns > 0.0).then(|| (read + written) * count as f64 / (total_ns / 1e9))
    }

    /// The hit rate of the L2 cache.
    pub fn l2_hit_rate(&self, kernel: &str) -> Option<f64> {
        let rate = |hit: &str, miss: &str| {
            let (hit, miss) = (self.mean(kernel, hit)?, self.mean(kernel, miss)?);
            (hit + miss > 0.0).then(|| hit / (hit + miss))
        };
        rate("GL2C_HIT_sum", "GL2C_MISS_sum")
            .or_else(|| rate("TCC_HIT_sum", "TCC_MISS_sum"))
            .or_else(|| Some(self.mean(kernel, "L2CacheHit")? / 100.0))
    }

    /// Resident waves as a fraction of the maximum.
    pub fn occupancy(&self, kernel: &str) -> Option<f64> {
        Some(self.mean(kernel, "OccupancyPercent")? / 100.0)
    }

    /// The fraction of LDS cycles lost to bank conflicts.
    pub fn lds_conflict_rate(&self, kernel: &str) -> Option<f64> {
        let rate = |conflicts: &str, active: &str| {
            let (conflicts, active) = (self.mean(kernel, conflicts)?, self.mean(kernel, active)?);
            (active > 0.0).then(|| conflicts / active)
        };
        rate("SQC_LDS_BANK_CONFLICT", "SQC_LDS_IDX_ACTIVE")
            .or_else(|| rate("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"))
    }

    /// Instructions per wave of a kind: `VALU`, `SALU`, `SMEM`, `LDS` or `FLAT`.
    pub fn instructions_per_wave(&self, kernel: &str, kind: &str) -> Option<f64> {
        let waves = self.mean(kernel, "SQ_WAVES").filter(|waves| *waves > 0.0)?;
        Some(self.mean(kernel, &format!("SQ_INSTS_{kind}"))? / waves)
    }
}
