//! `cargo xtask bench serve`: builds a benchmark of servers from the command line and runs it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use rf_bench::model::ModelFile;
use rf_bench::serve::{self, Arrivals, Load, Programs, ServerOptions};
use rf_bench::{Target, html};
use rf_profile::baseline::Hardware;
use serde_json::Value;

use crate::options::{BackendName, OutputFormat, at_least_one};
use crate::output;
use crate::terminal::{self, TerminalBar};

/// Options of a benchmark of servers.
#[derive(Args, Debug)]
#[command(
    about = "Measure `rf-cli serve` under load, alternating with llama-server",
    after_help = "\
Both servers get the same prompts of random tokens. Answers are greedy and have their full length.
TTFT counts from the time at which a request was due, so an open loop includes the queue.

Exit code: 0 measured; 2 an error; 130 ended by Ctrl-C, complete runs are printed.

Examples:
  cargo xtask bench serve
  cargo xtask bench serve --model model.gguf --load 1,8,32 --peer-server path/to/llama-server
  cargo xtask bench serve --model model.gguf --load 0.5/s --requests 60
  cargo xtask bench serve --model model.gguf --shared-prefix 2000 --prompt 32 --generate 16
  cargo xtask bench serve --load 1,4,16 --format html --output load.html
  cargo xtask bench serve --json-schema '{\"type\": \"array\", \"minItems\": 1000}'"
)]
pub(crate) struct ServeOptions {
    /// Serve the model FILE [default: the demo model]
    #[arg(short, long, value_name = "FILE", env = "ROCFORGE_TEST_MODEL", hide_env_values = true)]
    model: Option<PathBuf>,
    /// Apply these loads, separated by commas: a number of clients, or requests per second as in
    /// 0.5/s
    #[arg(short, long, value_name = "LOAD,…", value_delimiter = ',', default_value = "1,8")]
    load: Vec<Arrivals>,
    /// Send N requests per run [default: two for each client, at least 4]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    requests: Option<usize>,
    /// Send prompts of N tokens after the shared ones
    #[arg(short, long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    prompt: usize,
    /// Begin the prompts of a run with N shared tokens
    #[arg(long, value_name = "N", default_value_t = 0)]
    shared_prefix: usize,
    /// Generate N tokens per answer
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128, value_parser = at_least_one)]
    generate: usize,
    /// Run every load N times on each server, alternating the servers
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    repetitions: usize,
    /// Constrain answers to this JSON schema, which must allow answers of N tokens
    #[arg(long, value_name = "SCHEMA", value_parser = json)]
    json_schema: Option<Value>,
    /// Measure this backend
    #[arg(long, alias = "device", value_enum, value_name = "BACKEND", default_value_t = BackendName::Cpu)]
    backend: BackendName,
    /// Use N CPU threads [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    threads: Option<usize>,
    /// Measure the rf-cli PROGRAM [default: the one in the folder of this program, which `cargo
    /// xtask` builds]
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,
    /// Also measure the llama-server PROGRAM, alternating with rf-cli
    #[arg(long, value_name = "PROGRAM")]
    peer_server: Option<PathBuf>,
    /// Print the results in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Table)]
    format: OutputFormat,
    /// Write the results to FILE instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Fewest requests of a run by default.
const MIN_REQUESTS: usize = 4;

/// Requests of a run for each client by default.
const REQUESTS_PER_CLIENT: usize = 2;

/// Requests of a run of an open loop by default.
const OPEN_LOOP_REQUESTS: usize = 32;

/// Measures the servers and prints the results.
pub(crate) fn run(root: &Path, options: &ServeOptions) -> Result<ExitCode> {
    let model = ModelFile::new(root, options.model.as_deref());
    let gpu = options.backend == BackendName::Gpu;
    let (hardware, threads) = options.machine()?;
    let loads: Vec<Load> = options.load.iter().map(|load| options.load(*load)).collect();
    let server = ServerOptions {
        repetitions: options.repetitions,
        json_schema: options.json_schema.clone(),
        ..ServerOptions::new(threads, gpu, &loads)
    };
    let programs = Programs { own: own(options)?, peer: options.peer_server.clone() };
    let interrupt = terminal::interrupt_by_ctrl_c(2);
    let bar = TerminalBar::new();
    let compared =
        serve::compare(&programs, &model, &loads, &server, &interrupt, &mut |progress| {
            bar.show(progress);
        });
    bar.clear();
    let comparisons = compared?;
    let text = match options.format {
        OutputFormat::Json => serve::json(&comparisons, &model.name(), &server, &hardware)?,
        OutputFormat::Csv => serve::csv(&comparisons)?,
        OutputFormat::Html => html::render_loads(&comparisons, &model.name(), &server, &hardware)?,
        OutputFormat::Table => serve::table(&comparisons, &model.name(), &server, &hardware),
    };
    output::write(options.output.as_deref(), &text)?;
    if interrupt.is_requested() {
        output::note("ended by Ctrl-C; the output has the complete runs");
        return Ok(ExitCode::from(output::INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

impl ServeOptions {
    /// The hardware and the CPU threads of the servers. The backend is closed again: the servers
    /// open their own.
    fn machine(&self) -> Result<(Hardware, usize)> {
        let target = match self.backend {
            BackendName::Gpu => Target::gpu(None).context("--backend gpu is not available")?,
            BackendName::Cpu => Target::cpu(self.threads, None)?,
        };
        let threads = target.threads().or(self.threads).unwrap_or(1);
        Ok((target.hardware(), threads))
    }

    fn load(&self, arrivals: Arrivals) -> Load {
        let requests = self.requests.unwrap_or(match arrivals {
            Arrivals::Concurrency(clients) => MIN_REQUESTS.max(REQUESTS_PER_CLIENT * clients),
            Arrivals::Rate(_) => OPEN_LOOP_REQUESTS,
        });
        Load {
            arrivals,
            requests,
            shared_tokens: self.shared_prefix,
            prompt_tokens: self.prompt,
            generated_tokens: self.generate,
        }
    }
}

/// Parses JSON. Without it clap would take any text as a JSON string.
fn json(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

/// The rf-cli to measure.
fn own(options: &ServeOptions) -> Result<PathBuf> {
    if let Some(program) = &options.server {
        return Ok(program.clone());
    }
    let beside = env::current_exe().context("path of this program")?.with_file_name("rf-cli");
    if !beside.exists() {
        bail!(
            "there is no rf-cli beside this program; build it with `cargo build --release -p rf-cli`, \
             or name one with --server"
        );
    }
    Ok(beside)
}
