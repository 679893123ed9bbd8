//! Signals and limits of Unix.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{self, SignalKind, signal};

use super::Signal;

/// SIGTERM, SIGINT and SIGHUP. SIGUSR1 and SIGUSR2 are ignored.
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    /// `None` if the process ignores it, as one that `nohup` started does.
    hangup: Option<unix::Signal>,
}

impl Signals {
    /// Catches the signals from now on.
    pub(crate) fn new() -> io::Result<Self> {
        // A handler stays for the life of the process: without one, these end it.
        drop(signal(SignalKind::user_defined1())?);
        drop(signal(SignalKind::user_defined2())?);
        let ignores_hangup = ignored_signals().is_some_and(|signals| signals & 1 == 1);
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: (!ignores_hangup).then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    /// Waits for a signal.
    pub(crate) async fn next(&mut self) -> Signal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            () = hangup => Signal::Hangup,
        }
    }
}

/// Lets the process open as many files as it may: each connection is one, and the usual limit of
/// 1024 is for programs that use `select`.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files was not raised");
    }
}

/// The signals that the process ignores, one bit each from SIGHUP, where the system tells.
fn ignored_signals() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}
