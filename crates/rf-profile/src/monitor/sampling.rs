//! Periodic samples of GPU state.

use std::fmt::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::gpu_state::GpuState;
use crate::Error;
use crate::stats::Summary;

/// The utilisation from which a GPU counts as busy, so that its clock should be at the maximum.
const BUSY_PERCENT: f64 = 90.0;

/// A busy GPU counts as throttled below this fraction of its highest clock when busy.
const THROTTLED_CLOCK: f64 = 0.85;

/// A thread that samples until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampling {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<MonitorRecord>>,
    source: &'static str,
}

/// The state of the GPUs at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The time since the start of sampling.
    pub at: Duration,
    /// The state of all GPUs.
    pub gpus: Vec<GpuState>,
}

/// The samples of a run.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use rf_profile::monitor::{GpuState, MonitorRecord, Sample};
///
/// let mut record = MonitorRecord::default();
/// for (second, clock_mhz) in [2400.0, 2390.0, 1700.0].into_iter().enumerate() {
///     let mut gpu = GpuState::default();
///     (gpu.busy_percent, gpu.clock_mhz) = (Some(99.0), Some(clock_mhz));
///     record.samples.push(Sample { at: Duration::from_secs(second as u64), gpus: vec![gpu] });
/// }
/// let throttling = &record.throttling()[0];
/// assert_eq!((throttling.samples, throttling.of), (1, 3));
/// assert_eq!(throttling.evidence, "1700 MHz under load, after 2400 MHz");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorRecord {
    /// The name of the source.
    pub source: &'static str,
    /// The samples in order.
    pub samples: Vec<Sample>,
    /// The number of failed samples and the last error.
    pub failures: Option<(usize, String)>,
}

/// Throttling of a GPU.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Throttling {
    /// The GPU number.
    pub gpu: u32,
    /// The number of throttled samples.
    pub samples: usize,
    /// The number of all samples.
    pub of: usize,
    /// The observation behind the conclusion.
    pub evidence: String,
}

impl Sampling {
    /// Starts a thread that calls `sample` every `interval`.
    pub(super) fn start(
        source: &'static str,
        interval: Duration,
        sample: impl Fn() -> Result<Vec<GpuState>, Error> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let mut record = MonitorRecord { source, ..MonitorRecord::default() };
            loop {
                let at = start.elapsed();
                match sample() {
                    Ok(gpus) => record.samples.push(Sample { at, gpus }),
                    Err(error) => {
                        let failures = record.failures.get_or_insert_default();
                        *failures = (failures.0 + 1, error.to_string());
                    }
                }
                // A tool that takes longer than the interval runs without a pause.
                let pause = interval.saturating_sub(start.elapsed().saturating_sub(at));
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return record;
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread), source }
    }

    /// Stops sampling after the current sample and returns the samples.
    pub fn stop(mut self) -> MonitorRecord {
        self.stop = None;
        let thread = self.thread.take();
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or(MonitorRecord { source: self.source, ..MonitorRecord::default() })
    }
}

impl MonitorRecord {
    /// Summarises a metric over the samples of a GPU.
    pub fn summary(&self, gpu: u32, metric: fn(&GpuState) -> Option<f64>) -> Option<Summary> {
        let values: Vec<f64> = self.states(gpu).filter_map(metric).collect();
        Summary::of(&values)
    }

