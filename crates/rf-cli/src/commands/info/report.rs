//! The contents of a model file, as data.

use std::collections::BTreeMap;

use anyhow::Result;
use rf_gguf::{Array, Gguf, TensorInfo, Value, file_type_name};
use rf_tokenizer::Tokenizer;
use rocmforge::device::{Device, DeviceOptions, Placement};
use rocmforge::engine::tokenizer_from_gguf;
use rocmforge::{Adapter, Drafts, Loader, Pooling, Purpose, Source};
use serde::Serialize;
use serde_json::{Map, json};

use super::adapter::AdapterReport;
use super::companion::Companion;
use crate::args::ComputeArgs;
use crate::{loading, terminal};

/// Everything about a file; serialises to the JSON of `info --json`.
#[derive(Debug, Serialize)]
pub(super) struct FileReport {
    /// Missing for the demo model.
    pub(super) file: Option<String>,
    pub(super) file_bytes: u64,
    pub(super) gguf_version: u32,
    architecture: Option<String>,
    name: Option<String>,
    license: Option<String>,
    description: Option<String>,
    parameters: u64,
    /// The mix that the file names, or its most common type.
    quantization: Option<String>,
    bits_per_weight: Option<f64>,
    model: ModelKeys,
    tokenizer: Option<TokenizerReport>,
    /// The pooling of embedding models and rerankers.
    pooling: Option<&'static str>,
    /// Set for an adapter, which runs with its model only.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<AdapterReport>,
    /// Set for a file that goes with a model: an importance matrix, a control vector, a projector.
    #[serde(skip_serializing_if = "Option::is_none")]
    companion: Option<Companion>,
    memory: Option<MemoryReport>,
    pub(super) types: Vec<TypeReport>,
    pub(super) tensors: Vec<TensorReport>,
    pub(super) metadata: Map<String, serde_json::Value>,
    /// True if `run` or, for models that do not generate, `embed` can use the file.
    runnable: bool,
    /// The reasons why it cannot.
    pub(super) problems: Vec<String>,
}

/// Hyper-parameters from the metadata, also of architectures that are not supported.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct ModelKeys {
    context_length: Option<u64>,
    hidden_size: Option<u64>,
    num_layers: Option<u64>,
    num_heads: Option<u64>,
    num_kv_heads: Option<u64>,
    head_dim: Option<u64>,
    /// Elements of the latent of keys and values, which all heads share.
    pub(in crate::commands) latent_dim: Option<u64>,
    intermediate_size: Option<u64>,
    num_experts: Option<u64>,
    num_experts_used: Option<u64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<String>,
}

#[derive(Debug, Serialize)]
struct TokenizerReport {
    model: Option<String>,
    pre: Option<String>,
    vocab_size: usize,
    bos_token_id: Option<u32>,
    eos_token_id: Option<u32>,
    /// Every id that ends a generation.
    eog_token_ids: Vec<u32>,
    adds_bos: Option<bool>,
    adds_eos: Option<bool>,
    chat_template: bool,
}

#[derive(Debug, Serialize)]
struct MemoryReport {
    context_tokens: usize,
    kv_type: &'static str,
    weights_bytes: u64,
    /// The part of the weights that `--cpu-moe` keeps in host memory.
    expert_bytes: u64,
    kv_bytes: u64,
    /// The cache of one token in all layers.
    kv_bytes_per_token: usize,
    /// Recurrent states of one sequence.
    states_bytes: u64,
    buffers_bytes: u64,
    total_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct TypeReport {
    #[serde(rename = "type")]
    pub(super) name: String,
    pub(super) tensors: usize,
    parameters: u64,
    pub(super) bytes: u64,
    pub(super) supported: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct TensorReport {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) shape: Vec<u64>,
    pub(super) bytes: u64,
    offset: u64,
}

impl FileReport {
    pub(super) fn of(gguf: Gguf, context: Option<usize>, compute: &ComputeArgs) -> Result<Self> {
        let metadata = gguf.metadata();
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
        let types = types(gguf.tensors());
        let parameters = gguf.tensors().iter().map(TensorInfo::elements).sum::<u64>();
        let tensor_bytes: u64 = gguf.tensors().iter().map(|t| t.size_bytes() as u64).sum();
        let mut report = Self {
            file: gguf.paths().first().map(|path| path.display().to_string()),
            file_bytes: gguf.file_bytes(),
            gguf_version: gguf.version(),
            architecture: text("general.architecture"),
            name: text("general.name"),
            license: text("general.license"),
            description: text("general.description"),
            parameters,
            quantization: quantization(&gguf, &types),
            bits_per_weight: (parameters > 0)
                .then(|| tensor_bytes as f64 * 8.0 / parameters as f64),
            model: ModelKeys::of(&gguf),
            tokenizer: None,
            pooling: None,
            adapter: None,
            companion: None,
            memory: None,
            types,
            tensors: gguf.tensors().iter().map(TensorReport::of).collect(),
            metadata: metadata
                .iter()
                .map(|(key, value)| (key.to_owned(), metadata_json(value)))
                .collect(),
            runnable: false,
            problems: Vec::new(),
        };
        if text("general.type").as_deref() == Some("adapter") {
            report.add_adapter(gguf);
            return Ok(report);
        }
        if let Some((companion, problems)) = Companion::of(&gguf) {
            report.companion = Some(companion);
            report.problems = problems;
            return Ok(report);
        }
        report.add_tokenizer(&gguf);
        report.add_model(gguf, context, compute)?;
        Ok(report)
    }

