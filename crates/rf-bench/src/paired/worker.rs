//! The worker side of a paired comparison.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rocmforge::device::Isa;

use super::protocol::{Response, Slice, VERSION, WorkerRequest, WorkerSettings};
use crate::contention::ContentionTimer;
use crate::model::ModelFile;
use crate::model_metric::ModelMetric;
use crate::timers::Timer;
use crate::{Error, Prepared, Suite, Target, workloads};

/// Runs shorter than this share a sample.
const SHORT: Duration = Duration::from_micros(200);

/// Duration of the runs before the first slice.
const WARM_UP: Duration = Duration::from_millis(10);

/// Answers requests from `input` until it ends. `decorate` may replace the backend of the target:
/// tests plant slow-downs with it.
///
/// # Errors
///
/// [`Error::Io`] where a line cannot be read or written. Failed requests are answered with
/// [`Response::Failed`].
pub fn serve(
    input: impl BufRead,
    mut output: impl Write,
    decorate: impl Fn(Target) -> Target,
) -> Result<(), Error> {
    let mut worker = None;
    for line in input.lines() {
        let line = line.map_err(|source| Error::io("read a request", source))?;
        let response = match serde_json::from_str(&line) {
            Err(error) => Err(format!("'{line}' is not a request of version {VERSION}: {error}")),
            Ok(request) => answer(&mut worker, request, &decorate).map_err(|e| chain(&e)),
        };
        let response = response.unwrap_or_else(|reason| Response::Failed { reason });
        let text = serde_json::to_string(&response).unwrap_or_default();
        let written = writeln!(output, "{text}").and_then(|()| output.flush());
        written.map_err(|source| Error::io("write a response", source))?;
    }
    Ok(())
}

struct Worker {
    target: Target,
    model: Option<ModelFile>,
    prepared: Option<Prepared>,
}

fn answer(
    worker: &mut Option<Worker>,
    request: WorkerRequest,
    decorate: &dyn Fn(Target) -> Target,
) -> Result<Response, Error> {
    if let WorkerRequest::Hello(settings) = request {
        let opened = Worker::open(settings, decorate)?;
        let backend = opened.target.backend().description();
        *worker = Some(opened);
        return Ok(Response::Ready { version: VERSION, backend });
    }
    let Some(worker) = worker else {
        return Ok(Response::Failed { reason: "the first request is not hello".to_owned() });
    };
    match request {
        WorkerRequest::Prepare { name } => match worker.prepare(&name) {
            Err(error @ (Error::Unsupported(_) | Error::OutOfMemory { .. })) => {
                Ok(Response::Unsupported { reason: error.to_string() })
            }
            prepared => Ok(Response::Prepared { run_ns: prepared?.as_nanos() as u64 }),
        },
        WorkerRequest::Slice { ms } => {
            Ok(Response::Times(worker.slice(Duration::from_millis(ms))?))
        }
        WorkerRequest::Hello(_) => Ok(Response::Failed { reason: "a second hello".to_owned() }),
    }
}

impl Worker {
    fn open(settings: WorkerSettings, decorate: &dyn Fn(Target) -> Target) -> Result<Self, Error> {
        if settings.version != VERSION {
            return Err(Error::Unsupported(format!(
                "this build has version {VERSION} of the worker protocol, not {}",
                settings.version
            )));
        }
        let isa = settings.isa.map(|isa| isa.parse::<Isa>());
        let isa = isa.transpose().map_err(|error| Error::Unsupported(error.to_string()))?;
        let target =
            if settings.gpu { Target::gpu(None)? } else { Target::cpu(settings.threads, isa)? };
        let file = |path: PathBuf| ModelFile { path, is_demo: false };
        let model = settings.model.map(file);
        Ok(Self { target: decorate(target), model, prepared: None })
    }

