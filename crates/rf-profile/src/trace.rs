//! Timelines for Perfetto and `chrome://tracing`.
//!
//! The format is Chrome's "Trace Event Format" in JSON: complete events (`X`), counters (`C`),
//! arrows from launches to their kernels (`s` and `f`), and names of processes and threads (`M`).
//! Times are microseconds from the start of the recording.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::spans::{SpanEvent, current_thread};
use crate::tables::{ApiRow, CopyRow, KernelRow};
use crate::{Error, replace_file};

/// A timeline of events on tracks.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use rf_profile::Trace;
///
/// let mut trace = Trace::new();
/// let group = trace.process("CPU");
/// let thread = trace.track(group, "main");
/// let ms = Duration::from_millis;
/// trace.complete(thread, "matmul", "op", ms(1)..ms(3), &[("tokens", 4.into())]);
/// assert!(trace.to_json().contains("\"dur\":2000.0"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trace {
    events: Vec<Value>,
    processes: u64,
    tracks: u64,
    flows: u64,
}

/// A group of tracks, which is a process in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackGroup(u64);

/// A row of the timeline, which is a thread in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    process: u64,
    thread: u64,
}

impl Trace {
    /// Creates an empty timeline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a group of tracks.
    pub fn process(&mut self, name: &str) -> TrackGroup {
        self.processes += 1;
        self.metadata("process_name", self.processes, 0, name);
        TrackGroup(self.processes)
    }

    /// Adds a track to a group.
    pub fn track(&mut self, group: TrackGroup, name: &str) -> Track {
        self.tracks += 1;
        self.metadata("thread_name", group.0, self.tracks, name);
        Track { process: group.0, thread: self.tracks }
    }

    /// Adds an event with a duration. Viewers filter by `category`, such as `op`, `launch` or
    /// `transfer`.
    pub fn complete(
        &mut self,
        track: Track,
        name: &str,
        category: &str,
        time: Range<Duration>,
        arguments: &[(&str, Value)],
    ) {
        let arguments: serde_json::Map<String, Value> =
            arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.events.push(json!({
            "ph": "X", "name": name, "cat": category, "ts": us(time.start),
            "dur": us(time.end.saturating_sub(time.start)),
            "pid": track.process, "tid": track.thread, "args": arguments,
        }));
    }

    /// Adds a value of a metric that changes over time, such as memory use or a clock.
    pub fn counter(&mut self, group: TrackGroup, name: &str, at: Duration, value: f64) {
        self.events.push(json!({
            "ph": "C", "name": name, "ts": us(at), "pid": group.0, "tid": 0, "args": {name: value},
        }));
    }

    /// Adds an arrow from a time within an event of one track to a time within an event of another.
    pub fn arrow(&mut self, from: (Track, Duration), to: (Track, Duration)) {
        self.flows += 1;
        for (kind, (track, at)) in [("s", from), ("f", to)] {
            self.events.push(json!({
                "ph": kind, "bp": "e", "id": self.flows, "name": "launch", "cat": "launch", "ts": us(at),
                "pid": track.process, "tid": track.thread,
            }));
        }
    }

    /// Adds recorded spans with one track per thread.
    pub fn add_spans(&mut self, name: &str, spans: &[SpanEvent]) {
        let group = self.process(name);
        let (here, here_name) = current_thread();
        let mut tracks: Vec<(u64, Track)> = Vec::new();
        for span in spans {
            let known = tracks.iter().find(|(thread, _)| *thread == span.thread);
            let track = if let Some((_, track)) = known {
                *track
            } else {
                let thread = span.thread;
                let name =
                    if thread == here { here_name.clone() } else { format!("thread {thread}") };
                let track = self.track(group, &name);
                tracks.push((thread, track));
                track
            };
            self.complete(
                track,
                span.name,
                span.target,
                span.start..span.start + span.duration,
                &span.fields,
            );
        }
    }

