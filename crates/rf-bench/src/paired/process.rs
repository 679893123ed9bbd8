//! A worker process, as its comparison sees it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::protocol::{Response, Slice, VERSION, WorkerRequest, WorkerSettings};
use crate::{Error, Interrupt};

/// A running worker. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    program: PathBuf,
    child: Child,
    requests: ChildStdin,
    /// Lines of its stdout.
    responses: Receiver<String>,
    interrupt: Interrupt,
}

/// Interval at which a worker that has not answered yet is abandoned after an urgent interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl WorkerProcess {
    /// Starts a worker and opens its target; the worker and the description of its backend.
    pub(super) fn start(
        program: &Path,
        settings: &WorkerSettings,
        interrupt: &Interrupt,
    ) -> Result<(Self, String), Error> {
        let starting = |source| Error::io(format_args!("start '{}'", program.display()), source);
        let mut child = Command::new(program)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C reaches the comparison alone, which ends its workers.
            .process_group(0)
            .spawn()
            .map_err(starting)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let Some((requests, responses)) = pipes else {
            return Err(failure(program, "it has no pipes"));
        };
        let mut worker = Self {
            program: program.to_owned(),
            child,
            requests,
            responses: lines(responses),
            interrupt: interrupt.clone(),
        };
        match worker.request(&WorkerRequest::Hello(settings.clone())) {
            Ok(Response::Ready { version: VERSION, backend }) => Ok((worker, backend)),
            Ok(Response::Ready { version, .. }) => Err(failure(
                program,
                &format!("it has version {version} of the worker protocol, not {VERSION}"),
            )),
            Ok(Response::Failed { reason }) => Err(failure(program, &reason)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            _ => Err(failure(
                program,
                &format!(
                    "it does not have the worker protocol (version {VERSION}): it is not rf-bench, \
                     or a build from before `--against`"
                ),
            )),
        }
    }

    /// Prepares a workload: the time of a run, or the reason why the worker does not support it.
    pub(super) fn prepare(&mut self, name: &str) -> Result<Result<Duration, String>, Error> {
        match self.request(&WorkerRequest::Prepare { name: name.to_owned() })? {
            Response::Prepared { run_ns } => Ok(Ok(Duration::from_nanos(run_ns))),
            Response::Unsupported { reason } => Ok(Err(reason)),
            other => Err(self.unexpected(other).of(name)),
        }
    }

    /// Runs a slice.
    pub(super) fn slice(&mut self, time: Duration) -> Result<Slice, Error> {
        match self.request(&WorkerRequest::Slice { ms: time.as_millis() as u64 })? {
            Response::Times(slice) if !slice.samples_ns.is_empty() => Ok(slice),
            other => Err(self.unexpected(other)),
        }
    }

    fn request(&mut self, request: &WorkerRequest) -> Result<Response, Error> {
        let text = serde_json::to_string(request).unwrap_or_default();
        let written = writeln!(self.requests, "{text}").and_then(|()| self.requests.flush());
        let ended = || failure(&self.program, "the process ended");
        written.map_err(|_| ended())?;
        let line = loop {
            match self.responses.recv_timeout(POLL_INTERVAL) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if self.interrupt.is_urgent() => {
                    return Err(Error::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        };
        serde_json::from_str(&line)
            .map_err(|error| failure(&self.program, &format!("'{}': {error}", line.trim())))
    }

    fn unexpected(&self, response: Response) -> Error {
        match response {
            Response::Failed { reason } => failure(&self.program, &reason),
            other => failure(&self.program, &format!("unexpected response {other:?}")),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads lines in a thread, which ends with the pipe or the receiver.
fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(pipe).lines();
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

fn failure(program: &Path, reason: &str) -> Error {
    Error::Worker { program: program.display().to_string(), reason: reason.to_owned() }
}
