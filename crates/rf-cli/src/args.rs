//! Argument structs that several commands share. Parsing only: each turns into the options of a
//! library crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use rocmforge::device::{
    CpuOptions, Device, DeviceOptions, GpuLayers, Graphs, Isa, Shares, SplitMode,
};
use rocmforge::engine::sampling::{
    DryConfig, MirostatConfig, MirostatVersion, SamplerConfig, SamplerKind,
};
use rocmforge::engine::{KvType, Model};
use rocmforge::grammar::Grammar;
use rocmforge::messages::ChatTemplate;
use rocmforge::{Loader, SamplingDefaults};

use crate::failure::bad_input;
use crate::{demo, escapes, hub, sources, terminal};

/// The device, and the layers that a GPU gets.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Compute on DEVICE: cpu, gpu, auto (a GPU if one is usable, else the CPU), or the number of a
    /// GPU from `rf-cli devices`. Several GPUs, as in 0,1, share the model; so do parts of the
    /// CPU, as in cpu,cpu, with -sm tensor
    #[arg(
        long,
        value_name = "DEVICE",
        env = "ROCFORGE_DEVICE",
        default_value = "auto",
        hide_env_values = true
    )]
    device: Device,
    /// Put the last N layers on the GPU: a number, auto (as many as fit) or all. The output matrix
    /// counts as one layer (-ngl)
    #[arg(
        long,
        visible_alias = "n-gpu-layers",
        value_name = "N",
        default_value = "auto",
        allow_negative_numbers = true
    )]
    pub(crate) gpu_layers: GpuLayers,
    /// Split the model over the GPUs: layer (all usable GPUs share the layers), tensor (they
    /// compute every layer together) or none (one GPU computes all, unless --device names several)
    /// (-sm)
    #[arg(long, value_name = "MODE", default_value = "none")]
    split_mode: SplitMode,
    /// Split the model over all usable GPUs, or over those of --device, in proportion to SHARES,
    /// as in 3,1 (-ts) [default: the free memory of each GPU]
    #[arg(long, value_name = "SHARES")]
    tensor_split: Option<Shares>,
    /// Keep the experts of all layers on the CPU, in host memory (-cmoe)
    #[arg(long, conflicts_with = "n_cpu_moe")]
    cpu_moe: bool,
    /// Keep the experts of the first N layers on the CPU, in host memory (-ncmoe) [default: 0; with
    /// -ngl auto, as many as the memory of the GPU requires]
    #[arg(long, value_name = "N")]
    n_cpu_moe: Option<usize>,
    /// Replay captured graphs on the GPU: on, off, or auto (off for HIP versions that replay them
    /// wrongly). Every replay is checked
    #[arg(long, value_name = "MODE", default_value = "auto")]
    graphs: Graphs,
}

impl DeviceArgs {
    /// The options of the device. `cpu` is for the layers that the CPU gets.
    pub(crate) fn options(&self, cpu: CpuOptions) -> DeviceOptions {
        let cpu_experts = if self.cpu_moe { Some(usize::MAX) } else { self.n_cpu_moe };
        DeviceOptions::default()
            .with_device(self.device)
            .with_gpu_layers(self.gpu_layers)
            .with_split(self.split_mode)
            .with_shares(self.tensor_split.unwrap_or_default())
            .with_cpu_experts(cpu_experts)
            .with_cpu(cpu)
            .with_graphs(self.graphs)
    }
}

