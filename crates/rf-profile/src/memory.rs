//! Memory use of the KV cache, the process and the device, and the planned memory.

use std::path::Path;
use std::{fmt, fs};

use rf_hip::Context;

use crate::Error;

/// Memory of this process as Linux accounts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessMemory {
    /// Resident memory.
    pub rss_bytes: u64,
    /// The highest resident memory so far.
    pub peak_rss_bytes: u64,
    /// Resident pages of mapped files, which the system can reclaim.
    pub file_bytes: u64,
}

/// The state of a KV cache at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvSample {
    /// The number of tokens in all sequences.
    pub tokens: u64,
    /// The size of the used pages.
    pub bytes: u64,
    /// The number of used pages.
    pub used_pages: u64,
    /// The number of all pages.
    pub total_pages: u64,
    /// The number of empty token slots in used pages.
    pub unfilled_tokens: u64,
    /// The number of page allocations so far.
    pub allocations: u64,
}

/// Planned or allocated memory by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryParts {
    /// Memory of the weights.
    pub weights_bytes: u64,
    /// Memory of the KV cache.
    pub kv_bytes: u64,
    /// Memory of recurrent states.
    pub states_bytes: u64,
    /// Memory of activations and all other buffers.
    pub buffers_bytes: u64,
}

/// Collects samples of memory use during a run.
///
/// # Examples
///
/// ```
/// use rf_profile::memory::{KvSample, MemoryTracker};
///
/// let mut tracker = MemoryTracker::new();
/// for pages in 1..=4 {
///     let tokens = 16 * pages - 4;
///     tracker.sample_kv(KvSample {
///         tokens,
///         bytes: pages * 16 * 1024,
///         used_pages: pages,
///         total_pages: 8,
///         unfilled_tokens: 4,
///         allocations: pages,
///     });
/// }
/// let report = tracker.report();
/// assert_eq!(report.kv_bytes_per_token, Some(1024.0));
/// println!("{report}");
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryTracker {
    kv: Vec<KvSample>,
    planned: Option<MemoryParts>,
    actual: Option<MemoryParts>,
    process: Option<ProcessMemory>,
    device: Option<DevicePeak>,
}

/// Device memory used by all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DevicePeak {
    /// Used memory at the first sample.
    pub first_used_bytes: u64,
    /// The highest used memory of all samples.
    pub peak_used_bytes: u64,
    /// Total memory of the device.
    pub total_bytes: u64,
}

/// The results of a [`MemoryTracker`]. A value without samples is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The growth of the KV cache per token: the slope of a line through the samples, which takes
    /// two samples of different sizes.
    pub kv_bytes_per_token: Option<f64>,
    /// The sample with the largest KV cache.
    pub kv_peak: Option<KvSample>,
    /// The mean fraction of empty token slots in used pages.
    pub kv_fragmentation: Option<f64>,
    /// The number of page allocations from the first to the last sample.
    pub kv_allocations: Option<u64>,
    /// The last sample of the process.
    pub process: Option<ProcessMemory>,
    /// Used and total memory of the device.
    pub device: Option<DevicePeak>,
    /// The planned memory.
    pub planned: Option<MemoryParts>,
    /// The allocated memory.
    pub actual: Option<MemoryParts>,
}

impl ProcessMemory {
    /// Reads `/proc/self/status`.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] on systems without this file, and [`Error::Malformed`].
    pub fn now() -> Result<Self, Error> {
        let path = Path::new("/proc/self/status");
        let text = fs::read_to_string(path).map_err(|source| Error::read(path, source))?;
        Self::parse(&text)
    }

    fn parse(status: &str) -> Result<Self, Error> {
        let kib = |name: &str| {
            let line =
                status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        let missing = |name: &str| Error::malformed("/proc/self/status", 0, format!("no {name}"));
        let bytes = |name: &str| kib(name).map(|kib| 1024 * kib).ok_or_else(|| missing(name));
        Ok(Self {
            rss_bytes: bytes("VmRSS")?,
            peak_rss_bytes: bytes("VmHWM")?,
            file_bytes: kib("RssFile").unwrap_or(0) * 1024,
        })
    }
}

impl MemoryParts {
    /// The sum of all parts.
    pub fn total_bytes(&self) -> u64 {
        [self.kv_bytes, self.states_bytes, self.buffers_bytes]
            .into_iter()
            .fold(self.weights_bytes, u64::saturating_add)
    }
}

impl MemoryTracker {
    /// Creates a tracker without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the planned memory.
    pub fn plan(&mut self, planned: MemoryParts) {
        self.planned = Some(planned);
    }

