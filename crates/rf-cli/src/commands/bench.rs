//! `rf-cli bench`: speed, in the columns and fields of llama-bench.

mod record;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rf_cpu::{CpuOptions, Isa};
use rf_engine::{EngineOptions, Feed, Model, Outputs, Session};
use rf_graph::KvType;

use self::record::{Printer, Record, Setup, Test};
use crate::args;
use crate::device::{DeviceArgs, GpuLayers, Placement};
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::loading::{Loaded, Source};
use crate::{loading, terminal};

/// Arguments of `rf-cli bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Options take several values, separated by commas or given again, and every combination is measured. \
Tokens are random; tokenising and sampling are not timed. Columns and JSON fields are those of \
llama-bench, so that its readers work; fields for what is not there hold llama-bench's defaults.

Examples:
  rf-cli bench -m model.gguf
  rf-cli bench -m a.gguf -m b.gguf -p 512,2048 -n 128 -t 4,8
  rf-cli bench -m model.gguf -d 0,4096 -r 3 -o json")]
pub(crate) struct BenchArgs {
    /// Model files; without one the built-in demo model
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    model: Vec<PathBuf>,
    /// Prompt lengths to measure; 0 for none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_value = "512")]
    n_prompt: Vec<usize>,
    /// Numbers of tokens to generate; 0 for none
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "128")]
    n_gen: Vec<usize>,
    /// A prompt and tokens after it, measured together (-pg; repeatable)
    #[arg(long, value_name = "PP,TG", value_parser = prompt_gen)]
    prompt_gen: Vec<(usize, usize)>,
    /// Tokens that are in the context already
    #[arg(short = 'd', long, value_name = "N", value_delimiter = ',', default_value = "0")]
    n_depth: Vec<usize>,
    /// Sequences that generate together, one token of each at a time; the speed is that of all (-npl)
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    n_parallel: Vec<usize>,
    /// Repetitions of each test
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    repetitions: usize,
    /// Threads; as many as there are cores if left out
    #[arg(short, long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    threads: Vec<i64>,
    /// Tokens computed at once, at most
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "2048")]
    batch_size: Vec<usize>,
    /// The same limit under llama.cpp's other name: the smaller one counts (-ub)
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "512")]
    ubatch_size: Vec<usize>,
    #[arg(help = "Format of the KV cache: f32, f16, q8_0 or fp8 (-ctk)")]
    #[arg(long, visible_alias = "cache-type", value_name = "TYPE", value_delimiter = ',', default_value = "f16", value_parser = args::kv_type)]
    cache_type_k: Vec<KvType>,
    /// Has to be the same as --cache-type-k (-ctv)
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = args::kv_type)]
    cache_type_v: Vec<KvType>,
    /// Instruction set to use instead of the best one
    #[arg(long, value_name = "NAME")]
    tier: Option<Isa>,
    /// How to print results: a Markdown table, a JSON array, a JSON object per line, or CSV
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Md)]
    output: Format,
    /// Leave out the run before the measured ones
    #[arg(long)]
    no_warmup: bool,
    /// Say on stderr what is being measured
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Md,
    Json,
    Jsonl,
    Csv,
}

/// Runs `rf-cli bench`.
pub(crate) fn bench(arguments: &BenchArgs) -> Result<()> {
    arguments.check()?;
    let tests = arguments.tests();
    let mut out = io::stdout().lock();
    let mut printer = Printer::new(arguments.output, &arguments.varied());
    printer.start(&mut out)?;
    for path in arguments.models() {
        for setup in arguments.setups()? {
            let cpu = CpuOptions { threads: setup.threads, isa: arguments.tier };
            let placement = arguments.device.open(cpu)?;
            let mut runner = Runner::load(path, &placement, setup, &tests)?;
            for &test in &tests {
                if arguments.progress {
                    terminal::note(format_args!("measuring {} of {}", test.name(), runner.name));
                }
                let samples_ns =
                    runner.measure(test, arguments.repetitions, !arguments.no_warmup)?;
                let record = Record::new(&runner.loaded, &runner.name, setup, test, samples_ns);
                printer.row(&mut out, &record)?;
            }
        }
    }
    printer.finish(&mut out)?;
    Ok(())
}

