//! The command line: subcommands, and the options that several of them share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use rf_cpu::Isa;
use rf_engine::sampling::SamplerConfig;
use rf_graph::KvType;

use crate::commands::{bench, completions, info, perplexity, profile, quantize, run, tokenize};
#[cfg(feature = "gpu")]
use crate::commands::{devices, doctor, selftest};
#[cfg(feature = "gpu")]
use crate::device::probe;
use crate::failure::bad_input;
use crate::version;

/// Run GGUF language models.
#[derive(Debug, Parser)]
#[command(
    name = "rf-cli",
    version = version::short(),
    long_version = version::long(),
    max_term_width = 100,
    after_help = "\
Examples:
  rf-cli run                                  chat with the built-in demo model
  rf-cli run -m model.gguf \"Why is the sky blue?\"
  rf-cli info model.gguf
  rf-cli bench -m model.gguf

Exit codes: 0 done, 1 failed while running, 2 bad arguments or input, 130 stopped by Ctrl-C."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a prompt, continue a text, or chat
    Run(Box<run::RunArgs>),
    /// Show what a model file holds and what memory it needs
    Info(info::InfoArgs),
    /// Turn text into token ids, or ids into text
    Tokenize(tokenize::TokenizeArgs),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Write a model in another format
    Quantize(quantize::QuantizeArgs),
    /// Measure speed, with the columns and fields of llama-bench
    Bench(bench::BenchArgs),
    /// Run a command under a profiler and print where its time goes
    Profile(profile::ProfileArgs),
    /// List the GPUs, and what code each gets
    #[cfg(feature = "gpu")]
    Devices(devices::DevicesArgs),
    /// Check whether GPUs can be used, and say what to do where not
    #[cfg(feature = "gpu")]
    Doctor(doctor::DoctorArgs),
    /// Check every kernel on a GPU against the CPU, and measure it
    #[cfg(feature = "gpu")]
    Selftest(selftest::SelftestArgs),
    /// Ask a driver, for `devices` and `doctor`
    #[cfg(feature = "gpu")]
    #[command(hide = true)]
    Probe(probe::ProbeArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}

impl Command {
    /// Runs it.
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Run(arguments) => run::run(arguments),
            Self::Info(arguments) => info::info(arguments),
            Self::Tokenize(arguments) => tokenize::tokenize(arguments),
            Self::Perplexity(arguments) => perplexity::perplexity(arguments),
            Self::Quantize(arguments) => quantize::quantize(arguments),
            Self::Bench(arguments) => bench::bench(arguments),
            Self::Profile(arguments) => profile::profile(arguments),
            #[cfg(feature = "gpu")]
            Self::Devices(arguments) => devices::devices(arguments),
            #[cfg(feature = "gpu")]
            Self::Doctor(arguments) => doctor::doctor(arguments),
            #[cfg(feature = "gpu")]
            Self::Selftest(arguments) => selftest::selftest(arguments),
            #[cfg(feature = "gpu")]
            Self::Probe(arguments) => probe::run(arguments),
            Self::Completions(arguments) => completions::completions(arguments),
        }
    }
}

/// llama.cpp's flags of several letters after one dash, which clap has no notion of.
const LONG_FLAGS: [(&str, &str); 9] = [
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-ub", "--ubatch-size"),
    ("-ngl", "--gpu-layers"),
    ("-npl", "--n-parallel"),
    ("-sys", "--system"),
    ("-cnv", "--chat"),
    ("-no-cnv", "--raw"),
    ("-pg", "--prompt-gen"),
];

/// The arguments with [`LONG_FLAGS`] spelt out; what follows `--` stays as it is.
pub(crate) fn with_long_flags(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut flags_ended = false;
    let spell_out = |argument: OsString| {
        flags_ended |= argument == "--";
        let long = LONG_FLAGS.iter().find(|(short, _)| !flags_ended && argument == *short);
        long.map_or(argument, |(_, long)| OsString::from(long))
    };
    arguments.into_iter().map(spell_out).collect()
}

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Model file in GGUF format (any part of a split one); without it the built-in demo model
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
}

/// How to load and compute.
#[derive(Debug, Args)]
#[command(next_help_heading = "Computing")]
pub(crate) struct ComputeArgs {
    /// Threads; as many as there are cores if left out, 0 or -1
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<i64>,
    /// Tokens computed at once, at most
    #[arg(short, long, value_name = "N", default_value_t = 2048)]
    pub(crate) batch_size: usize,
    /// The same limit under llama.cpp's other name: the smaller one counts
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) ubatch_size: usize,
    #[arg(
        help = "Format of the KV cache: f32, f16, q8_0 or fp8 (E4M3, without scales) [default: f16]"
    )]
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type: Option<KvType>,
    /// The same as --cache-type, as in llama.cpp (-ctk)
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type_k: Option<KvType>,
    /// Has to be the same as --cache-type-k (-ctv)
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type_v: Option<KvType>,
    /// Instruction set to use instead of the best one: see --version for those of this CPU
    #[arg(long, value_name = "NAME", value_parser = Isa::from_str)]
    pub(crate) tier: Option<Isa>,
}