/// The model: a file or a repository.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Load the GGUF model FILE, or the model of a short name, see `rf-cli list --all`. For a split
    /// model, name any of its parts [default: the built-in demo model]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    #[arg(
        help = "Load this model of the Hugging Face hub, downloaded unless it is cached (-hf) [default QUANT: \
                Q4_K_M, else Q8_0, else the first file]"
    )]
    #[arg(long, value_name = "OWNER/REPO[:QUANT]", value_parser = hub::repository, conflicts_with = "model")]
    pub(crate) hf_repo: Option<rocmforge::hub::ModelName>,
    #[arg(
        help = "Replace metadata of the file, as in llama.rope.freq_base=float:500000. The types are int, float, \
                bool and str. Commas separate several entries (repeatable)"
    )]
    #[arg(long, value_name = "KEY=TYPE:VALUE", value_delimiter = ',', value_parser = metadata_override)]
    pub(crate) override_kv: Vec<(String, rocmforge::gguf::Value)>,
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
    /// Process at most N tokens per batch, as llama.cpp's -ub. The smaller of -b and -ub applies
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) ubatch_size: usize,
    #[arg(
        help = "Store the KV cache as f32, f16, q8_0, fp8 (E4M3, without scales), q5_0 or q4_0 [default: f16]"
    )]
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type: Option<KvType>,
    /// Store keys in this format, as llama.cpp's -ctk. It is the same option as --cache-type
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type_k: Option<KvType>,
    /// Store values in this format, which must be the format of the keys (-ctv)
    #[arg(long, value_name = "TYPE", value_parser = kv_type)]
    cache_type_v: Option<KvType>,
    /// Compute with ISA instead of the best available one. --version lists the ISAs of this CPU
    #[arg(long, visible_alias = "tier", value_name = "ISA", value_parser = str::parse::<Isa>)]
    pub(crate) isa: Option<Isa>,
}

impl ComputeArgs {
    /// Threads and instruction set of the CPU.
    pub(crate) fn cpu(&self) -> Result<CpuOptions> {
        Ok(CpuOptions::default().with_threads(threads(self.threads)?).with_isa(self.isa))
    }

    /// Tokens per batch, at most.
    pub(crate) fn batch_tokens(&self) -> Result<usize> {
        let tokens = self.batch_size.min(self.ubatch_size);
        if tokens == 0 {
            return Err(bad_input!("a batch needs at least 1 token: give -b and -ub 1 or more"));
        }
        Ok(tokens)
    }

