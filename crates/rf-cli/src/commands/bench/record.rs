//! Results, and their output formats.

use std::io::{self, Write};
use std::mem;

use chrono::{SecondsFormat, Utc};
use clap::ValueEnum;
use csv::{QuoteStyle, WriterBuilder};
use rf_profile::baseline::Hardware;
use rf_profile::plot::Bar;
use rocmforge::device::{GpuLayers, LayerPlacement};
use rocmforge::engine::{KvType, Model};
use rocmforge::gguf::{Gguf, TensorInfo, file_type_name};
use serde_json::{Map, Value, json};

use crate::version;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    Md,
    Json,
    Jsonl,
    Csv,
}

/// Options that need a new engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// `None` for the default.
    pub(super) threads: Option<usize>,
    pub(super) n_batch: usize,
    pub(super) n_ubatch: usize,
    pub(super) kv_type: KvType,
    pub(super) gpu_layers: GpuLayers,
}

/// A measurement: prefill, decode, or both, at a depth.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the names of llama-bench")]
pub(super) struct Test {
    pub(super) n_prompt: usize,
    pub(super) n_gen: usize,
    pub(super) n_depth: usize,
    /// Sequences that are decoded as one batch.
    pub(super) n_parallel: usize,
}

impl Test {
    /// `pp512`, `tg128`, `pp512+tg128`, with ` x8` for several sequences and ` @ d4096` for a
    /// depth.
    pub(super) fn name(self) -> String {
        let name = match (self.n_prompt, self.n_gen) {
            (prompt, 0) => format!("pp{prompt}"),
            (0, generated) => format!("tg{generated}"),
            (prompt, generated) => format!("pp{prompt}+tg{generated}"),
        };
        let sequences = match self.n_parallel {
            1 => String::new(),
            sequences => format!(" x{sequences}"),
        };
        let depth = match self.n_depth {
            0 => String::new(),
            depth => format!(" @ d{depth}"),
        };
        name + &sequences + &depth
    }
}

/// The drafts of a test.
#[derive(Clone, Copy, Default)]
pub(super) struct DraftCounts {
    pub(super) is_on: bool,
    pub(super) drafted_tokens: usize,
    pub(super) accepted_tokens: usize,
}

/// One row of results: the fields of llama-bench, in its order.
pub(super) struct ResultRow {
    fields: Map<String, Value>,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    test: String,
    model_size: u64,
    model_n_params: u64,
    avg_ts: f64,
    stddev_ts: f64,
}