impl ComputeArgs {
    /// The number of threads; `None` for the default.
    pub(crate) fn threads(&self) -> Result<Option<usize>> {
        threads(self.threads)
    }

    /// Tokens computed at once.
    pub(crate) fn batch_tokens(&self) -> Result<usize> {
        let tokens = self.batch_size.min(self.ubatch_size);
        if tokens == 0 {
            return Err(bad_input!("a batch of 0 tokens computes nothing: give 1 or more"));
        }
        Ok(tokens)
    }

    /// The format of the KV cache.
    pub(crate) fn kv_type(&self) -> Result<KvType> {
        let given = [self.cache_type, self.cache_type_k, self.cache_type_v];
        let mut given = given.into_iter().flatten();
        let first = given.next().unwrap_or(KvType::F16);
        match given.find(|&kv_type| kv_type != first) {
            None => Ok(first),
            Some(other) => Err(bad_input!(
                "keys and values are stored in one format, not in {first} and {other}: \
                 give the same one for both"
            )),
        }
    }
}

/// A number of threads as llama.cpp takes it: `None`, 0 and negative ones stand for the default.
pub(crate) fn threads(given: Option<i64>) -> Result<Option<usize>> {
    const MOST: usize = 1024;
    let threads = given.and_then(|count| usize::try_from(count).ok()).filter(|&count| count > 0);
    match threads {
        Some(count) if count > MOST => {
            Err(bad_input!("{count} threads are more than the {MOST} allowed: give fewer"))
        }
        threads => Ok(threads),
    }
}

pub(crate) fn kv_type(name: &str) -> Result<KvType, String> {
    let found = KvType::ALL.into_iter().find(|kv_type| kv_type.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<_> = KvType::ALL.iter().map(|kv_type| kv_type.name()).collect();
        format!("take one of {}", names.join(", "))
    })
}

/// How the next token is chosen: names and defaults of llama.cpp, applied in its order.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed of the draws; -1 for a new one each time
    #[arg(short, long, value_name = "SEED", default_value_t = -1, allow_negative_numbers = true)]
    seed: i64,
    /// Temperature: higher is more surprising, 0 always takes the most probable token [default: 0.8; 0.5
    /// for the demo model, which is too small for more]
    #[arg(long, visible_alias = "temperature", value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Keep the most probable tokens that have probability P together
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Keep tokens at least P times as probable as the most probable one
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    min_p: f32,
    /// Keep tokens of typical information content, up to probability P together; 1 keeps all
    #[arg(long, visible_alias = "typical-p", value_name = "P", default_value_t = 1.0)]
    typical: f32,
    /// Make recent tokens less likely, by this factor; 1 is off
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Tokens that the penalties look back at; 0 is off, -1 the whole context
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    repeat_last_n: i64,
    /// Subtract this once from the logit of each recent token
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtract this from the logit of a recent token for each time it occurred
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Add B to the logit of token ID, as in 15043+1, 15043-1.5 or 15043-inf (repeatable)
    #[arg(short = 'l', long, value_name = "ID±B", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
}

impl SamplingArgs {
    /// The parameters, checked; `temperature` is the one to use where none is given.
    pub(crate) fn config(&self, temperature: f32) -> Result<SamplerConfig> {
        let config = SamplerConfig {
            temperature: self.temp.unwrap_or(temperature),
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: usize::try_from(self.repeat_last_n).ok(),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            seed: u64::try_from(self.seed).ok(),
        };
        config.validate().map_err(|error| bad_input!("{error}"))?;
        Ok(config)
    }
}

/// `ID+B` or `ID-B`.
fn logit_bias(text: &str) -> Result<(u32, f32), &'static str> {
    const EXPECTED: &str = "expected a token id, + or -, and a number, as in 15043+1";
    let sign = text.find(['+', '-']).ok_or(EXPECTED)?;
    let (id, bias) = text.split_at(sign);
    Ok((id.parse().map_err(|_| EXPECTED)?, bias.parse().map_err(|_| EXPECTED)?))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_llama_cpp_are_spelt_out_before_the_double_dash() {
        let arguments = ["rf-cli", "run", "-ctk", "f16", "--", "-sys"].map(OsString::from);
        let expected = ["rf-cli", "run", "--cache-type-k", "f16", "--", "-sys"];
        assert_eq!(with_long_flags(arguments), expected.map(OsString::from));
    }

    #[test]
    fn a_logit_bias_is_an_id_and_a_signed_number() {
        assert_eq!(logit_bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(logit_bias("7-2.5"), Ok((7, -2.5)));
        assert_eq!(logit_bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        for bad in ["", "7", "+1", "x+1", "7+", "7+x", "-7+1"] {
            assert!(logit_bias(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn threads_below_one_are_the_default() {
        assert_eq!(threads(None).unwrap(), None);
        assert_eq!(threads(Some(-1)).unwrap(), None);
        assert_eq!(threads(Some(0)).unwrap(), None);
        assert_eq!(threads(Some(3)).unwrap(), Some(3));
        assert!(threads(Some(1_000_000)).is_err());
    }
}
