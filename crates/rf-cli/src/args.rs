//! Argument structs that several commands share. Parsing only: each turns into the options of a
//! library crate.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Result;
use clap::Args;
use rf_cpu::{CpuOptions, Isa};
use rf_device::{Device, DeviceOptions, GpuLayers};
use rf_engine::sampling::SamplerConfig;
use rf_grammar::Grammar;
use rf_graph::KvType;
use rf_hub::ModelName;

use crate::failure::bad_input;
use crate::sources;

/// The device, and the layers that a GPU gets.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Compute on this device: cpu, gpu, auto (a GPU if one is usable), or a number from
    /// `rf-cli devices`
    #[arg(
        long,
        value_name = "DEVICE",
        env = "ROCFORGE_DEVICE",
        default_value = "auto",
        hide_env_values = true
    )]
    device: Device,
    /// Put the last N layers on the GPU, with the output as one: a number, auto (as many as fit) or
    /// all (-ngl)
    #[arg(
        long,
        visible_alias = "n-gpu-layers",
        value_name = "N",
        default_value = "auto",
        allow_negative_numbers = true
    )]
    pub(crate) gpu_layers: GpuLayers,
    /// Keep the experts of all layers on the CPU, in host memory (-cmoe)
    #[arg(long, conflicts_with = "n_cpu_moe")]
    cpu_moe: bool,
    /// Keep the experts of the first N layers on the CPU, in host memory (-ncmoe) [default: 0, or
    /// as many as memory needs with -ngl auto]
    #[arg(long, value_name = "N")]
    n_cpu_moe: Option<usize>,
}

impl DeviceArgs {
    /// The options of the device. `cpu` is for the layers that the CPU gets.
    pub(crate) fn options(&self, cpu: CpuOptions) -> DeviceOptions {
        let cpu_experts = if self.cpu_moe { Some(usize::MAX) } else { self.n_cpu_moe };
        DeviceOptions { device: self.device, gpu_layers: self.gpu_layers, cpu_experts, cpu }
    }
}

/// The model: a file or a repository.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Load this model file, in GGUF format (any part of a split one) [default: the built-in demo
    /// model]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    #[arg(
        help = "Load this model of the Hugging Face hub, downloaded unless it is cached (-hf) [default QUANT: \
                Q4_K_M, else Q8_0, else the first]"
    )]
    #[arg(long, value_name = "OWNER/REPO[:QUANT]", conflicts_with = "model")]
    pub(crate) hf_repo: Option<ModelName>,
}

impl ModelArgs {
    /// Returns true if no model is named, so that the demo model is used.
    pub(crate) fn is_demo(&self) -> bool {
        self.model.is_none() && self.hf_repo.is_none()
    }
}

/// Threads, batches, cache and instruction set.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Computing")]
pub(crate) struct ComputeArgs {
    /// Compute with N CPU threads [default: one per core, also for 0 and -1]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<i64>,
    /// Process at most N tokens per batch
    #[arg(short, long, value_name = "N", default_value_t = 2048)]
    pub(crate) batch_size: usize,
    /// Process at most N tokens per batch, as in llama.cpp (-ub): the smaller limit counts
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) ubatch_size: usize,
    #[arg(
        help = "Store the KV cache as f32, f16, q8_0 or fp8 (E4M3, without scales) [default: f16]"
    )]
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type: Option<KvType>,
    /// Store keys in this format, as in llama.cpp (-ctk); the same as --cache-type
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type_k: Option<KvType>,
    /// Store values in this format (-ctv), which must be that of the keys
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type_v: Option<KvType>,
    /// Use this instruction set instead of the best one; --version lists those of this CPU
    #[arg(long, visible_alias = "tier", value_name = "ISA", value_parser = Isa::from_str)]
    pub(crate) isa: Option<Isa>,
}

impl ComputeArgs {
    /// Threads and instruction set of the CPU.
    pub(crate) fn cpu(&self) -> Result<CpuOptions> {
        Ok(CpuOptions { threads: threads(self.threads)?, isa: self.isa })
    }

    /// Tokens per batch, at most.
    pub(crate) fn batch_tokens(&self) -> Result<usize> {
        let tokens = self.batch_size.min(self.ubatch_size);
        if tokens == 0 {
            return Err(bad_input!("a batch needs at least 1 token: give -b and -ub 1 or more"));
        }
        Ok(tokens)
    }

