//! Runs programs that may hang, print nothing, or print without end.

use std::io::{self, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use process_wrap::std::{ChildWrapper, CommandWrap};

use crate::Error;

/// The most bytes kept of stdout and of stderr.
const MAX_CAPTURED_BYTES: usize = 16 << 20;

/// The time between SIGTERM and SIGKILL, in which a profiler can write the data that it has.
#[cfg(unix)]
const GRACE: Duration = Duration::from_secs(3);

/// The interval at which a child without output is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs programs with a time limit and an optional stop condition.
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
/// let mut echo = Command::new("echo");
/// echo.arg("hello");
/// assert_eq!(Runner::new(Duration::from_secs(60)).run(echo)?.stdout, "hello\n");
///
/// let mut sleep = Command::new("sleep");
/// sleep.arg("60");
/// let result = Runner::new(Duration::from_millis(100)).run(sleep);
/// assert!(matches!(result, Err(Error::Killed { .. })));
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

/// The output of a program that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessOutput {
    /// The program's name or path.
    pub program: String,
    /// The first 16 MiB of stdout.
    pub stdout: String,
    /// The first 16 MiB of stderr.
    pub stderr: String,
    /// The running time.
    pub elapsed: Duration,
}

enum Piece {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

impl Runner {
    /// Creates a runner that kills a program after `limit`, with all the processes that it started.
    pub fn new(limit: Duration) -> Self {
        Self { limit, stop: None, echo: false }
    }

    /// Kills programs also once `stop` returns true. `stop` is called about a hundred times per
    /// second. A program runs in a process group of its own, so Ctrl-C at the terminal does not
    /// reach it: pass the flag of a signal handler here.
    #[must_use]
    pub fn stopped_when(mut self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop = Some(Arc::new(stop));
        self
    }

    /// Copies the stdout of programs to this program's stdout as it arrives.
    #[must_use]
    pub fn echo(mut self, echo: bool) -> Self {
        self.echo = echo;
        self
    }

    /// A copy with the shorter of both limits and without echo.
    pub(super) fn at_most(&self, limit: Duration) -> Self {
        Self { limit: self.limit.min(limit), echo: false, ..self.clone() }
    }

    /// Runs a program to its end and returns its output.
    ///
    /// # Errors
    ///
    /// [`Error::Start`]; [`Error::Killed`] after the limit or a stop; [`Error::Failed`] for an exit
    /// status other than 0.
    pub fn run(&self, command: Command) -> Result<ProcessOutput, Error> {
        let mut stdout = Vec::new();
        let mut output = self.run_into(command, &mut |bytes| capture(&mut stdout, bytes))?;
        output.stdout = String::from_utf8_lossy(&stdout).into_owned();
        Ok(output)
    }

    /// Runs a program to its end and passes its stdout to `on_stdout` in pieces.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::run`].
    pub(super) fn run_into(
        &self,
        mut command: Command,
        on_stdout: &mut dyn FnMut(&[u8]),
    ) -> Result<ProcessOutput, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let to_error = |source| Error::Start { program: program.clone(), source };
        let mut child = in_own_group(command).spawn().map_err(to_error)?;
        let (sender, pieces) = sync_channel(64);
        if let Some(stdout) = child.stdout().take() {
            forward(stdout, sender.clone(), Piece::Stdout);
        }
        if let Some(stderr) = child.stderr().take() {
            forward(stderr, sender.clone(), Piece::Stderr);
        }
        drop(sender);

        let mut stderr = Vec::new();
        let mut take = |piece| match piece {
            Piece::Stdout(bytes) => {
                if self.echo {
                    // A closed terminal must not end a measurement.
                    drop(io::stdout().write_all(&bytes));
                }
                on_stdout(&bytes);
            }
            Piece::Stderr(bytes) => capture(&mut stderr, &bytes),
        };
        let status = self.wait(&mut *child, start, &pieces, &mut take);
        let elapsed = start.elapsed();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        match status.map_err(to_error)? {
            None => Err(Error::Killed { program, elapsed, tail: tail(&stderr) }),
            Some(status) if status.success() => {
                Ok(ProcessOutput { program, stdout: String::new(), stderr, elapsed })
            }
            Some(status) => {
                Err(Error::Failed { program, status: status.to_string(), tail: tail(&stderr) })
            }
        }
    }

    /// Waits for the end of the child and of its output. `None` if the child was killed.
    fn wait(
        &self,
        child: &mut dyn ChildWrapper,
        start: Instant,
        pieces: &Receiver<Piece>,
        take: &mut dyn FnMut(Piece),
    ) -> io::Result<Option<ExitStatus>> {
        let mut open = true;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let stopped = self.stop.as_ref().is_some_and(|stop| stop());
            if stopped || start.elapsed() >= self.limit {
                kill(child)?;
                drain(pieces, Duration::from_millis(200), take);
                return Ok(None);
            }
            if !open {
                thread::sleep(POLL_INTERVAL);
                continue;
            }
            match pieces.recv_timeout(POLL_INTERVAL) {
                Ok(piece) => take(piece),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        };
        // Background processes of the program may keep the pipes open forever.
        drain(pieces, Duration::from_secs(2), take);
        Ok(Some(status))
    }
}

