//! Server processes: this engine's and llama.cpp's.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::client::{self, Client};
use super::load::Load;
use crate::{Error, Interrupt};

/// Time that a server has to load its model.
const START_TIMEOUT: Duration = Duration::from_mins(15);

/// Interval at which a starting server is asked whether it is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Last lines of a server's log that an error shows.
const LOG_LINES: usize = 5;

/// Layers to offload to a GPU, more than any model has.
const ALL_LAYERS: &str = "999";

/// The programs to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The `rf-cli` of this engine.
    pub own: PathBuf,
    /// A `llama-server`.
    pub peer: Option<PathBuf>,
}

/// Options of a comparison, equal for both servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Runs of every load on every server.
    pub repetitions: usize,
    /// CPU threads.
    pub threads: usize,
    /// The GPU computes if true, otherwise the CPU.
    pub gpu: bool,
    /// Sequences that are computed at a time.
    pub slots: usize,
    /// Longest sequence in tokens.
    pub sequence_tokens: usize,
    /// The JSON schema that answers must fit. It must allow answers as long as asked.
    pub json_schema: Option<Value>,
}

impl ServerOptions {
    /// Options with room for every request of these loads, each run once.
    pub fn new(threads: usize, gpu: bool, loads: &[Load]) -> Self {
        let slots = loads.iter().map(|load| load.arrivals.slots(load.requests).min(load.requests));
        let tokens = loads.iter().map(Load::tokens);
        Self {
            repetitions: 1,
            threads,
            gpu,
            slots: slots.max().unwrap_or(1),
            sequence_tokens: tokens.max().unwrap_or(1) + SPARE_TOKENS,
            json_schema: None,
        }
    }
}

/// Tokens beyond a request that a sequence has room for, because a server may add a few tokens.
const SPARE_TOKENS: usize = 16;

/// A running server. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) client: Client,
    _log_folder: TempDir,
}

impl Server {
    /// Starts `rf-cli serve`.
    pub(super) fn start_own(
        program: &Path,
        model: &Path,
        options: &ServerOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg("serve").arg("-m").arg(model);
        command.args(["--device", if options.gpu { "gpu" } else { "cpu" }]);
        command.args(["-c", &options.sequence_tokens.to_string()]);
        command.args(["--max-num-seqs", &options.slots.to_string()]);
        command.args(["--kv-size", &(options.slots * options.sequence_tokens).to_string()]);
        Self::start(command, program, options, interrupt)
    }

    /// Starts `llama-server`. Its context is shared by the slots.
    pub(super) fn start_llama(
        program: &Path,
        model: &Path,
        options: &ServerOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg("-m").arg(model);
        command.args(["-ngl", if options.gpu { ALL_LAYERS } else { "0" }]);
        command.args(["-c", &(options.slots * options.sequence_tokens).to_string()]);
        command.args(["-np", &options.slots.to_string()]);
        Self::start(command, program, options, interrupt)
    }

    fn start(
        mut command: Command,
        program: &Path,
        options: &ServerOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let at = |source| Error::io(format_args!("start '{}'", program.display()), source);
        let log_folder = tempfile::tempdir().map_err(at)?;
        let log_path = log_folder.path().join("log");
        let log = File::create(&log_path).map_err(at)?;
        let port = free_port().map_err(at)?;
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["-t", &options.threads.to_string()]);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(at)?).stderr(log);
        // Ctrl-C reaches the comparison alone, which ends its servers.
        let mut child = command.process_group(0).spawn().map_err(at)?;
        let url = format!("http://127.0.0.1:{port}");
        let schema = options.json_schema.clone();
        let ready = wait(&mut child, &url, interrupt);
        match ready.and_then(|()| Client::connect(client::agent(), url, schema)) {
            Ok(client) => Ok(Self { child, client, _log_folder: log_folder }),
            Err(error) => {
                end(&mut child);
                let Error::Server { reason, .. } = error else { return Err(error) };
                let log = fs::read_to_string(&log_path).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
                let url = program.display().to_string();
                Err(Error::Server { url, reason: format!("{reason}; its log ends with\n{last}") })
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a process. An error means that it ended before.
fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

/// A port that is free at the moment.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Waits until the server has loaded its model.
fn wait(child: &mut Child, url: &str, interrupt: &Interrupt) -> Result<(), Error> {
    let failed = |reason: String| Error::Server { url: url.to_owned(), reason };
    let agent = client::agent();
    let start = Instant::now();
    loop {
        let ready = agent.get(format!("{url}/health")).call();
        if ready.is_ok_and(|response| response.status().is_success()) {
            return Ok(());
        }
        let ended = child.try_wait().map_err(|source| Error::io("wait for a server", source))?;
        if let Some(status) = ended {
            return Err(failed(format!("it ended with {status}")));
        }
        if interrupt.is_requested() {
            return Err(Error::Interrupted);
        }
        if start.elapsed() > START_TIMEOUT {
            return Err(failed(format!("not ready after {} s", START_TIMEOUT.as_secs())));
        }
        thread::sleep(POLL_INTERVAL);
    }
}