    /// The format of the KV cache, if one is given.
    pub(crate) fn kv_type(&self) -> Result<Option<KvType>> {
        let given = [self.cache_type, self.cache_type_k, self.cache_type_v];
        let mut given = given.into_iter().flatten();
        let Some(first) = given.next() else { return Ok(None) };
        match given.find(|&kv_type| kv_type != first) {
            None => Ok(Some(first)),
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

/// Parameters of sampling: names, defaults and order of llama.cpp. Those without a value here have
/// that of the model's file (`general.sampling.*`), or else llama.cpp's.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed the random numbers with SEED; -1 takes a new seed each time
    #[arg(short, long, value_name = "SEED", default_value_t = -1, allow_negative_numbers = true)]
    seed: i64,
    /// Divide logits by temperature T; 0 always takes the most probable token [default: the
    /// model's, else 0.8]
    #[arg(long, visible_alias = "temperature", value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,
    /// Keep the K most probable tokens; 0 and -1 keep all [default: the model's, else 40]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<i64>,
    /// Keep the most probable tokens with a total probability of P; 1 keeps all [default: the
    /// model's, else 0.95]
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Keep tokens at least P times as probable as the most probable one [default: the model's,
    /// else 0.05]
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Keep tokens of typical information content with a total probability of P; 1 keeps all
    #[arg(long, visible_alias = "typical-p", value_name = "P", default_value_t = 1.0)]
    typical: f32,
    /// Penalise recent tokens by the factor R; 1 turns it off [default: the model's, else 1]
    #[arg(long, value_name = "R")]
    repeat_penalty: Option<f32>,
    /// Apply the penalties to the last N tokens; 0 turns them off, -1 takes the whole context
    /// [default: the model's, else 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    repeat_last_n: Option<i64>,
    /// Subtract X from the logit of each recent token
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtract X from the logit of a recent token for each occurrence
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Penalise tokens that continue a repetition (DRY) with the multiplier X; 0 turns it off
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    dry_multiplier: f32,
    /// Multiply the DRY penalty by B for each further token of the repetition
    #[arg(long, value_name = "B", default_value_t = 1.75)]
    dry_base: f32,
    /// Begin DRY penalties at repetitions of N tokens
    #[arg(long, value_name = "N", default_value_t = 2)]
    dry_allowed_length: usize,
    /// Search the last N tokens for repetitions (DRY); 0 turns it off, -1 takes the whole context
    #[arg(long, value_name = "N", default_value_t = 64)]
    dry_penalty_last_n: i64,
    #[arg(
        help = "End repetitions (DRY) at tokens that contain STR; none turns this off (repeatable) \
                [default: a line break, : \" *]"
    )]
    #[arg(long, value_name = "STR")]
    dry_sequence_breaker: Vec<String>,
    /// Keep logits within N standard deviations of the largest one; -1 keeps all
    #[arg(long, visible_alias = "top-nsigma", value_name = "N", default_value_t = -1.0)]
    top_n_sigma: f32,
    /// Remove the most probable tokens (XTC) with the probability P [default: the model's, else 0]
    #[arg(long, value_name = "P")]
    xtc_probability: Option<f32>,
    /// With XTC, remove all tokens of at least the probability P, except the least probable of them
    /// [default: the model's, else 0.1]
    #[arg(long, value_name = "P")]
    xtc_threshold: Option<f32>,
    /// Vary the temperature by up to R with the entropy; 0 keeps it constant
    #[arg(long, value_name = "R", default_value_t = 0.0)]
    dynatemp_range: f32,
    /// Raise the entropy to the power E for the dynamic temperature
    #[arg(long, value_name = "E", default_value_t = 1.0)]
    dynatemp_exp: f32,
    /// Use Mirostat 1 or 2 instead of all samplers except the temperature; 0 turns it off [default:
    /// the model's, else 0]
    #[arg(long, value_name = "N")]
    mirostat: Option<u8>,
    /// Let Mirostat learn at the rate N
    #[arg(long, value_name = "N", default_value_t = MirostatConfig::ETA)]
    mirostat_lr: f32,
    /// Let Mirostat keep the surprise of the text near N bits
    #[arg(long, value_name = "N", default_value_t = MirostatConfig::TAU)]
    mirostat_ent: f32,
    #[arg(help = "Apply these samplers in this order, separated by ; or , \
                [default: the model's, else penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]")]
    #[arg(long, value_name = "NAMES")]
    samplers: Option<String>,
    /// Apply the samplers of these letters in this order [default: the model's, else edskypmxt]
    #[arg(
        long,
        visible_alias = "sampling-seq",
        value_name = "LETTERS",
        conflicts_with = "samplers"
    )]
    sampler_seq: Option<String>,
    /// Add B to the logit of token ID, as in 15043+1, 15043-1.5 or 15043-inf (repeatable)
    #[arg(short = 'l', long, value_name = "ID±B", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
}

impl SamplingArgs {
    /// Checks the parameters.
    pub(crate) fn check(&self) -> Result<()> {
        self.config(&SamplerConfig::default()).map(drop)
    }

    /// The parameters for a model. Those that are not given are those of its file; the demo model
    /// has another default temperature.
    pub(crate) fn for_model(&self, model: &Model) -> Result<SamplerConfig> {
        let usual = SamplerConfig::default();
        let usual = if model.gguf().paths().is_empty() {
            usual.with_temperature(demo::TEMPERATURE)
        } else {
            SamplingDefaults::of(model.gguf()).fill_in(usual)
        };
        let mut config = self.config(&usual)?;
        if config.dry.multiplier > 0.0 {
            config.dry.breakers = match self.dry_sequence_breaker.as_slice() {
                [] => model.tokens_containing(&DryConfig::DEFAULT_BREAKERS),
                texts => {
                    let texts = texts.iter().filter(|text| *text != "none");
                    let texts: Vec<_> = texts.map(|text| escapes::resolved(text)).collect();
                    model.tokens_containing(&texts)
                }
            };
        }
        let vocab_size = model.tokenizer().vocab_size();
        match self.logit_bias.iter().find(|(id, _)| *id >= vocab_size) {
            Some((id, _)) => Err(bad_input!(
                "--logit-bias {id}: the vocabulary has {vocab_size} tokens: `rf-cli tokenize` shows ids"
            )),
            None => Ok(config),
        }
    }