impl ProcessOutput {
    /// The error for a program that succeeded without the expected output.
    pub(super) fn no_output(&self, expected: &str) -> Error {
        Error::NoOutput {
            program: self.program.clone(),
            expected: expected.to_owned(),
            tail: tail(&self.stderr),
        }
    }
}

/// Puts a command into a process group, or a job on Windows, so that it can be killed with all the
/// processes that it starts.
fn in_own_group(command: Command) -> CommandWrap {
    let mut command = CommandWrap::from(command);
    #[cfg(unix)]
    command.wrap(process_wrap::std::ProcessGroup::leader());
    #[cfg(windows)]
    command.wrap(process_wrap::std::JobObject);
    command
}

/// Kills a child and its group: with SIGTERM first where there are signals, then for certain.
fn kill(child: &mut dyn ChildWrapper) -> io::Result<()> {
    #[cfg(unix)]
    {
        /// POSIX defines the number.
        const SIGTERM: i32 = 15;
        // An error means that the group has ended.
        drop(child.signal(SIGTERM));
        let start = Instant::now();
        while start.elapsed() < GRACE && child.try_wait()?.is_none() {
            thread::sleep(POLL_INTERVAL);
        }
    }
    drop(child.start_kill());
    child.wait().map(drop)
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

/// Takes the remaining output until the pipes are closed, or silent for `timeout`.
fn drain(pieces: &Receiver<Piece>, timeout: Duration, take: &mut dyn FnMut(Piece)) {
    while let Ok(piece) = pieces.recv_timeout(timeout) {
        take(piece);
    }
}

fn capture(captured: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_CAPTURED_BYTES.saturating_sub(captured.len());
    captured.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// The last lines of a text, for errors.
fn tail(text: &str) -> String {
    const LINES: usize = 4;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join(" / ")
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(script: &str) -> Result<ProcessOutput, Error> {
        Runner::new(MINUTE).run(shell(script))
    }

    /// Runs a script that prints `ready`, and stops it then.
    fn stop_when_ready(script: &str) -> Result<ProcessOutput, Error> {
        let ready = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ready);
        let runner = Runner::new(MINUTE).stopped_when(move || flag.load(Ordering::Relaxed));
        let mut stdout = Vec::new();
        runner.run_into(shell(script), &mut |bytes| {
            stdout.extend_from_slice(bytes);
            ready.store(stdout.starts_with(b"ready"), Ordering::Relaxed);
        })
    }

    #[test]
    fn stdout_and_stderr_are_returned() {
        let output = run("echo out; echo err >&2").unwrap();
        assert_eq!((&*output.stdout, &*output.stderr), ("out\n", "err\n"));
        let error = run("echo it broke >&2; exit 3").unwrap_err();
        assert_eq!(error.to_string(), "'sh' failed with exit status: 3: it broke");
        let error = Runner::new(MINUTE).run(Command::new("./no/such/program")).unwrap_err();
        assert!(matches!(error, Error::Start { .. }));
    }

    #[test]
    fn a_program_is_killed_after_the_limit() {
        let result = Runner::new(Duration::from_millis(100)).run(shell("sleep 60"));
        assert!(matches!(result, Err(Error::Killed { .. })), "{result:?}");
    }

    #[test]
    fn a_program_is_killed_with_all_processes_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        if !Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
            rf_testing::skip!("no mkfifo");
            return;
        }
        // The background process holds the pipe's only writing end and outlives the shell. The
        // text arrives if it survives, and the end of the file without it if it was killed.
        let text = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        let script = format!(
            "(exec 3>'{}'; echo ready; sleep 30; echo alive >&3) & wait; sleep 60",
            pipe.display()
        );
        let error = stop_when_ready(&script).unwrap_err();
        assert!(matches!(error, Error::Killed { .. }), "{error:?}");
        assert_eq!(text.join().unwrap(), "");
    }

    #[test]
    fn a_program_that_ignores_sigterm_is_killed() {
        let error = stop_when_ready("trap '' TERM; echo ready; while :; do sleep 1; done");
        assert!(matches!(error, Err(Error::Killed { .. })), "{error:?}");
    }

    #[test]
    fn a_background_process_that_keeps_the_pipe_does_not_delay_the_end() {
        let output = run("echo out; (sleep 30; echo late) & exit 0").unwrap();
        assert_eq!(output.stdout, "out\n");
    }

    #[test]
    fn endless_output_is_cut_off() {
        let bytes = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&bytes);
        let enough = move || seen.load(Ordering::Relaxed) > 1 << 20;
        let runner = Runner::new(MINUTE).stopped_when(enough);
        let result = runner.run_into(shell("yes"), &mut |piece| {
            bytes.fetch_add(piece.len(), Ordering::Relaxed);
        });
        assert!(matches!(result, Err(Error::Killed { .. })), "{result:?}");
        let mut captured = Vec::new();
        let piece = vec![0; 1 << 20];
        (0..40).for_each(|_| capture(&mut captured, &piece));
        assert_eq!(captured.len(), MAX_CAPTURED_BYTES);
    }
}
