//! Running a program that may hang, print nothing, or print without end.

use std::fmt;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// Kept of each output where nobody takes it as it comes.
const KEPT_BYTES: usize = 16 << 20;

/// Between the polite signal and the other one: a profiler may still write what it has.
const GRACE: Duration = Duration::from_secs(3);

/// How often a child is looked at that writes nothing.
const GLANCE: Duration = Duration::from_millis(10);

/// How programs are run: for how long, and what may end them earlier.
///
/// # Examples
///
/// ```
/// use std::process::Command;
/// use std::time::Duration;
///
/// use rf_profile::Error;
/// use rf_profile::tools::Runner;
///
/// let runner = Runner::new(Duration::from_millis(300));
/// assert_eq!(runner.run(Command::new("echo").arg("hello"))?.stdout, "hello\n");
/// let hangs = runner.run(Command::new("sleep").arg("60"));
/// assert!(matches!(hangs, Err(Error::TimedOut { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Runner {
    limit: Duration,
    stop: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    echo: bool,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// A program that ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// The program.
    pub program: String,
    /// What it wrote, up to 16 MiB.
    pub stdout: String,
    /// What it complained of, up to 16 MiB.
    pub stderr: String,
    /// How long it ran.
    pub elapsed: Duration,
}

enum Piece {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

impl Runner {
    /// Ends programs, and all that they start, after `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { limit, stop: None, echo: false }
    }

    /// Ends them as soon as `stop` says so as well; it is asked some hundred times a second. Programs are run in a process
    /// group of their own, so that Ctrl-C at the terminal does not reach them: a handler's flag does, this way.
    #[must_use]
    pub fn stopped_when(mut self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop = Some(Arc::new(stop));
        self
    }

    /// The same, with `limit` where that is shorter, and nothing shown.
    pub(super) fn at_most(&self, limit: Duration) -> Self {
        Self { limit: self.limit.min(limit), echo: false, ..self.clone() }
    }

    /// Shows what programs write to stdout, as it comes, on this program's stdout.
    #[must_use]
    pub fn echo(mut self, echo: bool) -> Self {
        self.echo = echo;
        self
    }

    /// Runs a program to its end and gives what it wrote.
    ///
    /// # Errors
    ///
    /// [`Error::Start`]; [`Error::TimedOut`] where it was ended; [`Error::Failed`] where its status is not 0.
    pub fn run(&self, command: &mut Command) -> Result<Finished, Error> {
        let mut stdout = Vec::new();
        let mut finished = self.run_into(command, &mut |bytes| keep(&mut stdout, bytes))?;
        finished.stdout = String::from_utf8_lossy(&stdout).into_owned();
        Ok(finished)
    }

    /// Runs a program to its end; `on_stdout` gets what it writes, in pieces.
    ///
    /// # Errors
    ///
    /// As [`Runner::run`].
    pub fn run_into(
        &self,
        command: &mut Command,
        on_stdout: &mut dyn FnMut(&[u8]),
    ) -> Result<Finished, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        own_group(command);
        let start = Instant::now();
        let to_error = |source| Error::Start { program: program.clone(), source };
        let mut child = command.spawn().map_err(to_error)?;
        let (sender, pieces) = sync_channel(64);
        if let Some(stdout) = child.stdout.take() {
            forward(stdout, sender.clone(), Piece::Stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            forward(stderr, sender.clone(), Piece::Stderr);
        }
        drop(sender);

        let mut stderr = Vec::new();
        let mut take = |piece| match piece {
            Piece::Stdout(bytes) => {
                if self.echo {
                    // A closed terminal is no reason to lose a measurement.
                    drop(io::stdout().write_all(&bytes));
                }
                on_stdout(&bytes);
            }
            Piece::Stderr(bytes) => keep(&mut stderr, &bytes),
        };
        let ended = self.watch(&mut child, start, &pieces, &mut take);
        let elapsed = start.elapsed();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        match ended.map_err(to_error)? {
            None => Err(Error::TimedOut { program, limit: elapsed, tail: tail(&stderr) }),
            Some(status) if status.success() => {
                Ok(Finished { program, stdout: String::new(), stderr, elapsed })
            }
            Some(status) => {
                Err(Error::Failed { program, status: status.to_string(), tail: tail(&stderr) })
            }
        }
    }

