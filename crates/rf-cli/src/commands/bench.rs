//! `rf-cli bench`: measures throughput, with the columns and fields of llama-bench.

mod numbers;
mod record;
mod text;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use rf_profile::baseline::Hardware;
use rf_profile::plot;
use rocmforge::device::{CpuOptions, GpuLayers, Isa, LayerPlacement};
use rocmforge::engine::{KvType, SyntheticFeeder};
use rocmforge::hub::ModelName;
use rocmforge::{Drafts, LoadedModel, Purpose};

use self::numbers::{Numbers, counts, prompt_gen};
use self::record::{DraftCounts, Printer, RecordFormat, ResultRow, Setup, Test};
use self::text::BenchText;
use crate::args::{self, DeviceArgs};
use crate::device::{self, Placement};
use crate::drafts::DraftArgs;
use crate::failure::bad_input;
use crate::hub::{self, Companions};
use crate::interrupt::Watch;
use crate::loading::ModelFile;
use crate::{loading, picture, sources, terminal};

/// Tokens of the warm-up of a test of decode on a GPU: replays 1, 2, 4, … of a captured graph are
/// checked, here those up to 32.
const GPU_WARM_UP_TOKENS: usize = 36;

/// Arguments of `rf-cli bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Measures every combination of the option values. Separate values with commas, or repeat the option. Tokens \
are random; tokenising and sampling are not timed. With -f, bench also decodes real text, with sampling: first \
without drafts, then with the drafts of --spec. The name of the test contains the share of accepted tokens. \
Throughput is in tokens per second (t/s): mean ± standard deviation. Columns and JSON fields are those of \
llama-bench; fields that do not apply hold its defaults.

Examples:
  rf-cli bench -m model.gguf
  rf-cli bench -m a.gguf -m b.gguf -p 512,2048 -n 128 -t 4,8
  rf-cli bench -m model.gguf -d 0,4096 -r 3 -o json
  rf-cli bench -m model.gguf -p 0 -f code.txt --spec ngram")]
