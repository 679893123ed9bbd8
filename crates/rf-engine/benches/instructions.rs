//! The workloads that `cargo xtask instructions` runs under callgrind.
//!
//! Each workload passes `counted` once; callgrind counts what happens inside. The program prints a
//! line per workload: its name, a tab, and the number of tokens by which the count is divided. One
//! thread and a fixed ISA make the counts the same on every machine. With the arguments `PART
//! PARTS` it runs only every `PARTS`th workload, from `PART` on, so that several processes share
//! the work.
//!
//! Valgrind is called directly. The crates gungraun and iai-callgrind need a runner binary of the
//! same version, which every CI run would have to build; here one bench and a short parser of
//! callgrind's output suffice.

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;

use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_engine::{Engine, EngineOptions, Model, Outputs, SequenceInput, Session};
use rf_graph::{Backend, Executor, Output, RowKind};
use rf_oracle::case::{Case, CaseBatch, cases};

/// The conformance cases that are counted, by the start and the end of their names: every format
/// and every op, each in few shapes.
const CASES: [(&str, &str); 17] = [
    ("add", ""),
    ("attention/head-dim-128/", ""),
    ("attention/long/", ""),
    ("attention/rope/", ""),
    ("combine_experts", ""),
    ("embed/F16/256/", ""),
    ("embed/Q4_K/", ""),
    ("embed/Q8_0/256/", ""),
    ("expert_matmul/", ""),
    ("glu/", ""),
    ("matmul/", "/64x768"),
    ("matmul/", "/large"),
    ("rms_norm/1024", ""),
    ("rope/Neox", ""),
    ("route/", ""),
    ("scale", ""),
    ("select_rows", ""),
];

/// Tokens of the demo model's prompt.
const PROMPT_TOKENS: u32 = 64;

/// Tokens that the demo model decodes.
const DECODED_TOKENS: u32 = 8;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let isa: Isa = "avx2".parse()?;
    let backend = CpuBackend::new(CpuOptions::default().with_threads(1).with_isa(isa))?;
    let (mut next, parts) = part()?;
    let mut is_next = || {
        next = next.checked_sub(1).unwrap_or(parts - 1);
        next == parts - 1
    };
    let cases = cases();
    for (start, end) in CASES {
        let matches = |case: &&Case| case.name().starts_with(start) && case.name().ends_with(end);
        if !cases.iter().any(|case| matches(&case)) {
            return Err(format!("no conformance case {start}…{end}").into());
        }
        for case in cases.iter().filter(matches).filter(|_| is_next()) {
            run_case(case, &backend)?;
        }
    }
    if is_next() {
        run_demo_model(&backend)?;
    }
    Ok(())
}

/// The part of the workloads to run, and the number of parts.
fn part() -> Result<(usize, usize), Box<dyn Error>> {
    // `cargo bench` passes `--bench`.
    let arguments: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.as_slice() {
        [] => Ok((0, 1)),
        [part, parts] => match (part.parse()?, parts.parse()?) {
            (part, parts) if part < parts => Ok((part, parts)),
            _ => Err(format!("there is no part {part} of {parts}").into()),
        },
        _ => Err("usage: instructions [PART PARTS]".into()),
    }
}

/// Calls `run`. The function is never inlined, so that callgrind finds it by its name.
#[inline(never)]
fn counted(run: &mut dyn FnMut() -> Outcome) -> Outcome {
    black_box(run())
}

/// Counts one workload.
fn count(name: &str, tokens: usize, mut run: impl FnMut() -> Outcome) -> Outcome {
    counted(&mut run)?;
    writeln!(io::stdout(), "{name}\t{tokens}")?;
    Ok(())
}

/// Counts the batches of a case with the fewest and the most tokens, after a run of all of them
/// that leaves nothing to be initialised.
fn run_case(case: &Case, backend: &CpuBackend) -> Outcome {
    let program = case.program().fused_for(backend);
    let output = program.graph.value(program.graph.output());
    let (rows, width) = (output.rows, output.width);
    let mut executor = backend.compile(program, &mut |_| ())?;
    for batch in case.batches() {
        forward(&mut *executor, batch, rows, width)?;
    }
    let sizes = case.batches().iter().map(tokens);
    let (Some(fewest), Some(most)) = (sizes.clone().min(), sizes.max()) else { return Ok(()) };
    let mut counted = Vec::new();
    for batch in case.batches() {
        let tokens = tokens(batch);
        if (tokens == fewest || tokens == most) && !counted.contains(&tokens) {
            counted.push(tokens);
            let name = format!("{}, {tokens} tokens", case.name());
            count(&name, 1, || forward(&mut *executor, batch, rows, width))?;
        }
    }
    Ok(())
}

fn tokens(batch: &CaseBatch) -> usize {
    batch.with(|batch| batch.ids.len())
}

fn forward(executor: &mut dyn Executor, batch: &CaseBatch, rows: RowKind, width: usize) -> Outcome {
    batch.with(|batch| {
        let rows = match rows {
            RowKind::Token => batch.ids.len(),
            RowKind::Output => batch.output_rows.len(),
        };
        executor.forward(batch, Output::rows(&mut vec![0.0; rows * width]))?;
        Ok(())
    })
}

/// Counts the instructions per token of a prompt and of decoding.
fn run_demo_model(backend: &CpuBackend) -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rocmforge/demo/stories-7m-Q8_0.gguf");
    let options = EngineOptions::default().with_context_tokens(Some(128));
    let mut engine = Engine::load(Model::open(path)?, backend, options, &mut |_| ())?;
    let prompt: Vec<u32> = (0..PROMPT_TOKENS).map(|i| 7 + i).collect();

    let mut session = engine.session();
    feed(&mut engine, &mut session, &prompt)?;
    drop(session);
    let mut session = engine.session();
    count("demo model, prefill, per token", prompt.len(), || {
        feed(&mut engine, &mut session, &prompt)
    })?;
    count("demo model, decode, per token", DECODED_TOKENS as usize, || {
        (0..DECODED_TOKENS).try_for_each(|i| feed(&mut engine, &mut session, &[100 + i]))
    })
}

fn feed(engine: &mut Engine, session: &mut Session, ids: &[u32]) -> Outcome {
    engine.forward(&mut [SequenceInput { session, ids, outputs: Outputs::Last }])?;
    Ok(())
}