    /// Prepares a workload and warms it up; the time of the last run.
    fn prepare(&mut self, name: &str) -> Result<Duration, Error> {
        // The memory of one workload at a time.
        self.prepared = None;
        let mut prepared = self.find(name)?;
        let start = Instant::now();
        prepared.run()?;
        let mut last = prepared.run()?;
        while start.elapsed() < WARM_UP {
            last = prepared.run()?;
        }
        self.prepared = Some(prepared);
        Ok(last)
    }

    fn find(&self, name: &str) -> Result<Prepared, Error> {
        let mut all = Suite::OPS.into_iter().flat_map(workloads);
        if let Some(workload) = all.find(|workload| workload.name == name) {
            return workload.prepare(&self.target);
        }
        if let Some(timer) = Timer::ALL.into_iter().find(|timer| timer.name() == name) {
            return Ok(timer.prepare());
        }
        let metric = ModelMetric::all().into_iter().find(|metric| metric.name() == name);
        match (metric, &self.model) {
            (Some(metric), Some(model)) => metric.prepare(model, &self.target),
            (Some(_), None) => Err(Error::Unsupported(format!("{name} needs a model"))),
            (None, _) => Err(Error::Unsupported(format!("this build has no workload {name}"))),
        }
    }

    fn slice(&mut self, time: Duration) -> Result<Slice, Error> {
        let Some(prepared) = &mut self.prepared else {
            return Err(Error::Unsupported("a slice without a workload".to_owned()));
        };
        let threads = self.target.threads().unwrap_or(1);
        let (start, contention) = (Instant::now(), ContentionTimer::start());
        let mut samples_ns = Vec::new();
        while samples_ns.is_empty() || start.elapsed() < time {
            let (mut sum, mut runs) = (Duration::ZERO, 0_u32);
            let sample = Instant::now();
            while runs == 0 || (sample.elapsed() < SHORT && runs < 1000) {
                sum += prepared.run()?;
                runs += 1;
            }
            samples_ns.push(sum.as_secs_f64() * 1e9 / f64::from(runs));
        }
        Ok(Slice { samples_ns, contention: contention.fraction(threads) })
    }
}

/// An error and its sources on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(requests: &[&str]) -> Vec<Response> {
        let mut output = Vec::new();
        serve(requests.join("\n").as_bytes(), &mut output, |target| target).unwrap();
        let text = String::from_utf8(output).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_worker_prepares_and_times_a_workload() {
        let responses = talk(&[
            r#"{"hello":{"version":1,"gpu":false,"threads":1,"isa":null,"model":null}}"#,
            r#"{"prepare":{"name":"launch/step/ops=1"}}"#,
            r#"{"slice":{"ms":1}}"#,
            r#"{"prepare":{"name":"launch/no-such"}}"#,
        ]);
        assert!(matches!(responses[0], Response::Ready { version: VERSION, .. }), "{responses:?}");
        assert!(matches!(responses[1], Response::Prepared { run_ns: 1.. }), "{responses:?}");
        let Response::Times(slice) = &responses[2] else { panic!("{responses:?}") };
        assert!(slice.samples_ns.iter().all(|ns| *ns > 0.0), "{slice:?}");
        assert!(matches!(responses[3], Response::Unsupported { .. }), "{responses:?}");
    }

    #[test]
    fn requests_that_cannot_be_answered_fail_with_a_reason() {
        let responses = talk(&[
            "speed",
            r#"{"slice":{"ms":1}}"#,
            r#"{"hello":{"version":99,"gpu":false,"threads":1,"isa":null,"model":null}}"#,
        ]);
        let reasons = responses.iter().map(|response| match response {
            Response::Failed { reason } => reason.as_str(),
            other => panic!("{other:?}"),
        });
        let reasons: Vec<&str> = reasons.collect();
        assert!(reasons[0].contains("'speed' is not a request"), "{reasons:?}");
        assert!(reasons[1].contains("first request"), "{reasons:?}");
        assert!(reasons[2].contains("protocol, not 99"), "{reasons:?}");
    }
}