pub(crate) struct BenchArgs {
    /// Measure these model files [default: the built-in demo model]
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    model: Vec<PathBuf>,
    /// Measure these models of the Hugging Face hub, downloaded unless they are cached (-hf)
    #[arg(long, value_name = "OWNER/REPO[:QUANT]", value_parser = hub::repository, value_delimiter = ',')]
    hf_repo: Vec<ModelName>,
    /// Measure prefill of N tokens; 0 for none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_value = "512")]
    n_prompt: Vec<Numbers>,
    /// Measure decode of N tokens; 0 for none
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "128")]
    n_gen: Vec<Numbers>,
    /// Measure prefill of PP tokens and decode of TG tokens together (-pg; repeatable)
    #[arg(long, value_name = "PP,TG", value_parser = prompt_gen)]
    prompt_gen: Vec<(usize, usize)>,
    /// Measure at depth N: with N tokens in the context
    #[arg(short = 'd', long, value_name = "N", value_delimiter = ',', default_value = "0")]
    n_depth: Vec<Numbers>,
    /// Decode N sequences as one batch and report their total throughput (-npl)
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    n_parallel: Vec<Numbers>,
    /// Also measure decode after the text in FILE, without and with the drafts of --spec
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Repeat each test N times
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    repetitions: usize,
    /// Compute with N CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", value_delimiter = ',')]
    threads: Vec<Numbers>,
    /// Process a prompt N tokens at a time
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "2048")]
    batch_size: Vec<Numbers>,
    /// Process at most N tokens per batch, as llama.cpp's -ub. The smaller of -b and -ub applies
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "512")]
    ubatch_size: Vec<Numbers>,
    #[arg(help = "Store the KV cache as f32, f16, q8_0, fp8, q5_0 or q4_0 (-ctk)")]
    #[arg(long, visible_alias = "cache-type", value_name = "TYPE", value_delimiter = ',', default_value = "f16", value_parser = args::kv_type)]
    cache_type_k: Vec<KvType>,
    /// Store values in this format, which must be the format of the keys (-ctv)
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = args::kv_type)]
    cache_type_v: Vec<KvType>,
    /// Compute with ISA instead of the best available one. --version lists the ISAs of this CPU
    #[arg(long, visible_alias = "tier", value_name = "ISA")]
    isa: Option<Isa>,
    /// Print a Markdown table, a JSON array, a JSON object per line, or CSV
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = RecordFormat::Md)]
    output: RecordFormat,
    /// Draw the throughput of all tests to FILE, an SVG picture; - draws it with characters on
    /// stderr
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Skip the warm-up run
    #[arg(long)]
    no_warmup: bool,
    /// Print the name of each test on stderr
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    drafts: DraftArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Runs `rf-cli bench`.
pub(crate) fn bench(arguments: &BenchArgs) -> Result<()> {
    arguments.check()?;
    let mut bars = Vec::new();
    let tests = arguments.tests();
    let mut out = io::stdout().lock();
    let mut printer = Printer::new(arguments.output, &arguments.varied());
    for file in arguments.models()? {
        for setup in arguments.setups()? {
            let cpu = CpuOptions::default().with_threads(setup.threads).with_isa(arguments.isa);
            let placement = device::open(arguments.device.options(cpu))?;
            let mut runner = Runner::load(&file, &placement, setup, arguments)?;
            printer.start(&mut out)?;
            for &test in &tests {
                if arguments.progress {
                    terminal::note(format_args!("measuring {} of {}", test.name(), runner.name));
                }
                let samples_ns =
                    runner.measure(test, arguments.repetitions, !arguments.no_warmup)?;
                let mut record = runner.record(setup, test, samples_ns);
                if arguments.file.is_some() {
                    record = record.with_drafts(DraftCounts::default());
                }
                printer.row(&mut out, &record)?;
                bars.push(record.bar());
            }
            for record in runner.text_records(arguments, setup)? {
                printer.row(&mut out, &record)?;
                bars.push(record.bar());
            }
        }
    }
    printer.finish(&mut out)?;
    if let Some(path) = &arguments.plot {
        let title = format!("Throughput on {}", Hardware::cpu_only().cpu);
        let svg = || plot::bars_svg(&bars, &title, "t/s");
        picture::show(path, svg, |width| plot::bars_text(&bars, "t/s", width))?;
    }
    Ok(())
}

impl BenchArgs {
    fn check(&self) -> Result<()> {
        if let Some(plot) = &self.plot {
            picture::check(plot)?;
            let inputs = self.model.iter().chain(&self.file).map(PathBuf::as_path);
            sources::check_is_no_input(plot, inputs)?;
        }
        if self.repetitions == 0 {
            return Err(bad_input!("-r 0 measures nothing: give 1 or more"));
        }
        if self.tests().is_empty() {
            return Err(bad_input!(
                "-p 0 and -n 0 leave nothing to measure: give one of them, or -pg"
            ));
        }
        if counts(&self.n_parallel).contains(&0) {
            return Err(bad_input!("--n-parallel 0 generates nothing: give 1 or more"));
        }
        let batches = counts(&self.batch_size).into_iter().chain(counts(&self.ubatch_size));
        if batches.min() == Some(0) {
            return Err(bad_input!("a batch needs at least 1 token: give -b and -ub 1 or more"));
        }
        if !self.cache_type_v.is_empty() && self.cache_type_v != self.cache_type_k {
            return Err(bad_input!(
                "different formats of keys and values are not supported: give -ctk and -ctv the same"
            ));
        }
        Ok(())
    }

    /// The files of the models.
    fn models(&self) -> Result<Vec<ModelFile>> {
        if self.model.is_empty() && self.hf_repo.is_empty() {
            return Ok(vec![ModelFile::default()]);
        }
        let files = self.model.iter().map(|path| hub::named(path, Companions::None));
        let fetched = self.hf_repo.iter().map(|name| hub::fetch(name, Companions::None));
        let files = files.chain(fetched);
        files.map(|path| Ok(ModelFile::of_path(Some(path?)))).collect()
    }