    /// Checks the parameters. Those that are not given are `usual`.
    pub(crate) fn config(&self, usual: &SamplerConfig) -> Result<SamplerConfig> {
        // As in llama.cpp, all tokens are kept for 0 and negative numbers.
        let top_k = self.top_k.map(|k| usize::try_from(k).unwrap_or(0));
        let repeat_last_n = self.repeat_last_n.map(|n| usize::try_from(n).ok());
        let config = usual
            .clone()
            .with_temperature(self.temp.unwrap_or(usual.temperature))
            .with_top_k(top_k.unwrap_or(usual.top_k))
            .with_top_p(self.top_p.unwrap_or(usual.top_p))
            .with_min_p(self.min_p.unwrap_or(usual.min_p))
            .with_typical_p(self.typical)
            .with_repeat_penalty(self.repeat_penalty.unwrap_or(usual.repeat_penalty))
            .with_repeat_last_n(repeat_last_n.unwrap_or(usual.repeat_last_n))
            .with_presence_penalty(self.presence_penalty)
            .with_frequency_penalty(self.frequency_penalty)
            .with_logit_bias(self.logit_bias.clone())
            .with_dry(
                DryConfig::default()
                    .with_multiplier(self.dry_multiplier)
                    .with_base(self.dry_base)
                    .with_allowed_length(self.dry_allowed_length)
                    .with_last_n(usize::try_from(self.dry_penalty_last_n).ok()),
            )
            .with_top_n_sigma(self.top_n_sigma)
            .with_xtc_probability(self.xtc_probability.unwrap_or(usual.xtc_probability))
            .with_xtc_threshold(self.xtc_threshold.unwrap_or(usual.xtc_threshold))
            .with_dynatemp_range(self.dynatemp_range)
            .with_dynatemp_exponent(self.dynatemp_exp)
            .with_mirostat(self.mirostat(usual.mirostat)?)
            .with_samplers(self.samplers(&usual.samplers)?)
            .with_seed(u64::try_from(self.seed).ok());
        config.validate().map_err(|error| bad_input!("{error}"))?;
        Ok(config)
    }

    fn mirostat(&self, usual: Option<MirostatConfig>) -> Result<Option<MirostatConfig>> {
        let version = match self.mirostat {
            None => return Ok(usual),
            Some(0) => return Ok(None),
            Some(1) => MirostatVersion::V1,
            Some(2) => MirostatVersion::V2,
            Some(other) => return Err(bad_input!("--mirostat {other}: give 0, 1 or 2")),
        };
        let config = MirostatConfig::new(version).with_tau(self.mirostat_ent);
        Ok(Some(config.with_eta(self.mirostat_lr)))
    }

    fn samplers(&self, usual: &[SamplerKind]) -> Result<Vec<SamplerKind>> {
        if let Some(names) = &self.samplers {
            let names = names.split([';', ',']).filter(|name| !name.trim().is_empty());
            let kinds = names.map(str::parse::<SamplerKind>);
            let kinds: Result<_, _> = kinds.collect();
            return kinds.map_err(|error| bad_input!("--samplers: {error}"));
        }
        let Some(letters) = &self.sampler_seq else { return Ok(usual.to_vec()) };
        let of_letter = |letter| SamplerKind::ALL.into_iter().find(|kind| kind.letter() == letter);
        let kinds: Option<Vec<_>> = letters.chars().map(of_letter).collect();
        kinds.ok_or_else(|| {
            let known = SamplerKind::ALL.map(|kind| format!("{} ({kind})", kind.letter()));
            let letters = terminal::shown(letters);
            bad_input!("--sampler-seq {letters} has an unknown letter: use {}", known.join(", "))
        })
    }
}