    /// Adds the data of a profiler: the kernels of each GPU, the copies, and the calls of the
    /// runtime.
    pub fn add_profile(&mut self, kernels: &[KernelRow], copies: &[CopyRow], calls: &[ApiRow]) {
        let starts = kernels.iter().filter_map(|kernel| kernel.start_ns);
        let starts = starts.chain(copies.iter().map(|copy| copy.start_ns));
        let Some(origin) = starts.chain(calls.iter().map(|call| call.start_ns)).min() else {
            return;
        };
        let since = |ns: u64| Duration::from_nanos(ns.saturating_sub(origin));

        let mut agents: Vec<(&str, Track)> = Vec::new();
        for kernel in kernels {
            let Some(start) = kernel.start_ns else { continue };
            let known = agents.iter().find(|(agent, _)| *agent == kernel.agent);
            let track = if let Some((_, track)) = known {
                *track
            } else {
                let group = self.process(&format!("GPU {}", kernel.agent));
                let track = self.track(group, "kernels");
                agents.push((&kernel.agent, track));
                track
            };
            let arguments = [("dispatch", kernel.dispatch.into()), ("vgprs", kernel.vgprs.into())];
            let end = start.saturating_add(kernel.duration_ns);
            self.complete(track, &kernel.name, "kernel", since(start)..since(end), &arguments);
        }
        if !copies.is_empty() {
            let group = self.process("transfers");
            let track = self.track(group, "copies");
            for copy in copies {
                let time = since(copy.start_ns)..since(copy.end_ns);
                self.complete(track, &copy.direction, "transfer", time, &[]);
            }
        }
        if !calls.is_empty() {
            let group = self.process("runtime calls");
            let mut threads: Vec<(Option<u64>, Track)> = Vec::new();
            for call in calls {
                let known = threads.iter().find(|(thread, _)| *thread == call.thread);
                let track = if let Some((_, track)) = known {
                    *track
                } else {
                    let name = call.thread.map_or("calls".to_owned(), |id| format!("thread {id}"));
                    let track = self.track(group, &name);
                    threads.push((call.thread, track));
                    track
                };
                let category = if call.function.contains("Launch") { "launch" } else { "call" };
                let time = since(call.start_ns)..since(call.end_ns);
                self.complete(track, &call.function, category, time, &[]);
            }
        }
    }

    /// The timeline as JSON text.
    pub fn to_json(&self) -> String {
        let mut text = Vec::new();
        // Writing into memory does not fail.
        if let Err(error) = self.write(&mut text) {
            tracing::error!("cannot format the trace as JSON: {error}");
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Writes the timeline to a file. An error leaves an earlier file unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::Write`].
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        replace_file(path, |out| self.write(out))
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        for (number, event) in self.events.iter().enumerate() {
            if number > 0 {
                out.write_all(b",\n")?;
            }
            serde_json::to_writer(&mut *out, event)?;
        }
        out.write_all(b"\n]}\n")
    }

    fn metadata(&mut self, kind: &str, process: u64, thread: u64, name: &str) {
        self.events.push(json!({
            "ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name},
        }));
    }
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Table, TimelineEvent};

    #[test]
    fn a_saved_trace_is_read_back() {
        let mut trace = Trace::new();
        let group = trace.process("CPU \"quoted\"");
        let (main, gpu) = (trace.track(group, "main"), trace.track(group, "GPU"));
        let us = Duration::from_micros;
        trace.complete(main, "launch", "launch", us(5)..us(7), &[("lds", 64.into())]);
        trace.complete(gpu, "kernel\n", "kernel", us(9)..us(29), &[]);
        trace.arrow((main, us(6)), (gpu, us(9)));
        trace.counter(group, "VRAM", us(1), 0.5);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        trace.save(&path).unwrap();
        let events = TimelineEvent::read(&path).unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(
            (&*events[1].name, events[1].start_us, events[1].duration_us),
            ("kernel\n", 9.0, 20.0)
        );
        let value: Value = serde_json::from_str(&trace.to_json()).unwrap();
        assert_eq!(value["traceEvents"].as_array().unwrap().len(), 8);
        assert_eq!(
            serde_json::from_str::<Value>(&Trace::new().to_json()).unwrap()["traceEvents"],
            json!([])
        );
    }

    #[test]
    fn profiler_tables_become_tracks() {
        let table =
            "Kernel_Name,Agent_Id,Start_Timestamp,End_Timestamp\nf,1,1000,3000\ng,2,2000,2500\n";
        let kernels = KernelRow::all(&Table::parse(table, "t").unwrap()).unwrap();
        let mut trace = Trace::new();
        trace.add_profile(&kernels, &[], &[]);
        let events = TimelineEvent::parse(&trace.to_json(), "t").unwrap();
        let seen: Vec<_> = events.iter().map(|e| (&*e.name, e.process, e.start_us)).collect();
        assert_eq!(seen, [("f", 1, 0.0), ("g", 2, 1.0)]);
    }
}