impl ResultRow {
    pub(super) fn new(
        model: &Model,
        placement: &LayerPlacement,
        model_filename: &str,
        setup: Setup,
        test: Test,
        samples_ns: Vec<u64>,
    ) -> Self {
        let gguf = model.gguf();
        let tokens = (test.n_prompt + test.n_gen * test.n_parallel) as f64;
        let samples_ts: Vec<f64> = samples_ns.iter().map(|&ns| 1e9 * tokens / ns as f64).collect();
        let ns: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64).collect();
        let (avg_ts, stddev_ts) = (mean(&samples_ts), standard_deviation(&samples_ts));
        let model_size: u64 = gguf.tensors().iter().map(|tensor| tensor.size_bytes() as u64).sum();
        let model_n_params: u64 = gguf.tensors().iter().map(TensorInfo::elements).sum();
        // Fields that do not apply have the values that llama-bench prints for a CPU by default.
        let n_gpu_layers = match setup.gpu_layers {
            GpuLayers::Last(layers) => layers as i64,
            _ => placement.gpu.as_ref().map_or(-1, |_| placement.gpu_layers as i64),
        };
        let fields: [(&str, Value); 42] = [
            ("build_commit", version::COMMIT.into()),
            ("build_number", version::NUMBER.parse::<u64>().unwrap_or(0).into()),
            ("cpu_info", Hardware::cpu_only().cpu.into()),
            ("gpu_info", placement.gpu_name.clone().unwrap_or_default().into()),
            ("backends", placement.backends.clone().into()),
            ("model_filename", model_filename.into()),
            ("model_type", model_type(gguf, model_n_params).into()),
            ("model_size", model_size.into()),
            ("model_n_params", model_n_params.into()),
            ("n_batch", setup.n_batch.into()),
            ("n_ubatch", setup.n_ubatch.into()),
            ("n_threads", placement.threads.into()),
            ("cpu_mask", "0x0".into()),
            ("cpu_strict", false.into()),
            ("poll", 50.into()),
            ("type_k", setup.kv_type.name().into()),
            ("type_v", setup.kv_type.name().into()),
            ("n_gpu_layers", n_gpu_layers.into()),
            ("n_cpu_moe", 0.into()),
            ("split_mode", "layer".into()),
            ("main_gpu", 0.into()),
            ("no_kv_offload", false.into()),
            ("flash_attn", (-1).into()),
            ("devices", "auto".into()),
            ("tensor_split", "0.00".into()),
            ("tensor_buft_overrides", "none".into()),
            ("load_mode", "mmap".into()),
            ("lazy_mode", "auto".into()),
            ("embeddings", false.into()),
            ("no_op_offload", 0.into()),
            ("no_host", false.into()),
            ("repack", true.into()),
            ("fit_target", 0.into()),
            ("fit_min_ctx", 0.into()),
            ("n_prompt", test.n_prompt.into()),
            ("n_gen", test.n_gen.into()),
            ("n_depth", test.n_depth.into()),
            ("test_time", Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true).into()),
            ("avg_ns", (mean(&ns).round() as u64).into()),
            ("stddev_ns", (standard_deviation(&ns).round() as u64).into()),
            ("avg_ts", avg_ts.into()),
            ("stddev_ts", stddev_ts.into()),
        ];
        // llama-bench has no such test, and so no such field.
        let parallel = (test.n_parallel > 1).then(|| ("n_parallel", test.n_parallel.into()));
        let fields = fields.into_iter().chain(parallel);
        let fields = fields.map(|(name, value)| (name.to_owned(), value)).collect();
        let test = test.name();
        Self { fields, samples_ns, samples_ts, test, model_size, model_n_params, avg_ts, stddev_ts }
    }

    /// Adds the fields of drafts, which llama-bench does not have.
    pub(super) fn with_drafts(mut self, drafts: DraftCounts) -> Self {
        self.fields.insert("speculative".into(), drafts.is_on.into());
        self.fields.insert("n_drafted".into(), drafts.drafted_tokens.into());
        self.fields.insert("n_accepted".into(), drafts.accepted_tokens.into());
        self
    }

    /// A test of real text, with the accepted share of its drafts in its name.
    pub(super) fn of_text(mut self, drafts: DraftCounts) -> Self {
        let DraftCounts { is_on, drafted_tokens, accepted_tokens } = drafts;
        let percent = 100.0 * accepted_tokens as f64 / drafted_tokens.max(1) as f64;
        let accepted = if is_on { format!(" drafts {percent:.0} %") } else { String::new() };
        self.test = format!("{} text{accepted}", self.test);
        self.with_drafts(drafts)
    }

    /// The bar of a plot: the model, what differs between setups, and the test.
    pub(super) fn bar(&self) -> Bar {
        let name =
            format!("{}, {} threads, {}", self.cell("model"), self.cell("threads"), self.test);
        Bar { name, samples: self.samples_ts.clone() }
    }

    /// The fields of JSON output, with the samples.
    fn with_samples(&self) -> Map<String, Value> {
        let mut fields = self.fields.clone();
        fields.insert("samples_ns".into(), json!(self.samples_ns));
        fields.insert("samples_ts".into(), json!(self.samples_ts));
        fields
    }

    fn cell(&self, column: &str) -> String {
        let field = |name: &str| match self.fields.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        match column {
            "model" => field("model_type"),
            "size" => size(self.model_size),
            "params" => parameters(self.model_n_params),
            "backend" => field("backends"),
            "threads" => field("n_threads"),
            "ngl" => field("n_gpu_layers"),
            "test" => self.test.clone(),
            "t/s" => format!("{:.2} ± {:.2}", self.avg_ts, self.stddev_ts),
            _ => field(column),
        }
    }

    /// A cell of CSV, where llama-bench writes booleans as numbers.
    fn csv_cell(&self, column: &str) -> String {
        match self.fields.get(column) {
            Some(Value::Bool(value)) => u8::from(*value).to_string(),
            _ => self.cell(column),
        }
    }
}

/// Prints records in one format.
pub(super) struct Printer {
    format: RecordFormat,
    columns: Vec<Column>,
    started: bool,
    rows: usize,
}

struct Column {
    name: &'static str,
    width: usize,
    left: bool,
}