/// The prompts of conversations.
#[derive(Debug, Args)]
#[command(next_help_heading = "Chat template")]
pub(crate) struct TemplateArgs {
    /// Render prompts with this template instead of the model's: the name of a built-in template,
    /// such as chatml, or a Jinja file
    #[arg(long, visible_alias = "chat-template-file", value_name = "NAME|FILE")]
    chat_template: Option<String>,
    #[arg(help = "Pass these variables to the template, as in '{\"enable_thinking\": false}'")]
    #[arg(long, value_name = "JSON")]
    chat_template_kwargs: Option<String>,
}

/// The chat template instead of a model's, and the variables of templates.
#[derive(Clone, Debug)]
pub(crate) struct TemplateChoice {
    source: Option<String>,
    variables: BTreeMap<String, serde_json::Value>,
}

impl TemplateChoice {
    /// Adds the choice to the options of a model.
    pub(crate) fn add_to(&self, loader: Loader) -> Loader {
        let loader = loader.template_variables(self.variables.clone());
        match &self.source {
            Some(source) => loader.chat_template(source),
            None => loader,
        }
    }

    /// A template by its name, its file, or itself, whose syntax is checked.
    pub(crate) fn of(given: &str) -> Result<Self> {
        let source = template_source(given)?;
        ChatTemplate::new(&source, "", "")?;
        Ok(Self { source: Some(source), variables: BTreeMap::new() })
    }

    /// A template that a client sends: the name of a built-in one, or the template itself.
    pub(crate) fn of_client(given: &str) -> Result<Self> {
        let is_template = given.contains("{{") || given.contains("{%");
        let template = ChatTemplate::builtin(given).or_else(|error| {
            if is_template { ChatTemplate::new(given, "", "") } else { Err(error) }
        });
        let template = template.map_err(|error| {
            bad_input!("`template`: it is neither built in nor a Jinja template: {error}")
        })?;
        Ok(Self { source: Some(template.source().to_owned()), variables: BTreeMap::new() })
    }
}

impl TemplateArgs {
    pub(crate) fn choice(&self) -> Result<TemplateChoice> {
        Ok(TemplateChoice { source: self.source()?, variables: self.variables()? })
    }

    fn source(&self) -> Result<Option<String>> {
        self.chat_template.as_deref().map(template_source).transpose()
    }

    fn variables(&self) -> Result<BTreeMap<String, serde_json::Value>> {
        let Some(json) = &self.chat_template_kwargs else { return Ok(BTreeMap::new()) };
        serde_json::from_str(json).map_err(|error| {
            bad_input!(
                "--chat-template-kwargs is not a JSON object: {error}; write it as in \
                 '{{\"enable_thinking\": false}}'"
            )
        })
    }
}

/// The source of a template, of which `given` is the name, the file, or the text.
fn template_source(given: &str) -> Result<String> {
    if let Ok(template) = ChatTemplate::builtin(given) {
        return Ok(template.source().to_owned());
    }
    let path = Path::new(given);
    if path.exists() {
        return sources::file_text(path);
    }
    // As in llama.cpp, the template itself.
    if given.contains("{{") || given.contains("{%") {
        return Ok(given.to_owned());
    }
    let names: Vec<_> = ChatTemplate::builtin_names().collect();
    Err(bad_input!(
        "the chat template {} is neither a file nor built in: the built-in templates are {}",
        terminal::shown(given),
        names.join(", ")
    ))
}

/// The form of the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct GrammarArgs {
    /// Answer in JSON that matches SCHEMA. @FILE reads the schema from FILE
    #[arg(long, value_name = "SCHEMA")]
    json_schema: Option<String>,
    /// Answer in JSON that matches the schema in FILE
    #[arg(long, value_name = "FILE")]
    json_schema_file: Option<PathBuf>,
    /// Answer in text that matches GRAMMAR, in GBNF or Lark. @FILE reads the grammar from FILE
    #[arg(long, value_name = "GRAMMAR")]
    grammar: Option<String>,
    /// Answer in text that matches the grammar in FILE
    #[arg(long, value_name = "FILE")]
    grammar_file: Option<PathBuf>,
}