    /// Every combination of the options that need a new engine.
    fn setups(&self) -> Result<Vec<Setup>> {
        let mut setups = Vec::new();
        let given = self.threads.iter().flat_map(Numbers::iter);
        let given = given.map(|count| args::threads(Some(count)));
        let mut threads = given.collect::<Result<Vec<_>>>()?;
        if threads.is_empty() {
            threads.push(None);
        }
        for n_batch in counts(&self.batch_size) {
            for n_ubatch in counts(&self.ubatch_size) {
                for &kv_type in &self.cache_type_k {
                    for &threads in &threads {
                        let gpu_layers = self.device.gpu_layers;
                        setups.push(Setup { threads, n_batch, n_ubatch, kv_type, gpu_layers });
                    }
                }
            }
        }
        Ok(setups)
    }

    /// The tests in the order of llama-bench: prefill, decode, both. Prefill has one sequence.
    fn tests(&self) -> Vec<Test> {
        let prompts = counts(&self.n_prompt).into_iter().map(|n_prompt| (n_prompt, 0, 1));
        let n_gen = counts(&self.n_gen);
        let gens = counts(&self.n_parallel);
        let gens = gens
            .iter()
            .flat_map(|&n_parallel| n_gen.iter().map(move |&n_gen| (0, n_gen, n_parallel)));
        let both = self.prompt_gen.iter().map(|&(n_prompt, n_gen)| (n_prompt, n_gen, 1));
        let tests: Vec<_> = prompts
            .chain(gens)
            .chain(both)
            .filter(|&(prompt, gen_, _)| prompt + gen_ > 0)
            .collect();
        let at = |n_depth| {
            tests.iter().map(move |&(n_prompt, n_gen, n_parallel)| Test {
                n_prompt,
                n_gen,
                n_depth,
                n_parallel,
            })
        };
        counts(&self.n_depth).into_iter().flat_map(at).collect()
    }

    /// The longest decode.
    fn most_generated(&self) -> usize {
        counts(&self.n_gen).into_iter().max().unwrap_or(0)
    }

    /// The columns of a table whose values are not the defaults.
    fn varied(&self) -> Vec<&'static str> {
        let mut columns = Vec::new();
        let mut add = |column, varied: bool| columns.extend(varied.then_some(column));
        add("n_batch", counts(&self.batch_size) != [2048]);
        add("n_ubatch", counts(&self.ubatch_size) != [512]);
        add("type_k", self.cache_type_k != [KvType::F16]);
        add("type_v", self.cache_type_k != [KvType::F16]);
        add("ngl", self.device.gpu_layers != GpuLayers::Auto);
        columns
    }
}

/// A loaded model that is fed synthetic tokens.
struct Runner {
    feeder: SyntheticFeeder,
    placement: LayerPlacement,
    /// The text of -f.
    text: Option<BenchText>,
    /// The path, as llama-bench prints it.
    name: String,
    /// Tokens between two outputs of a prompt.
    n_batch: usize,
}

impl Runner {
    fn load(
        file: &ModelFile,
        placement: &Placement,
        setup: Setup,
        arguments: &BenchArgs,
    ) -> Result<Self> {
        let loader = file.loader().purpose(Purpose::Texts);
        let loader = match &arguments.file {
            Some(_) => arguments.drafts.add_to(loader)?,
            None => loader.drafts(Drafts::Off),
        };
        let open = loader.open(&mut |_| ())?;
        open.check_generates()?;
        arguments.drafts.note_heads(&open);
        let text = text::ids(arguments.file.as_deref(), open.model())?;
        let tests = arguments.tests();
        let sequences = tests.iter().map(|test| test.n_parallel).max().unwrap_or(1);
        let lengths = tests.iter().map(|test| test.n_depth + test.n_prompt + test.n_gen);
        let text_len = text.as_ref().map(|ids| ids.len() + arguments.most_generated() + 1);
        let open = open.with(|loader| {
            let loader = loader
                .batch_tokens(setup.n_batch.min(setup.n_ubatch))
                .kv_type(setup.kv_type)
                .sequences(sequences);
            match lengths.chain(text_len).max() {
                Some(tokens) => loader.context_tokens(tokens),
                None => loader,
            }
        });
        let loaded = loading::load(&open, placement, false, &mut |_| ())?;
        let LoadedModel { engine, speculation, layers, .. } = loaded;
        let name = match &file.path {
            Some(path) => path.display().to_string(),
            None => "built-in".to_owned(),
        };
        let feeder = SyntheticFeeder::new(engine, sequences);
        let text = text.map(|ids| BenchText { ids, speculation });
        Ok(Self { feeder, placement: layers, text, name, n_batch: setup.n_batch })
    }

