//! Samples beside a run.

use std::fmt::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{GpuState, Monitor};
use crate::stats::Summary;

/// Busy enough for clocks to be at their highest.
const BUSY_PERCENT: f64 = 90.0;

/// A clock under load below this share of the highest one seen under load is held back.
const HELD_BACK: f64 = 0.85;

/// A thread that samples until it is stopped, or dropped.
#[derive(Debug)]
pub struct Sampling {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Record>>,
    source: &'static str,
}

/// The state of the GPUs at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Since sampling began.
    pub at: Duration,
    /// All GPUs.
    pub gpus: Vec<GpuState>,
}

/// What was sampled.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use rf_profile::monitor::{GpuState, Record, Sample};
///
/// let mut record = Record::default();
/// for (second, clock_mhz) in [2400.0, 2390.0, 1700.0].into_iter().enumerate() {
///     let mut gpu = GpuState::default();
///     (gpu.busy_percent, gpu.clock_mhz) = (Some(99.0), Some(clock_mhz));
///     record.samples.push(Sample { at: Duration::from_secs(second as u64), gpus: vec![gpu] });
/// }
/// let throttling = &record.throttling()[0];
/// assert_eq!((throttling.samples, throttling.of), (1, 3));
/// assert_eq!(throttling.evidence, "under load 1700 MHz, after 2400 MHz");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Where it is from.
    pub source: &'static str,
    /// In order.
    pub samples: Vec<Sample>,
    /// How many samples failed, and the last reason.
    pub failures: Option<(usize, String)>,
}

/// A GPU whose clocks were held back.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Throttling {
    /// Which.
    pub gpu: u32,
    /// In how many of its samples.
    pub samples: usize,
    /// Of how many.
    pub of: usize,
    /// How it was noticed.
    pub evidence: String,
}

impl Sampling {
    pub(super) fn start(monitor: Monitor, interval: Duration) -> Self {
        let source = monitor.name();
        let (stop, stopped) = channel::<()>();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let mut record = Record { source, ..Record::default() };
            loop {
                let at = start.elapsed();
                match monitor.sample() {
                    Ok(gpus) => record.samples.push(Sample { at, gpus }),
                    Err(error) => {
                        let failures = record.failures.get_or_insert_default();
                        *failures = (failures.0 + 1, error.to_string());
                    }
                }
                // A tool that is slower than the interval samples as fast as it can.
                let pause = interval.saturating_sub(start.elapsed().saturating_sub(at));
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return record;
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread), source }
    }

    /// Ends sampling and gives what was sampled; waits for the sample under way.
    pub fn stop(mut self) -> Record {
        self.stop = None;
        let thread = self.thread.take();
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or(Record { source: self.source, ..Record::default() })
    }
}

impl Record {
    /// A figure's summary over the samples of a GPU.
    pub fn summary(&self, gpu: u32, figure: fn(&GpuState) -> Option<f64>) -> Option<Summary> {
        let values: Vec<f64> = self.of(gpu).filter_map(|(_, state)| figure(state)).collect();
        Summary::of(&values)
    }