    /// The numbers of the sampled GPUs.
    pub fn gpus(&self) -> Vec<u32> {
        let mut gpus: Vec<u32> =
            self.samples.iter().flat_map(|sample| &sample.gpus).map(|state| state.gpu).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    /// The highest memory use of a GPU.
    pub fn peak_vram_bytes(&self, gpu: u32) -> Option<u64> {
        self.states(gpu).filter_map(|state| state.vram_used_bytes).max()
    }

    /// Throttled GPUs. The tool's own report counts. Without one, a busy GPU below 85 % of its
    /// highest clock when busy is throttled.
    pub fn throttling(&self) -> Vec<Throttling> {
        self.gpus().into_iter().filter_map(|gpu| self.throttling_of(gpu)).collect()
    }

    fn throttling_of(&self, gpu: u32) -> Option<Throttling> {
        let states: Vec<&GpuState> = self.states(gpu).collect();
        let found = |samples: usize, evidence: String| {
            (samples > 0).then_some(Throttling { gpu, samples, of: states.len(), evidence })
        };
        if states.iter().any(|state| state.throttled.is_some()) {
            let samples = states.iter().filter(|state| state.throttled == Some(true)).count();
            return found(samples, format!("reported by {}", self.source));
        }
        let busy = states.iter().filter(|state| state.busy_percent >= Some(BUSY_PERCENT));
        let clocks: Vec<f64> = busy.filter_map(|state| state.clock_mhz).collect();
        let highest = clocks.iter().copied().fold(0.0, f64::max);
        let lowest = clocks.iter().copied().fold(f64::INFINITY, f64::min);
        let throttled = clocks.iter().filter(|clock| **clock < THROTTLED_CLOCK * highest).count();
        let hottest = states.iter().filter_map(|state| state.hotspot_c).fold(0.0, f64::max);
        let heat =
            if hottest > 0.0 { format!(", hotspot {hottest:.0} °C") } else { String::new() };
        found(throttled, format!("{lowest:.0} MHz under load, after {highest:.0} MHz{heat}"))
    }

    fn states(&self, gpu: u32) -> impl Iterator<Item = &GpuState> {
        let states = self.samples.iter().flat_map(|sample| &sample.gpus);
        states.filter(move |state| state.gpu == gpu)
    }

    /// Formats the metrics and the throttling of each GPU as a table for terminals.
    pub fn table(&self) -> String {
        type Metric = (&'static str, fn(&GpuState) -> Option<f64>);
        const METRICS: [Metric; 9] = [
            ("busy %", |state| state.busy_percent),
            ("memory busy %", |state| state.memory_busy_percent),
            ("VRAM MiB", |state| Some(state.vram_used_bytes? as f64 / f64::from(1 << 20))),
            ("clock MHz", |state| state.clock_mhz),
            ("memory clock MHz", |state| state.memory_clock_mhz),
            ("edge C", |state| state.temperature_c),
            ("hotspot C", |state| state.hotspot_c),
            ("memory C", |state| state.memory_temperature_c),
            ("power W", |state| state.power_w),
        ];
        let mut out = format!("{} samples from {}\n", self.samples.len(), self.source);
        for gpu in self.gpus() {
            let header = format!("GPU {gpu}");
            line(&mut out, &header, &["min", "mean", "max"].map(str::to_owned));
            for (name, metric) in METRICS {
                if let Some(summary) = self.summary(gpu, metric) {
                    let values = [summary.min, summary.mean, summary.max];
                    line(&mut out, name, &values.map(|value| format!("{value:.1}")));
                }
            }
        }
        for Throttling { gpu, samples, of, evidence } in self.throttling() {
            // Writing into a String cannot fail.
            _ = writeln!(out, "GPU {gpu} was throttled in {samples} of {of} samples: {evidence}");
        }
        if let Some((count, reason)) = &self.failures {
            _ = writeln!(out, "{count} samples failed: {reason}");
        }
        out
    }
}

fn line(out: &mut String, name: &str, values: &[String; 3]) {
    let [a, b, c] = values;
    // Writing into a String cannot fail.
    _ = writeln!(out, "{name:<18} {a:>9} {b:>9} {c:>9}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(states: &[GpuState]) -> MonitorRecord {
        let samples = states
            .iter()
            .map(|state| Sample { at: Duration::ZERO, gpus: vec![state.clone()] })
            .collect();
        MonitorRecord { source: "a test", samples, failures: None }
    }

    fn busy(clock: f64) -> GpuState {
        GpuState { busy_percent: Some(99.0), clock_mhz: Some(clock), ..GpuState::default() }
    }

    #[test]
    fn a_clock_that_falls_under_load_is_throttling() {
        let falling = record(&[busy(2400.0), busy(2390.0), busy(1900.0)]);
        let throttling = falling.throttling();
        assert_eq!((throttling[0].samples, throttling[0].of), (1, 3));
        assert!(falling.table().contains("GPU 0 was throttled in 1 of 3"), "{}", falling.table());
        let idle =
            GpuState { busy_percent: Some(3.0), clock_mhz: Some(30.0), ..GpuState::default() };
        assert!(record(&[busy(2400.0), idle]).throttling().is_empty());
    }

    #[test]
    fn the_report_of_the_tool_takes_precedence() {
        let reported = |throttled, clock| GpuState { throttled: Some(throttled), ..busy(clock) };
        assert!(
            record(&[reported(false, 2400.0), reported(false, 1000.0)]).throttling().is_empty()
        );
        assert_eq!(
            record(&[reported(true, 2400.0)]).throttling()[0].evidence,
            "reported by a test"
        );
    }
}