    /// Measures decode after the text: without drafts, and with them if there is a source.
    fn text_records(&mut self, arguments: &BenchArgs, setup: Setup) -> Result<Vec<ResultRow>> {
        let Some(BenchText { ids, mut speculation }) = self.text.take() else {
            return Ok(Vec::new());
        };
        let mut records = Vec::new();
        for n_gen in counts(&arguments.n_gen).into_iter().filter(|n_gen| *n_gen > 0) {
            let test = Test { n_prompt: 0, n_gen, n_depth: ids.len(), n_parallel: 1 };
            let sources = [Some(None), speculation.as_mut().map(Some)];
            for mut drafts in sources.into_iter().flatten() {
                let mut decode = |repetitions| {
                    let drafts = drafts.as_deref_mut();
                    text::decode(&mut self.feeder, &ids, drafts, n_gen, repetitions)
                };
                if !arguments.no_warmup {
                    decode(1)?;
                }
                let (samples_ns, drafted) = decode(arguments.repetitions)?;
                records.push(self.record(setup, test, samples_ns).of_text(drafted));
            }
        }
        Ok(records)
    }

    fn record(&self, setup: Setup, test: Test, samples_ns: Vec<u64>) -> ResultRow {
        let model = self.feeder.engine.model();
        ResultRow::new(model, &self.placement, &self.name, setup, test, samples_ns)
    }

    /// Returns the nanoseconds of each repetition.
    fn measure(&mut self, test: Test, repetitions: usize, warm_up: bool) -> Result<Vec<u64>> {
        let watch = Watch::new();
        self.feeder.truncate(0)?;
        for sequence in 0..test.n_parallel {
            self.prompt(sequence, test.n_depth, &watch)?;
        }
        if warm_up {
            if test.n_prompt > 0 {
                self.prompt(0, test.n_prompt, &watch)?;
            }
            if test.n_gen > 0 {
                // Where all layers are on a GPU, the warm-up has the checks of new graphs.
                let most = if self.placement.cpu.is_none() { GPU_WARM_UP_TOKENS } else { 1 };
                self.generate(test.n_parallel, test.n_gen.min(most), &watch)?;
            }
        }
        let mut samples_ns = Vec::with_capacity(repetitions);
        for _ in 0..repetitions {
            self.feeder.truncate(test.n_depth)?;
            let started = Instant::now();
            self.prompt(0, test.n_prompt, &watch)?;
            self.generate(test.n_parallel, test.n_gen, &watch)?;
            samples_ns.push(started.elapsed().as_nanos().try_into().unwrap_or(u64::MAX).max(1));
        }
        Ok(samples_ns)
    }

    /// Feeds a prompt, `n_batch` tokens at a time, and computes the candidates after the last one.
    /// The engine divides the parts into batches of at most `n_ubatch` tokens, which do not wait
    /// for each other.
    fn prompt(&mut self, sequence: usize, mut tokens: usize, watch: &Watch) -> Result<()> {
        watch.check()?;
        while tokens > self.n_batch {
            self.feeder.feed(sequence, self.n_batch)?;
            tokens -= self.n_batch;
            watch.check()?;
        }
        Ok(self.feeder.prompt(sequence, tokens)?)
    }

    fn generate(&mut self, sequences: usize, tokens: usize, watch: &Watch) -> Result<()> {
        for _ in 0..tokens {
            watch.check()?;
            self.feeder.step(sequences)?;
        }
        Ok(())
    }
}