    /// The format of the KV cache.
    pub(crate) fn kv_type(&self) -> Result<KvType> {
        self.kv_type_or(KvType::F16)
    }

    /// The format of the KV cache, with another default.
    pub(crate) fn kv_type_or(&self, default: KvType) -> Result<KvType> {
        let given = [self.cache_type, self.cache_type_k, self.cache_type_v];
        let mut given = given.into_iter().flatten();
        let first = given.next().unwrap_or(default);
        match given.find(|&kv_type| kv_type != first) {
            None => Ok(first),
            Some(other) => Err(bad_input!(
                "keys in {first} and values in {other} are not supported: \
                 give -ctk and -ctv the same format"
            )),
        }
    }
}

/// Parses a number of threads as llama.cpp does: `None`, 0 and negative numbers are the default.
pub(crate) fn threads(given: Option<i64>) -> Result<Option<usize>> {
    const MOST: usize = 1024;
    let threads = given.and_then(|count| usize::try_from(count).ok()).filter(|&count| count > 0);
    match threads {
        Some(count) if count > MOST => {
            Err(bad_input!("{count} threads are not supported: give at most {MOST}"))
        }
        threads => Ok(threads),
    }
}

/// Parses the format of a KV cache.
pub(crate) fn kv_type(name: &str) -> Result<KvType, String> {
    let known = KvType::ALL.into_iter().find(|kv_type| kv_type.name().eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        let names: Vec<_> = KvType::ALL.iter().map(|kv_type| kv_type.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Parameters of sampling: names, defaults and order of llama.cpp.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed the random numbers with SEED; -1 takes a new seed each time
    #[arg(short, long, value_name = "SEED", default_value_t = -1, allow_negative_numbers = true)]
    seed: i64,
    /// Divide logits by temperature T; 0 always takes the most probable token [default: 0.8, and
    /// 0.5 for the demo model]
    #[arg(long, visible_alias = "temperature", value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Keep the most probable tokens with a total probability of P; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Keep tokens at least P times as probable as the most probable one
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    min_p: f32,
    /// Keep tokens of typical information content with a total probability of P; 1 keeps all
    #[arg(long, visible_alias = "typical-p", value_name = "P", default_value_t = 1.0)]
    typical: f32,
    /// Penalise recent tokens by the factor R; 1 turns it off
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Apply the penalties to the last N tokens; 0 turns them off, -1 takes the whole context
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    repeat_last_n: i64,
    /// Subtract X from the logit of each recent token
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtract X from the logit of a recent token for each occurrence
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Add B to the logit of token ID, as in 15043+1, 15043-1.5 or 15043-inf (repeatable)
    #[arg(short = 'l', long, value_name = "ID±B", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
}

impl SamplingArgs {
    /// Checks the parameters. `temperature` is the default.
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

/// The form of the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct GrammarArgs {
    /// Answer in JSON that fits this schema, or that of a file: SCHEMA or @FILE
    #[arg(long, value_name = "SCHEMA", conflicts_with = "grammar")]
    json_schema: Option<String>,
    /// Answer in text that fits this grammar, in GBNF or Lark, or that of a file: GRAMMAR or @FILE
    #[arg(long, value_name = "GRAMMAR")]
    grammar: Option<String>,
}

impl GrammarArgs {
    /// The grammar, if one is given.
    pub(crate) fn grammar(&self) -> Result<Option<Grammar>> {
        let text = |given: &str| match given.strip_prefix('@') {
            Some(file) => sources::file_text(Path::new(file)),
            None => Ok(given.to_owned()),
        };
        if let Some(schema) = &self.json_schema {
            let schema = serde_json::from_str(&text(schema)?).map_err(|error| {
                bad_input!("--json-schema is not JSON: {error}; give a schema, or @ and a file")
            })?;
            return Ok(Some(Grammar::JsonSchema(schema)));
        }
        self.grammar
            .as_deref()
            .map(|given| text(given).map(|text| Grammar::of_text(&text)))
            .transpose()
    }
}

/// Parses `ID+B` or `ID-B`.
fn logit_bias(text: &str) -> Result<(u32, f32), &'static str> {
    const EXPECTED: &str = "expected a token id, + or -, and a number, as in 15043+1";
    let sign = text.find(['+', '-']).ok_or(EXPECTED)?;
    let (id, bias) = text.split_at(sign);
    Ok((id.parse().map_err(|_| EXPECTED)?, bias.parse().map_err(|_| EXPECTED)?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
