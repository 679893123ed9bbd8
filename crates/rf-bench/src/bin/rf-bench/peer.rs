//! `--peer`: measures this engine and another one in turns, A B A B, each time in a fresh process.
//!
//! Each process loads the model, warms up, and times one prompt and one generation. Machines drift
//! by more than engines differ, so the result is the ratio of adjacent runs, with its range.

mod install;
mod programs;
mod report;

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use rf_bench::model::ModelFile;
use rf_engine::{Engine, EngineOptions, SyntheticFeeder};
use serde::{Deserialize, Serialize};

use self::{programs::Programs, report::Comparison};
use crate::{
    interrupt::Interrupt,
    machine,
    options::{Format, Options},
    output,
};

/// Largest batch in tokens, equal to llama.cpp's default physical batch.
const BATCH_TOKENS: usize = 512;

/// Tokens of the warm-up before a generation.
const WARM_UP_TOKENS: usize = 8;

/// The test that both engines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Test {
    prompt_tokens: usize,
    generated_tokens: usize,
    depth_tokens: usize,
    threads: usize,
    repetitions: usize,
}

/// The throughput that one process measured. Both sides print it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Speeds {
    /// Name and version of the engine.
    program: String,
    /// Instruction sets that the engine is built with or uses.
    features: String,
    prompt_tokens_per_s: Option<f64>,
    decode_tokens_per_s: Option<f64>,
}

/// Measures both engines and prints the ratios. The exit code is 0, or 130 after Ctrl-C, which ends
/// the comparison after the current repetition.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let test = Test::of(options)?;
    if matches!(options.format, Format::Html) {
        bail!("--peer has no HTML report; use --format table, json or csv");
    }
    let models: Vec<ModelFile> = match &options.model[..] {
        [] => vec![ModelFile::new(root, None)],
        given => given.iter().map(|path| ModelFile::new(root, Some(path))).collect(),
    };
    for model in &models {
        model.open()?;
    }
    let programs = Programs::find(root, options)?;
    let interrupt = Interrupt::new();
    let mut progress = Progress { is_on: io::stderr().is_terminal() };
    let mut comparisons = Vec::new();
    'models: for model in &models {
        let mut comparison = Comparison::new(model.name(), test);
        for repetition in 1..=test.repetitions {
            progress.show(format_args!("{}: {repetition}/{}", model.name(), test.repetitions));
            if interrupt.requested() {
                comparisons.push(comparison);
                break 'models;
            }
            let ours = programs.measure_own(&model.path, test)?;
            let theirs = programs.measure_peer(&model.path, test)?;
            comparison.add(ours, theirs);
        }
        comparisons.push(comparison);
    }
    progress.clear();
    let was_interrupted = interrupt.requested();
    comparisons.retain(|comparison| !comparison.pairs.is_empty());
    let hardware = machine::hardware(options, &machine::open(options)?)?;
    let text = match options.format {
        Format::Json => report::json(&comparisons, &hardware)?,
        Format::Csv => report::csv(&comparisons)?,
        Format::Table | Format::Html => report::table(&comparisons, &hardware),
    };
    output::write(options.output.as_deref(), &text)?;
    if was_interrupted {
        output::note("ended by Ctrl-C; the output has the complete repetitions");
        return Ok(ExitCode::from(output::INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures this engine once and prints its [`Speeds`].
pub(crate) fn run_self(root: &Path, options: &Options) -> Result<ExitCode> {
    let test = Test::of(options)?;
    let model = ModelFile::new(root, options.model.first().map(std::path::PathBuf::as_path));
    let engine_options = EngineOptions {
        context_tokens: Some(test.depth_tokens + test.prompt_tokens.max(test.generated_tokens)),
        batch_tokens: BATCH_TOKENS,
        ..EngineOptions::default()
    };
    let device = machine::open(options)?;
    let mut feeder = SyntheticFeeder::new(
        Engine::load(model.open()?, device.backend(), engine_options, &mut |_| ())?,
        1,
    );
    feeder.prompt(0, test.depth_tokens)?;
    let mut speed =
        |tokens: usize,
         warm_up: usize,
         run: &dyn Fn(&mut SyntheticFeeder, usize) -> Result<(), rf_engine::Error>| {
            if tokens == 0 {
                return Ok(None);
            }
            feeder.truncate(test.depth_tokens);
            run(&mut feeder, warm_up)?;
            feeder.truncate(test.depth_tokens);
            let start = std::time::Instant::now();
            run(&mut feeder, tokens)?;
            anyhow::Ok(Some(tokens as f64 / start.elapsed().as_secs_f64()))
        };
    let prompt = |feeder: &mut SyntheticFeeder, tokens| feeder.prompt(0, tokens);
    let generate =
        |feeder: &mut SyntheticFeeder, tokens| (0..tokens).try_for_each(|_| feeder.step(1));
    let (pp, tg) = (test.prompt_tokens, test.generated_tokens);
    let speeds = Speeds {
        program: format!("ROCmForge {}", machine::revision(root)),
        features: device.backend().description(),
        prompt_tokens_per_s: speed(pp, pp, &prompt)?,
        decode_tokens_per_s: speed(tg, tg.min(WARM_UP_TOKENS), &generate)?,
    };
    writeln!(io::stdout().lock(), "{}", serde_json::to_string(&speeds)?)?;
    Ok(ExitCode::SUCCESS)
}

impl Test {
    fn of(options: &Options) -> Result<Self> {
        let peer = &options.peer;
        if peer.prompt == 0 && peer.generate == 0 {
            bail!("-p 0 and -n 0 leave nothing to measure; give one of them");
        }
        // Both engines get the same number; llama.cpp's default differs.
        let threads = match options.threads {
            Some(threads) => threads,
            None => machine::open(options)?.threads().unwrap_or(1),
        };
        Ok(Self {
            prompt_tokens: peer.prompt,
            generated_tokens: peer.generate,
            depth_tokens: peer.depth,
            threads,
            repetitions: peer.repetitions,
        })
    }
}

impl Speeds {
    /// Parses the last non-empty line of a program's output.
    fn parse(text: &str, program: &str) -> Result<Self> {
        let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        serde_json::from_str(line)
            .with_context(|| format!("cannot read the speeds of {program} from '{line}'"))
    }
}

/// A progress line on stderr, rewritten in place; off where stderr is no terminal.
struct Progress {
    is_on: bool,
}

impl Progress {
    fn show(&mut self, text: std::fmt::Arguments<'_>) {
        if self.is_on {
            // An error on stderr cannot be reported.
            drop(write!(io::stderr().lock(), "\r\x1b[K{text}"));
        }
    }

    fn clear(&mut self) {
        self.show(format_args!(""));
    }
}