impl BenchArgs {
    fn check(&self) -> Result<()> {
        if self.repetitions == 0 {
            return Err(bad_input!("-r 0 measures nothing: give 1 or more"));
        }
        if self.tests().is_empty() {
            return Err(bad_input!(
                "-p 0 and -n 0 leave nothing to measure: give one of them, or -pg"
            ));
        }
        if self.n_parallel.contains(&0) {
            return Err(bad_input!("--n-parallel 0 generates nothing: give 1 or more"));
        }
        let batches = self.batch_size.iter().chain(&self.ubatch_size);
        if batches.min() == Some(&0) {
            return Err(bad_input!("a batch of 0 tokens computes nothing: give 1 or more"));
        }
        if !self.cache_type_v.is_empty() && self.cache_type_v != self.cache_type_k {
            return Err(bad_input!(
                "keys and values are stored in one format: give -ctk and -ctv the same"
            ));
        }
        Ok(())
    }

    fn models(&self) -> Vec<Option<&Path>> {
        if self.model.is_empty() {
            vec![None]
        } else {
            self.model.iter().map(|path| Some(path.as_path())).collect()
        }
    }

    /// Every combination of what needs a new engine.
    fn setups(&self) -> Result<Vec<Setup>> {
        let mut setups = Vec::new();
        let given = self.threads.iter().map(|&count| args::threads(Some(count)));
        let mut threads = given.collect::<Result<Vec<_>>>()?;
        if threads.is_empty() {
            threads.push(None);
        }
        for &n_batch in &self.batch_size {
            for &n_ubatch in &self.ubatch_size {
                for &kv_type in &self.cache_type_k {
                    for &threads in &threads {
                        setups.push(Setup { threads, n_batch, n_ubatch, kv_type });
                    }
                }
            }
        }
        Ok(setups)
    }

    /// Prompts first, then generation, then both: llama-bench's order. Prompts are of one sequence.
    fn tests(&self) -> Vec<Test> {
        let prompts = self.n_prompt.iter().map(|&n_prompt| (n_prompt, 0));
        let prompts = prompts.map(|(n_prompt, n_gen)| (n_prompt, n_gen, 1));
        let gens = self
            .n_parallel
            .iter()
            .flat_map(|&n_parallel| self.n_gen.iter().map(move |&n_gen| (0, n_gen, n_parallel)));
        let both = self.prompt_gen.iter().map(|&(n_prompt, n_gen)| (n_prompt, n_gen, 1));
        let counts: Vec<_> = prompts
            .chain(gens)
            .chain(both)
            .filter(|&(prompt, gen_, _)| prompt + gen_ > 0)
            .collect();
        let at = |n_depth| {
            counts.iter().map(move |&(n_prompt, n_gen, n_parallel)| Test {
                n_prompt,
                n_gen,
                n_depth,
                n_parallel,
            })
        };
        self.n_depth.iter().flat_map(|&depth| at(depth)).collect()
    }

    /// The columns that a table shows because their values are not the default ones.
    fn varied(&self) -> Vec<&'static str> {
        let mut columns = Vec::new();
        let mut add = |column, varied: bool| columns.extend(varied.then_some(column));
        add("n_batch", self.batch_size != [2048]);
        add("n_ubatch", self.ubatch_size != [512]);
        add("type_k", self.cache_type_k != [KvType::F16]);
        add("type_v", self.cache_type_k != [KvType::F16]);
        add("ngl", self.device.gpu_layers != GpuLayers::Auto);
        columns
    }
}

/// `512,128`.
fn prompt_gen(text: &str) -> Result<(usize, usize), &'static str> {
    const EXPECTED: &str = "expected two numbers, as in 512,128";
    let (prompt, gen_) = text.split_once(',').ok_or(EXPECTED)?;
    let number = |text: &str| text.trim().parse().map_err(|_| EXPECTED);
    Ok((number(prompt)?, number(gen_)?))
}