    /// Sets the allocated memory.
    pub fn actual(&mut self, actual: MemoryParts) {
        self.actual = Some(actual);
    }

    /// Adds a sample of the KV cache.
    pub fn sample_kv(&mut self, sample: KvSample) {
        self.kv.push(sample);
    }

    /// Samples this process.
    ///
    /// # Errors
    ///
    /// The errors of [`ProcessMemory::now`].
    pub fn sample_process(&mut self) -> Result<(), Error> {
        self.process = Some(ProcessMemory::now()?);
        Ok(())
    }

    /// Samples a device.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`].
    pub fn sample_device(&mut self, context: &Context) -> Result<(), Error> {
        let (free, total) = context.memory_info()?;
        self.record_device(total.saturating_sub(free), total);
        Ok(())
    }

    fn record_device(&mut self, used: u64, total: u64) {
        let peak = self.device.get_or_insert(DevicePeak {
            first_used_bytes: used,
            peak_used_bytes: used,
            total_bytes: total,
        });
        peak.peak_used_bytes = peak.peak_used_bytes.max(used);
    }

    /// The results of all samples.
    pub fn report(&self) -> MemoryReport {
        let fragmented: Vec<f64> = self.kv.iter().filter_map(KvSample::fragmentation).collect();
        let mean = fragmented.iter().sum::<f64>() / fragmented.len() as f64;
        let allocations = self.kv.first().zip(self.kv.last());
        MemoryReport {
            kv_bytes_per_token: slope(&self.kv),
            kv_peak: self.kv.iter().copied().max_by_key(|sample| sample.bytes),
            kv_fragmentation: (!fragmented.is_empty()).then_some(mean),
            kv_allocations: allocations
                .map(|(first, last)| last.allocations.saturating_sub(first.allocations)),
            process: self.process,
            device: self.device,
            planned: self.planned,
            actual: self.actual,
        }
    }
}

impl KvSample {
    /// The fraction of empty token slots in used pages.
    fn fragmentation(&self) -> Option<f64> {
        let slots = self.tokens + self.unfilled_tokens;
        (slots > 0).then(|| self.unfilled_tokens as f64 / slots as f64)
    }
}

/// The slope of bytes over token slots, by least squares. Slots, filled or empty, grow with the
/// pages; tokens alone would turn the line into steps.
fn slope(samples: &[KvSample]) -> Option<f64> {
    let n = samples.len() as f64;
    let point = |s: &KvSample| ((s.tokens + s.unfilled_tokens) as f64, s.bytes as f64);
    let (sum_x, sum_y) =
        samples.iter().map(point).fold((0.0, 0.0), |(x, y), (dx, dy)| (x + dx, y + dy));
    let deviation = |s: &KvSample| {
        let (x, y) = point(s);
        (x - sum_x / n, y - sum_y / n)
    };
    let covariance: f64 = samples.iter().map(deviation).map(|(dx, dy)| dx * dy).sum();
    let variance: f64 = samples.iter().map(deviation).map(|(dx, _)| dx * dx).sum();
    (variance > 0.0).then(|| covariance / variance)
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        if let Some(per_token) = self.kv_bytes_per_token {
            writeln!(f, "KV cache: {:.2} KiB per token", per_token / 1024.0)?;
        }
        if let Some(peak) = self.kv_peak {
            let KvSample { used_pages, total_pages, bytes, .. } = peak;
            writeln!(f, "  peak: {used_pages} of {total_pages} pages, {:.1} MiB", mib(bytes))?;
        }
        if let Some(share) = self.kv_fragmentation {
            writeln!(
                f,
                "  fragmentation: {:.1} % of the token slots in used pages are empty",
                100.0 * share
            )?;
        }
        if let Some(count) = self.kv_allocations {
            writeln!(f, "  {count} page allocations")?;
        }
        if let Some(process) = self.process {
            let (now, peak) = (mib(process.rss_bytes), mib(process.peak_rss_bytes));
            writeln!(f, "process: {now:.1} MiB resident, peak {peak:.1} MiB")?;
        }
        if let Some(device) = self.device {
            let (peak, total) = (mib(device.peak_used_bytes), mib(device.total_bytes));
            writeln!(f, "device: peak {peak:.1} of {total:.1} MiB used")?;
        }
        if let (Some(planned), Some(actual)) = (self.planned, self.actual) {
            for (part, planned, actual) in [
                ("weights", planned.weights_bytes, actual.weights_bytes),
                ("KV cache", planned.kv_bytes, actual.kv_bytes),
                ("recurrent states", planned.states_bytes, actual.states_bytes),
                ("buffers", planned.buffers_bytes, actual.buffers_bytes),
                ("total", planned.total_bytes(), actual.total_bytes()),
            ] {
                if part == "recurrent states" && planned == 0 && actual == 0 {
                    continue;
                }
                let (planned, actual) = (mib(planned), mib(actual));
                writeln!(f, "{part}: {planned:.1} MiB planned, {actual:.1} MiB allocated")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_and_fragmentation_match_known_pages() {
        let mut tracker = MemoryTracker::new();
        // Pages hold 16 tokens of 1 KiB. The last page fills token by token.
        for tokens in 1..=64_u64 {
            let used_pages = tokens.div_ceil(16);
            tracker.sample_kv(KvSample {
                tokens,
                bytes: used_pages * 16 * 1024,
                used_pages,
                total_pages: 10,
                unfilled_tokens: used_pages * 16 - tokens,
                allocations: 5 + used_pages,
            });
        }
        let report = tracker.report();
        assert!((report.kv_bytes_per_token.unwrap() - 1024.0).abs() < 1e-6, "{report:?}");
        assert_eq!(report.kv_peak.unwrap().used_pages, 4);
        assert_eq!(report.kv_allocations, Some(3));
        let fragmentation = report.kv_fragmentation.unwrap();
        assert!(fragmentation > 0.1 && fragmentation < 0.4, "{fragmentation}");
    }

    #[test]
    fn values_without_samples_are_none() {
        let report = MemoryTracker::new().report();
        assert_eq!((report.kv_bytes_per_token, report.kv_fragmentation), (None, None));
        assert_eq!(report.to_string(), "");
        let mut one = MemoryTracker::new();
        one.sample_kv(KvSample { tokens: 4, bytes: 100, ..KvSample::default() });
        assert_eq!(one.report().kv_bytes_per_token, None);
    }

    #[test]
    fn the_device_peak_is_the_highest_sample() {
        let mut tracker = MemoryTracker::new();
        for used in [10, 50, 20] {
            tracker.record_device(used, 100);
        }
        let device = tracker.report().device.unwrap();
        assert_eq!((device.first_used_bytes, device.peak_used_bytes), (10, 50));
    }

    #[test]
    fn planned_and_allocated_memory_are_compared() {
        let mut tracker = MemoryTracker::new();
        let parts = MemoryParts { weights_bytes: 1 << 20, ..MemoryParts::default() };
        tracker.plan(MemoryParts { kv_bytes: 2 << 20, ..parts });
        tracker.actual(MemoryParts { kv_bytes: 3 << 20, ..parts });
        let report = tracker.report().to_string();
        assert!(report.contains("total: 3.0 MiB planned, 4.0 MiB allocated"), "{report}");
        assert!(!report.contains("states"), "{report}");
        tracker.actual(MemoryParts { states_bytes: 4 << 20, ..parts });
        let report = tracker.report().to_string();
        assert!(report.contains("total: 3.0 MiB planned, 5.0 MiB allocated"), "{report}");
        assert!(report.contains("states: 0.0 MiB planned, 4.0 MiB allocated"), "{report}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn touched_memory_becomes_resident() {
        let before = ProcessMemory::now().unwrap();
        let touched = vec![1_u8; 64 << 20];
        let after = ProcessMemory::now().unwrap();
        assert!(touched.iter().all(|byte| *byte == 1));
        assert!(after.peak_rss_bytes >= before.rss_bytes + (60 << 20), "{before:?} {after:?}");
        assert!(ProcessMemory::parse("VmRSS: 1 kB\n").is_err());
    }
}