impl GrammarArgs {
    /// Returns true if the answer has a form.
    pub(crate) fn is_given(&self) -> bool {
        self.json_schema.is_some()
            || self.json_schema_file.is_some()
            || self.grammar.is_some()
            || self.grammar_file.is_some()
    }

    /// The grammar, if one is given.
    pub(crate) fn grammar(&self) -> Result<Option<Grammar>> {
        let text = |given: &str| match given.strip_prefix('@') {
            Some(file) => sources::file_text(Path::new(file)),
            None => Ok(given.to_owned()),
        };
        let given = |given: &Option<String>, file: &Option<PathBuf>| {
            let given = given.as_deref().map(text);
            given.or_else(|| file.as_deref().map(sources::file_text)).transpose()
        };
        let schema = given(&self.json_schema, &self.json_schema_file)?;
        let grammar = given(&self.grammar, &self.grammar_file)?;
        if let Some(schema) = schema {
            if grammar.is_some() {
                return Err(bad_input!(
                    "a schema and a grammar exclude each other: give one of them"
                ));
            }
            let schema = serde_json::from_str(&schema).map_err(|error| {
                bad_input!("--json-schema is not JSON: {error}; give a schema, or @ and a file")
            })?;
            return Ok(Some(Grammar::JsonSchema(schema)));
        }
        match grammar {
            Some(grammar) if grammar.trim().is_empty() => Err(bad_input!(
                "--grammar is empty: give a rule, as in 'root ::= \"yes\" | \"no\"'"
            )),
            grammar => Ok(grammar.map(|grammar| Grammar::of_text(&grammar))),
        }
    }
}

/// Parses `KEY=TYPE:VALUE`, as llama.cpp does.
fn metadata_override(text: &str) -> Result<(String, rocmforge::gguf::Value), &'static str> {
    use rocmforge::gguf::Value;
    const EXPECTED: &str = "expected a key, a type (int, float, bool or str) and a value, as in llama.context_length=int:8192";
    let (key, typed) = text.split_once('=').ok_or(EXPECTED)?;
    let (kind, value) = typed.split_once(':').ok_or(EXPECTED)?;
    let value = match kind {
        "int" => match value.parse::<i64>().map_err(|_| EXPECTED)? {
            negative if negative < 0 => Value::I64(negative),
            number => Value::U64(number.unsigned_abs()),
        },
        "float" => Value::F32(value.parse().map_err(|_| EXPECTED)?),
        "bool" => Value::Bool(value.parse().map_err(|_| EXPECTED)?),
        "str" => Value::String(value.to_owned()),
        _ => return Err(EXPECTED),
    };
    if key.is_empty() { Err(EXPECTED) } else { Ok((key.to_owned(), value)) }
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
    fn biases_and_overrides_are_parsed() {
        assert_eq!(logit_bias("15043+1"), Ok((15043, 1.0)));
        assert_eq!(logit_bias("7-2.5"), Ok((7, -2.5)));
        assert_eq!(logit_bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        let value = |text| metadata_override(text).map(|(_, value)| value);
        assert_eq!(value("a.b=int:-5"), Ok(rocmforge::gguf::Value::I64(-5)));
        assert_eq!(value("a.b=float:1.5"), Ok(rocmforge::gguf::Value::F32(1.5)));
        assert_eq!(value("a.b=bool:true"), Ok(rocmforge::gguf::Value::Bool(true)));
        assert_eq!(value("a.b=str:x=y:z"), Ok(rocmforge::gguf::Value::String("x=y:z".into())));
        let bad = ["", "a", "a=5", "a=int:x", "=int:5", "a=byte:5"];
        assert!(bad.into_iter().all(|text| value(text).is_err()));
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