/// A loaded model and the random tokens it gets.
struct Runner {
    loaded: Loaded,
    /// As many as any test has.
    sessions: Vec<Session>,
    /// The path, as llama-bench prints it.
    name: String,
    random: u64,
}

impl Runner {
    fn load(
        path: Option<&Path>,
        placement: &Placement,
        setup: Setup,
        tests: &[Test],
    ) -> Result<Self> {
        let started = Instant::now();
        let model = Model::from_gguf(loading::open_gguf(path)?)?;
        let sequences = tests.iter().map(|test| test.n_parallel).max().unwrap_or(1);
        let longest = tests.iter().map(|test| test.n_depth + test.n_prompt + test.n_gen).max();
        let options = EngineOptions {
            context_tokens: longest,
            batch_tokens: setup.n_batch.min(setup.n_ubatch),
            kv_type: setup.kv_type,
            max_sequences: sequences,
            ..EngineOptions::default()
        };
        let source = Source { path, started, quiet: false };
        let loaded = loading::load(model, placement, options, source)?;
        let sessions = (0..sequences).map(|_| loaded.engine.session()).collect();
        let name = path.map_or_else(|| "built-in".to_owned(), |path| path.display().to_string());
        Ok(Self { loaded, sessions, name, random: 1 })
    }

    /// Nanoseconds of each repetition.
    fn measure(&mut self, test: Test, repetitions: usize, warm_up: bool) -> Result<Vec<u64>> {
        let watch = Watch::new();
        self.sessions.iter_mut().for_each(Session::reset);
        for sequence in 0..test.n_parallel {
            self.prompt(sequence, test.n_depth, &watch)?;
        }
        if warm_up {
            if test.n_prompt > 0 {
                self.prompt(0, test.n_prompt, &watch)?;
            }
            if test.n_gen > 0 {
                self.generate(test.n_parallel, 1, &watch)?;
            }
        }
        let mut samples_ns = Vec::with_capacity(repetitions);
        for _ in 0..repetitions {
            self.sessions.iter_mut().for_each(|session| session.truncate(test.n_depth));
            let started = Instant::now();
            self.prompt(0, test.n_prompt, &watch)?;
            self.generate(test.n_parallel, test.n_gen, &watch)?;
            samples_ns.push(started.elapsed().as_nanos().try_into().unwrap_or(u64::MAX).max(1));
        }
        Ok(samples_ns)
    }

    /// Feeds random tokens to a sequence batch by batch; logits are computed for the last one of each.
    fn prompt(&mut self, sequence: usize, mut tokens: usize, watch: &Watch) -> Result<()> {
        while tokens > 0 {
            let count = tokens.min(self.loaded.engine.batch_tokens());
            let ids: Vec<u32> = (0..count).map(|_| self.random_id()).collect();
            self.feed(sequence..sequence + 1, &[ids], watch)?;
            tokens -= count;
        }
        Ok(())
    }

    /// Feeds the first sequences one random token each, so many times.
    fn generate(&mut self, sequences: usize, tokens: usize, watch: &Watch) -> Result<()> {
        for _ in 0..tokens {
            let ids: Vec<_> = (0..sequences).map(|_| vec![self.random_id()]).collect();
            self.feed(0..sequences, &ids, watch)?;
        }
        Ok(())
    }

    fn feed(&mut self, sequences: Range<usize>, ids: &[Vec<u32>], watch: &Watch) -> Result<()> {
        if watch.requested() {
            return Err(Interrupted.into());
        }
        let sessions = self.sessions[sequences].iter_mut();
        let mut feeds: Vec<_> = sessions
            .zip(ids)
            .map(|(session, ids)| Feed { session, ids, outputs: Outputs::Last })
            .collect();
        self.loaded.engine.forward(&mut feeds)?;
        Ok(())
    }

    /// Knuth's MMIX generator: speed does not depend on how random the ids are.
    fn random_id(&mut self) -> u32 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let vocab_size = self.loaded.engine.model().config().vocab_size as u64;
        ((self.random >> 33) % vocab_size) as u32
    }
}