    /// The GPUs that were sampled.
    pub fn gpus(&self) -> Vec<u32> {
        let mut gpus: Vec<u32> =
            self.samples.iter().flat_map(|sample| &sample.gpus).map(|state| state.gpu).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    /// The most memory in use of a GPU.
    pub fn peak_vram_bytes(&self, gpu: u32) -> Option<u64> {
        self.of(gpu).filter_map(|(_, state)| state.vram_used_bytes).max()
    }

    /// GPUs whose clocks were held back: the tool says so, or, where it does not know, a busy GPU ran below 85 % of the
    /// highest clock that it had when busy.
    pub fn throttling(&self) -> Vec<Throttling> {
        self.gpus().into_iter().filter_map(|gpu| self.throttling_of(gpu)).collect()
    }

    fn throttling_of(&self, gpu: u32) -> Option<Throttling> {
        let states: Vec<&GpuState> = self.of(gpu).map(|(_, state)| state).collect();
        let found = |samples: usize, evidence: String| {
            (samples > 0).then_some(Throttling { gpu, samples, of: states.len(), evidence })
        };
        if states.iter().any(|state| state.throttled.is_some()) {
            let samples = states.iter().filter(|state| state.throttled == Some(true)).count();
            return found(samples, format!("{} says so", self.source));
        }
        let busy = states.iter().filter(|state| state.busy_percent >= Some(BUSY_PERCENT));
        let clocks: Vec<f64> = busy.filter_map(|state| state.clock_mhz).collect();
        let highest = clocks.iter().copied().fold(0.0, f64::max);
        let lowest = clocks.iter().copied().fold(f64::INFINITY, f64::min);
        let held_back = clocks.iter().filter(|clock| **clock < HELD_BACK * highest).count();
        let hottest = states.iter().filter_map(|state| state.hotspot_c).fold(0.0, f64::max);
        let heat =
            if hottest > 0.0 { format!(", {hottest:.0} C at the hottest") } else { String::new() };
        found(held_back, format!("under load {lowest:.0} MHz, after {highest:.0} MHz{heat}"))
    }

    fn of(&self, gpu: u32) -> impl Iterator<Item = (Duration, &GpuState)> {
        self.samples.iter().flat_map(move |sample| {
            sample.gpus.iter().filter(move |state| state.gpu == gpu).map(|state| (sample.at, state))
        })
    }

    /// A table for terminals, with what was held back.
    pub fn table(&self) -> String {
        type Figure = (&'static str, fn(&GpuState) -> Option<f64>);
        const FIGURES: [Figure; 9] = [
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
            line(&mut out, &header, &["least", "mean", "most"].map(str::to_owned));
            for (name, figure) in FIGURES {
                if let Some(summary) = self.summary(gpu, figure) {
                    let values = [summary.min, summary.mean, summary.max];
                    line(&mut out, name, &values.map(|value| format!("{value:.1}")));
                }
            }
        }
        for Throttling { gpu, samples, of, evidence } in self.throttling() {
            // Writing into a String cannot fail.
            _ = writeln!(out, "GPU {gpu} was held back in {samples} of {of} samples: {evidence}");
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

    fn record(states: &[GpuState]) -> Record {
        let samples = states
            .iter()
            .map(|state| Sample { at: Duration::ZERO, gpus: vec![state.clone()] })
            .collect();
        Record { source: "a test", samples, failures: None }
    }

    fn busy(clock: f64) -> GpuState {
        GpuState { busy_percent: Some(99.0), clock_mhz: Some(clock), ..GpuState::default() }
    }

    #[test]
    fn clocks_that_fall_under_load_are_held_back() {
        let falling = record(&[busy(2400.0), busy(2390.0), busy(1900.0)]);
        let throttling = falling.throttling();
        assert_eq!((throttling[0].samples, throttling[0].of), (1, 3));
        assert!(falling.table().contains("GPU 0 was held back in 1 of 3"), "{}", falling.table());
        let idle =
            GpuState { busy_percent: Some(3.0), clock_mhz: Some(30.0), ..GpuState::default() };
        assert!(record(&[busy(2400.0), idle]).throttling().is_empty());
    }

    #[test]
    fn what_the_tool_says_goes_before_a_guess() {
        let says = |throttled, clock| GpuState { throttled: Some(throttled), ..busy(clock) };
        assert!(record(&[says(false, 2400.0), says(false, 1000.0)]).throttling().is_empty());
        assert_eq!(record(&[says(true, 2400.0)]).throttling()[0].evidence, "a test says so");
    }

    #[test]
    fn a_source_that_fails_is_counted_and_does_not_end_the_run() {
        let nowhere = tempfile::tempdir().unwrap();
        let sampling = Monitor::Sysfs(nowhere.path().join("none")).start(Duration::from_millis(1));
        thread::sleep(Duration::from_millis(20));
        let record = sampling.stop();
        assert!(record.samples.is_empty() && record.failures.as_ref().unwrap().0 > 0);
        assert!(record.table().contains("failed"));
    }

    #[test]
    fn without_tools_and_cards_what_was_tried_is_named() {
        let empty = tempfile::tempdir().unwrap();
        let toolbox = crate::tools::Toolbox::of([]);
        let error = Monitor::detect_in(&toolbox, empty.path()).unwrap_err().to_string();
        assert!(
            error.contains("amd-smi is not installed") && error.contains("sysfs knows no GPU"),
            "{error}"
        );
    }
}
