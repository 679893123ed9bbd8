//! Child processes that work on a GPU and write a line of JSON before and after each part: a driver
//! that crashes or hangs takes only the child with it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::gpu::Gpu;
use crate::probe::{Prober, RUN_TIME, give_up};

/// The longest time to load the runtime and the first kernels.
const OPENING_LIMIT: Duration = Duration::from_mins(3);

/// The longest time to open a GPU whose kernels ROCm compiles.
const COMPILING_LIMIT: Duration = Duration::from_mins(30);

/// The longest time until a child has opened a GPU.
pub(crate) fn opening_limit(gpu: &Gpu) -> Duration {
    let is_compiled = gpu.report().code_kind.as_deref() == Some(RUN_TIME);
    if is_compiled { COMPILING_LIMIT } else { OPENING_LIMIT }
}

/// The reader of a child's lines.
pub(crate) struct Lines<M> {
    child: Child,
    messages: Receiver<M>,
}

/// The reason why a child sends no more lines.
pub(crate) enum LinesEnd {
    /// It ended, with this status.
    Ended(String),
    /// It sent nothing within the limit.
    Silent,
    /// The caller stopped it.
    Stopped,
}

impl<M: DeserializeOwned + Send + 'static> Lines<M> {
    /// Starts a child for a GPU. Its arguments are platform, ordinal, and these.
    ///
    /// # Errors
    ///
    /// If the child does not start.
    pub(crate) fn start(prober: &Prober, gpu: &Gpu, arguments: &[&str]) -> Result<Self, Error> {
        let (platform, ordinal) = (gpu.report().platform.to_lowercase(), gpu.report().ordinal);
        let mut child = prober
            .command()
            .args([&platform, &ordinal.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Error::Probe(format!("cannot start a process for the GPU: {error}"))
            })?;
        let stdout = child.stdout.take();
        let (send, messages) = mpsc::channel();
        // The thread ends with the child. A child that cannot be killed keeps it waiting.
        thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
            for line in lines.map_while(Result::ok) {
                let Ok(message) = serde_json::from_str(&line) else { continue };
                if send.send(message).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, messages })
    }

    /// The next message, unless none comes within the limit or `stopped` returns true.
    pub(crate) fn next(
        &mut self,
        limit: Duration,
        stopped: &mut dyn FnMut() -> bool,
    ) -> Result<M, LinesEnd> {
        const TURN: Duration = Duration::from_millis(100);
        let start = Instant::now();
        loop {
            match self.messages.recv_timeout(TURN) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait();
                    let status = status.map_or_else(|error| error.to_string(), |s| s.to_string());
                    return Err(LinesEnd::Ended(status));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if stopped() {
                give_up(&mut self.child);
                return Err(LinesEnd::Stopped);
            }
            if start.elapsed() > limit {
                give_up(&mut self.child);
                return Err(LinesEnd::Silent);
            }
        }
    }
}

/// Writes a message as a line, at once, so that it is there if the next call of the driver crashes.
pub(crate) fn write_line(
    out: &mut impl std::io::Write,
    message: &impl serde::Serialize,
) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, message)?;
    out.write_all(b"\n")?;
    out.flush()
}