    /// Waits for the end of the child and of its output; `None` where it had to be ended.
    fn watch(
        &self,
        child: &mut Child,
        start: Instant,
        pieces: &Receiver<Piece>,
        take: &mut dyn FnMut(Piece),
    ) -> io::Result<Option<ExitStatus>> {
        let mut open = true;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let asked_to = self.stop.as_ref().is_some_and(|stop| stop());
            if asked_to || start.elapsed() >= self.limit {
                end(child)?;
                drain(pieces, Duration::from_millis(200), take);
                return Ok(None);
            }
            if !open {
                thread::sleep(GLANCE);
                continue;
            }
            match pieces.recv_timeout(GLANCE) {
                Ok(piece) => take(piece),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        };
        // What it started in the background may hold the pipes open for ever.
        drain(pieces, Duration::from_secs(2), take);
        Ok(Some(status))
    }
}

impl Finished {
    /// The error of a program that ended well and left nothing.
    pub(super) fn no_output(&self, expected: &str) -> Error {
        Error::NoOutput {
            program: self.program.clone(),
            expected: expected.to_owned(),
            tail: tail(&self.stderr),
        }
    }
}

fn forward(
    mut pipe: impl Read + Send + 'static,
    sender: SyncSender<Piece>,
    wrap: fn(Vec<u8>) -> Piece,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match pipe.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(length) if sender.send(wrap(buffer[..length].to_vec())).is_err() => break,
                Ok(_) => {}
            }
        }
    });
}

/// Takes what still comes, until the pipes are closed or silent for `patience`.
fn drain(pieces: &Receiver<Piece>, patience: Duration, take: &mut dyn FnMut(Piece)) {
    while let Ok(piece) = pieces.recv_timeout(patience) {
        take(piece);
    }
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT_BYTES.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// The last lines, for errors.
fn tail(text: &str) -> String {
    const LINES: usize = 4;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" / ")
}

#[cfg(unix)]
fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn own_group(_command: &mut Command) {}

/// Ends a child and everything in its group: politely, then not.
#[cfg(unix)]
fn end(child: &mut Child) -> io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process_group};
    let group = Pid::from_child(child);
    // It may have ended by itself meanwhile.
    _ = kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < GRACE {
        if child.try_wait()?.is_some() {
            break;
        }
        thread::sleep(GLANCE);
    }
    _ = kill_process_group(group, Signal::KILL);
    child.wait().map(drop)
}

#[cfg(not(unix))]
fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(script: &str, limit: Duration) -> Result<Finished, Error> {
        Runner::new(limit).run(&mut shell(script))
    }

    #[test]
    fn output_and_errors_come_back() {
        let finished = run("echo out; echo err >&2", Duration::from_secs(20)).unwrap();
        assert_eq!((&*finished.stdout, &*finished.stderr), ("out\n", "err\n"));
        let error = run("echo it broke >&2; exit 3", Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.to_string(), "'sh' failed with exit status: 3: it broke");
        let error = Runner::new(GRACE).run(&mut Command::new("./no/such/program")).unwrap_err();
        assert!(matches!(error, Error::Start { .. }));
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("alive");
        let script = format!("(sleep 1; touch '{}') & sleep 60", mark.display());
        let start = Instant::now();
        let error = run(&script, Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        thread::sleep(Duration::from_millis(1200));
        assert!(!mark.exists(), "what it started lives on");
    }

    #[test]
    fn a_program_that_ignores_the_polite_signal_is_ended_too() {
        let start = Instant::now();
        let error = run("trap '' TERM; while :; do sleep 1; done", Duration::from_millis(200));
        assert!(matches!(error, Err(Error::TimedOut { .. })));
        assert!(start.elapsed() < GRACE + Duration::from_secs(20));
    }

    #[test]
    fn background_work_that_keeps_the_pipe_does_not_keep_us() {
        let start = Instant::now();
        let finished = run("echo out; sleep 30 & exit 0", Duration::from_secs(25)).unwrap();
        assert_eq!(finished.stdout, "out\n");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn endless_output_is_cut_and_then_ended() {
        let mut bytes = 0;
        let runner = Runner::new(Duration::from_millis(300));
        let ended = runner.run_into(&mut shell("yes"), &mut |piece| bytes += piece.len());
        assert!(matches!(ended, Err(Error::TimedOut { .. })) && bytes > 0);
        let mut kept = Vec::new();
        let piece = vec![0; 1 << 20];
        (0..40).for_each(|_| keep(&mut kept, &piece));
        assert_eq!(kept.len(), KEPT_BYTES);
    }

    #[test]
    fn a_stop_from_outside_ends_it() {
        let runner = Runner::new(Duration::from_mins(1)).stopped_when(|| true);
        assert!(matches!(runner.run(&mut shell("sleep 60")), Err(Error::TimedOut { .. })));
    }
}