impl Printer {
    /// `varied` are the columns of a table besides those that are always there.
    pub(super) fn new(format: RecordFormat, varied: &[&'static str]) -> Self {
        let column = |name, width, left| Column { name, width, left };
        let mut columns = vec![
            column("model", 30, true),
            column("size", 10, false),
            column("params", 10, false),
            column("backend", 10, true),
            column("threads", 7, false),
        ];
        columns.extend(varied.iter().map(|&name| match name {
            "n_batch" => column(name, 7, false),
            "n_ubatch" => column(name, 8, false),
            "ngl" => column(name, 3, false),
            _ => column(name, 6, false),
        }));
        columns.extend([column("test", 15, false), column("t/s", 20, false)]);
        Self { format, columns, started: false, rows: 0 }
    }

    /// Prints what precedes the rows, once.
    pub(super) fn start(&mut self, out: &mut impl Write) -> io::Result<()> {
        if mem::replace(&mut self.started, true) {
            return Ok(());
        }
        match self.format {
            RecordFormat::Md => {
                self.table_row(out, |column| column.name.to_owned())?;
                self.table_row(out, |column| {
                    let end = if column.left { '-' } else { ':' };
                    "-".repeat(column.width - 1) + &end.to_string()
                })
            }
            RecordFormat::Json => writeln!(out, "["),
            RecordFormat::Jsonl | RecordFormat::Csv => Ok(()),
        }
    }

    pub(super) fn row(&mut self, out: &mut impl Write, record: &ResultRow) -> io::Result<()> {
        match self.format {
            RecordFormat::Md => self.table_row(out, |column| record.cell(column.name))?,
            RecordFormat::Json => {
                let json = serde_json::to_string_pretty(&record.with_samples())?;
                let comma = if self.rows == 0 { "" } else { ",\n" };
                write!(out, "{comma}  {}", json.replace('\n', "\n  "))?;
            }
            RecordFormat::Jsonl => {
                writeln!(out, "{}", serde_json::to_string(&record.with_samples())?)?;
            }
            RecordFormat::Csv => {
                // llama-bench quotes every value and no name.
                let mut csv = WriterBuilder::new();
                if self.rows == 0 {
                    let mut header = csv.from_writer(&mut *out);
                    header.write_record(record.fields.keys())?;
                    header.flush()?;
                }
                let mut values = csv.quote_style(QuoteStyle::Always).from_writer(&mut *out);
                values.write_record(record.fields.keys().map(|name| record.csv_cell(name)))?;
                values.flush()?;
            }
        }
        self.rows += 1;
        out.flush()
    }

    pub(super) fn finish(&self, out: &mut impl Write) -> io::Result<()> {
        match self.format {
            RecordFormat::Md => writeln!(out, "\nbuild: {} ({})", version::COMMIT, version::NUMBER),
            RecordFormat::Json => writeln!(out, "\n]"),
            RecordFormat::Jsonl | RecordFormat::Csv => Ok(()),
        }
    }

    fn table_row(&self, out: &mut impl Write, cell: impl Fn(&Column) -> String) -> io::Result<()> {
        write!(out, "|")?;
        for column in &self.columns {
            let (cell, width) = (cell(column), column.width);
            if column.left {
                write!(out, " {cell:<width$} |")?;
            } else {
                write!(out, " {cell:>width$} |")?;
            }
        }
        writeln!(out)
    }
}

/// Architecture, size and mix, as in `qwen2 7B Q4_K - Medium`.
fn model_type(gguf: &Gguf, parameters: u64) -> String {
    let metadata = gguf.metadata();
    let text = |key: &str| metadata.get(key).and_then(rocmforge::gguf::Value::as_str);
    let architecture = text("general.architecture").unwrap_or("?");
    let label = text("general.size_label").filter(|label| !label.is_empty());
    let size = label.map_or_else(|| size_label(parameters), str::to_owned);
    let number = metadata.get("general.file_type").and_then(rocmforge::gguf::Value::as_integer);
    let named = number.and_then(|number| u32::try_from(number).ok()).and_then(file_type_name);
    let largest = || {
        let largest = gguf.tensors().iter().max_by_key(|tensor| tensor.size_bytes());
        largest.map(|tensor| tensor.ty().to_string()).unwrap_or_default()
    };
    format!("{architecture} {size} {}", named.map_or_else(largest, str::to_owned))
}

/// `8B`, `1.2B`, `7.3M`.
fn size_label(parameters: u64) -> String {
    let (value, unit) = if parameters < 1_000_000_000 {
        (parameters as f64 / 1e6, 'M')
    } else {
        (parameters as f64 / 1e9, 'B')
    };
    let text = format!("{value:.*}", usize::from(value < 9.95));
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if bytes < 1 << 30 { format!("{mib:.2} MiB") } else { format!("{:.2} GiB", mib / 1024.0) }
}

fn parameters(count: u64) -> String {
    if count < 1_000_000_000 {
        format!("{:.2} M", count as f64 / 1e6)
    } else {
        format!("{:.2} B", count as f64 / 1e9)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of a sample; 0 for a single value.
fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_as_in_llama_bench() {
        let name =
            |n_prompt, n_gen, n_depth| Test { n_prompt, n_gen, n_depth, n_parallel: 1 }.name();
        assert_eq!(name(512, 0, 0), "pp512");
        assert_eq!(name(0, 128, 0), "tg128");
        assert_eq!(name(512, 128, 4096), "pp512+tg128 @ d4096");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size_label(7_344_384), "7.3M");
        assert_eq!(size_label(494_032_768), "494M");
        assert_eq!(size_label(1_235_814_400), "1.2B");
        assert_eq!(size_label(8_030_261_248), "8B");
        assert_eq!(size_label(70_553_706_496), "71B");
        assert_eq!(size(7_949_632), "7.58 MiB");
        assert_eq!(size(1 << 30), "1.00 GiB");
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert!((standard_deviation(&[1.0, 2.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!(standard_deviation(&[5.0]).abs() < 1e-12);
    }
}