    fn add_tokenizer(&mut self, gguf: &Gguf) {
        let Some(tokens) = gguf.metadata().get("tokenizer.ggml.tokens").and_then(Value::as_array)
        else {
            return;
        };
        let tokenizer = tokenizer_from_gguf(gguf);
        self.tokenizer = Some(TokenizerReport::of(gguf, tokens.len(), tokenizer.as_ref().ok()));
        match tokenizer {
            Ok(tokenizer) => {
                if tokenizer.pre_is_default() {
                    self.problems.push(
                        "no pre-tokenizer is named (tokenizer.ggml.pre), so a generic one is used"
                            .into(),
                    );
                }
                self.problems.extend(loading::unknown_types(&tokenizer));
                let size = tokenizer.vocab_size();
                self.problems.extend(tokenizer.ignored_ids().iter().map(|(key, id)| {
                    format!("{key} = {id} is not in the vocabulary of {size} tokens")
                }));
            }
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    /// Adds what an adapter changes, or the reason why it cannot be loaded.
    fn add_adapter(&mut self, gguf: Gguf) {
        let file = self.file.clone().unwrap_or_default();
        match Adapter::from_gguf(gguf, file) {
            Ok(adapter) => self.adapter = Some(AdapterReport::of(&adapter)),
            Err(error) => self.add_problem(error.to_string()),
        }
    }

    /// Adds the memory need, or the reason why the model cannot run.
    fn add_model(
        &mut self,
        gguf: Gguf,
        context: Option<usize>,
        compute: &ComputeArgs,
    ) -> Result<()> {
        let loader = Loader::new(Source::Demo).purpose(Purpose::Texts).drafts(Drafts::Off);
        let open = match loading::sized(loader, compute, context)?.open_gguf(gguf) {
            Ok(open) => open,
            Err(error) => {
                self.add_problem(error.to_string());
                return Ok(());
            }
        };
        let model = open.model();
        loading::warn_of_context(model, context);
        if let Some(error) = model.chat_template_error() {
            self.add_problem(error.to_string());
        }
        self.pooling = model.config().pooling.map(Pooling::name);
        let device = DeviceOptions::default().with_device(Device::Cpu).with_cpu(compute.cpu()?);
        match open.plan(&Placement::open(device)?) {
            Ok((options, need)) => {
                self.runnable = true;
                self.memory = Some(MemoryReport {
                    context_tokens: model.context_tokens(&options),
                    kv_type: options.kv_type.name(),
                    weights_bytes: need.held.weights_bytes,
                    expert_bytes: model.expert_weight_bytes(&options)?,
                    kv_bytes: need.held.kv_bytes,
                    kv_bytes_per_token: model.kv_bytes_per_token(options.kv_type),
                    states_bytes: need.held.states_bytes,
                    buffers_bytes: need.held.buffers_bytes.saturating_add(need.reserve_bytes),
                    total_bytes: need.total_bytes(),
                });
            }
            Err(error) => self.add_problem(error.to_string()),
        }
        Ok(())
    }

    fn add_problem(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Names and values of the lines of text output. Text from files is escaped.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let escaped = |text: &Option<String>| text.as_deref().map(terminal::shown);
        let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
        add("name", escaped(&self.name));
        add("architecture", escaped(&self.architecture));
        add("parameters", (self.parameters > 0).then(|| parameters(self.parameters)));
        let bits = self.bits_per_weight.map(|bits| format!(" ({bits:.2} bits per weight)"));
        let quantization = self.quantization.as_ref();
        add("quantisation", quantization.map(|name| name.clone() + &bits.unwrap_or_default()));
        add("licence", escaped(&self.license));
        self.model.add_lines(&mut add);
        add("tokenizer", self.tokenizer.as_ref().map(TokenizerReport::line));
        let template = self.tokenizer.as_ref().map(|tokenizer| tokenizer.chat_template);
        add("chat template", template.map(|has| if has { "yes" } else { "no" }.to_owned()));
        add("pooling", self.pooling.map(str::to_owned));
        add("adapter", self.adapter.as_ref().map(AdapterReport::line));
        if let Some(adapter) = &self.adapter {
            add("fits", Some(adapter.fits(self.architecture.as_deref().unwrap_or_default())));
        }
        if let Some(companion) = &self.companion {
            add("file", Some(companion.line()));
            add("encoder", companion.sizes());
            add("fits", Some(companion.fits()));
        }
        add("memory", self.memory.as_ref().map(MemoryReport::line));
        lines
    }
}

impl ModelKeys {
    /// The heads for queries, those for keys and values, and the elements of a head.
    #[cfg(feature = "gpu")]
    pub(in crate::commands) fn heads(&self) -> Option<[usize; 3]> {
        let all = [self.num_heads?, self.num_kv_heads?, self.head_dim?].map(usize::try_from);
        let [Ok(num_heads), Ok(num_kv_heads), Ok(head_dim)] = all else { return None };
        let is_possible = num_kv_heads > 0
            && num_heads.is_multiple_of(num_kv_heads)
            && (1..=512).contains(&head_dim);
        is_possible.then_some([num_heads, num_kv_heads, head_dim])
    }

    pub(in crate::commands) fn of(gguf: &Gguf) -> Self {
        let metadata = gguf.metadata();
        let architecture = metadata.get("general.architecture").and_then(Value::as_str);
        let value = |key: &str| metadata.get(&format!("{}.{key}", architecture?));
        // Where layers have different values, the first one is shown.
        let number = |key: &str| {
            let value = value(key)?;
            let number = match value.as_array() {
                Some(array) => array.integers()?.next()?,
                None => value.as_integer()?,
            };
            u64::try_from(number).ok()
        };
        let (hidden_size, num_heads) = (number("embedding_length"), number("attention.head_count"));
        let even_share = || hidden_size?.checked_div(num_heads?);
        Self {
            context_length: number("context_length"),
            hidden_size,
            num_layers: number("block_count"),
            num_heads,
            num_kv_heads: number("attention.head_count_kv").or(num_heads),
            head_dim: number("attention.key_length_mla")
                .or_else(|| number("attention.key_length"))
                .or_else(even_share),
            latent_dim: number("attention.kv_lora_rank"),
            intermediate_size: number("feed_forward_length"),
            num_experts: number("expert_count"),
            num_experts_used: number("expert_used_count"),
            rope_theta: value("rope.freq_base").and_then(Value::as_float),
            rope_scaling: value("rope.scaling.type").and_then(Value::as_str).map(str::to_owned),
        }
    }

    fn add_lines(&self, add: &mut impl FnMut(&'static str, Option<String>)) {
        add("context", self.context_length.map(|tokens| format!("{tokens} tokens")));
        add("layers", self.num_layers.map(|layers| layers.to_string()));
        let sizes = (self.hidden_size, self.intermediate_size);
        add(
            "width",
            sizes.0.map(|hidden| match sizes.1 {
                Some(inner) => format!("{hidden}, feed-forward {inner}"),
                None => hidden.to_string(),
            }),
        );
        let heads = self.num_heads.zip(self.num_kv_heads).zip(self.head_dim);
        add(
            "heads",
            heads.map(|((heads, kv), dim)| match self.latent_dim {
                Some(latent) => format!("{heads} of {dim} (a latent of {latent} for all)"),
                None => format!("{heads} of {dim} ({kv} for keys and values)"),
            }),
        );
        let experts = self.num_experts.filter(|&count| count > 0).zip(self.num_experts_used);
        add("experts", experts.map(|(count, used)| format!("{count}, {used} per token")));
        let scaling =
            self.rope_scaling.as_ref().map(|kind| format!(", scaling {}", terminal::shown(kind)));
        add(
            "rope",
            self.rope_theta.map(|theta| format!("theta {theta}") + &scaling.unwrap_or_default()),
        );
    }
}

impl TokenizerReport {
    fn of(gguf: &Gguf, vocab_size: usize, tokenizer: Option<&Tokenizer>) -> Self {
        let metadata = gguf.metadata();
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            model: text("tokenizer.ggml.model"),
            pre: text("tokenizer.ggml.pre"),
            vocab_size,
            bos_token_id: tokenizer.and_then(Tokenizer::bos),
            eos_token_id: tokenizer.and_then(Tokenizer::eos),
            eog_token_ids: tokenizer.map(|t| t.eog_ids().to_vec()).unwrap_or_default(),
            adds_bos: tokenizer.map(Tokenizer::adds_bos),
            adds_eos: tokenizer.map(Tokenizer::adds_eos),
            chat_template: metadata.contains("tokenizer.chat_template"),
        }
    }

    fn line(&self) -> String {
        let model = self.model.as_deref().unwrap_or("unknown");
        let pre = self.pre.as_ref().map(|pre| format!("/{pre}")).unwrap_or_default();
        let ends: Vec<_> = self.eog_token_ids.iter().map(u32::to_string).collect();
        let ends =
            if ends.is_empty() { String::new() } else { format!(", ends with {}", ends.join(" ")) };
        let bos = match (self.adds_bos, self.bos_token_id) {
            (Some(true), Some(bos)) => format!(", starts with {bos}"),
            _ => String::new(),
        };
        format!(
            "{}{}, {} tokens{bos}{ends}",
            terminal::shown(model),
            terminal::shown(&pre),
            self.vocab_size
        )
    }
}

impl MemoryReport {
    fn line(&self) -> String {
        format!(
            "{} = weights {}{} + KV cache {} ({} tokens of {}, {}){} + buffers {}",
            terminal::bytes(self.total_bytes),
            terminal::bytes(self.weights_bytes),
            match self.expert_bytes {
                0 => String::new(),
                bytes => format!(" (experts {})", terminal::bytes(bytes)),
            },
            terminal::bytes(self.kv_bytes),
            self.context_tokens,
            terminal::bytes(self.kv_bytes_per_token as u64),
            self.kv_type,
            match self.states_bytes {
                0 => String::new(),
                bytes => format!(" + recurrent states {} per sequence", terminal::bytes(bytes)),
            },
            terminal::bytes(self.buffers_bytes)
        )
    }
}

impl TensorReport {
    fn of(tensor: &TensorInfo) -> Self {
        Self {
            name: tensor.name().to_owned(),
            ty: tensor.ty().to_string(),
            shape: tensor.shape().to_vec(),
            bytes: tensor.size_bytes() as u64,
            offset: tensor.file_offset(),
        }
    }
}

/// The types of the tensors, the one with the most bytes first.
fn types(tensors: &[TensorInfo]) -> Vec<TypeReport> {
    let mut types: BTreeMap<String, TypeReport> = BTreeMap::new();
    for tensor in tensors {
        let name = tensor.ty().to_string();
        let entry = types.entry(name.clone()).or_insert_with(|| TypeReport {
            name,
            tensors: 0,
            parameters: 0,
            bytes: 0,
            supported: tensor.ty().dtype().is_some(),
        });
        entry.tensors += 1;
        entry.parameters += tensor.elements();
        entry.bytes += tensor.size_bytes() as u64;
    }
    let mut types: Vec<_> = types.into_values().collect();
    types.sort_by_key(|ty| std::cmp::Reverse(ty.bytes));
    types
}

fn quantization(gguf: &Gguf, types: &[TypeReport]) -> Option<String> {
    let number = gguf.metadata().get("general.file_type").and_then(Value::as_integer);
    let named = number.and_then(|number| u32::try_from(number).ok()).and_then(file_type_name);
    named.map(str::to_owned).or_else(|| types.first().map(|ty| ty.name.clone()))
}

fn parameters(count: u64) -> String {
    match count {
        0..1_000_000 => count.to_string(),
        1_000_000..1_000_000_000 => format!("{:.2} M", count as f64 / 1e6),
        _ => format!("{:.2} B", count as f64 / 1e9),
    }
}

/// A metadata value; of long arrays, such as a vocabulary, kind and length.
pub(in crate::commands) fn metadata_json(value: &Value) -> serde_json::Value {
    const LONG: usize = 64;
    match value {
        Value::Bool(value) => json!(value),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::String(text) => json!(text),
        Value::Array(array) if array.len() > LONG => {
            json!({ "array": array.element_kind().to_string(), "length": array.len() })
        }
        Value::Array(array) => elements(array),
        integer => match integer.as_integer() {
            Some(number) => {
                i64::try_from(number).map_or_else(|_| json!(number as u64), |n| json!(n))
            }
            None => serde_json::Value::Null,
        },
    }
}

fn elements(array: &Array) -> serde_json::Value {
    (0..array.len())
        .filter_map(|index| array.value(index))
        .map(|value| metadata_json(&value))
        .collect()
}
