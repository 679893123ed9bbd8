//! The report of `info` on files that go with a model: importance matrices, control vectors and
//! projectors.

use std::collections::BTreeSet;

use rf_convert::Imatrix;
use rf_gguf::{Gguf, TensorInfo, Value};
use rf_model::ControlVector;
use rf_vision::{Projector, SoundProjector};
use serde::Serialize;

use crate::terminal;

/// A file that goes with a model, and the sizes that the model must have.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Companion {
    /// Made by `rf-cli imatrix`, for `quantize`.
    Imatrix {
        datasets: Vec<String>,
        chunks: u32,
        /// Tokens per chunk; 0 if unknown.
        chunk_tokens: u32,
        tensors: usize,
        /// Those of the model, as far as its layers have them.
        layers: usize,
        hidden_size: Option<u64>,
        /// Experts per layer; 0 if there are none.
        experts: u64,
    },
    /// Directions that are added to the output of layers.
    ControlVector {
        /// The architecture of the model that it was made of, if the file names it.
        made_for: Option<String>,
        /// The first and the last layer with a direction.
        layers: [usize; 2],
        directions: usize,
        hidden_size: u64,
    },
    /// The encoder of pictures or sounds.
    Projector {
        projector: Option<String>,
        encodes: Vec<&'static str>,
        encoder_layers: Option<u64>,
        /// Sides of the picture of the encoder and of a patch, in pixels.
        image_size: Option<u64>,
        patch_size: Option<u64>,
        hidden_size: Option<u64>,
        supported: bool,
    },
}

impl Companion {
    /// The file, unless it is none of these, and the problems with it.
    pub(super) fn of(gguf: &Gguf) -> Option<(Self, Vec<String>)> {
        let text = |key: &str| gguf.metadata().get(key).and_then(Value::as_str);
        let (kind, architecture) = (text("general.type"), text("general.architecture"));
        let has_sums = || gguf.tensors().iter().any(|tensor| tensor.name().ends_with(SUMS));
        match (kind, architecture) {
            (Some("imatrix"), _) => Some(imatrix(gguf)),
            (_, Some("clip")) => Some(projector(gguf)),
            (_, Some("controlvector")) => Some(control_vector(gguf)),
            (_, None) if has_sums() => Some(imatrix(gguf)),
            _ => None,
        }
    }

    /// The line of the text output: what it is, and how it is given.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Imatrix { datasets, chunks, chunk_tokens, tensors, .. } => {
                let of = match chunk_tokens {
                    0 => String::new(),
                    tokens => format!(" of {tokens} tokens"),
                };
                let from = match datasets.as_slice() {
                    [] => String::new(),
                    texts => format!(" of {}", terminal::shown(&texts.join(", "))),
                };
                format!(
                    "importance matrix for {tensors} tensors, from {chunks} chunks{of}{from}; give it \
                     as quantize --imatrix FILE"
                )
            }
            Self::ControlVector { layers: [first, last], directions, .. } => format!(
                "control vector with {directions} directions, layers {first} to {last}; give it as \
                 --control-vector FILE"
            ),
            Self::Projector { projector, encodes, supported, .. } => {
                let name =
                    projector.as_deref().map_or_else(|| "unknown".to_owned(), terminal::shown);
                let advice = if *supported { "; give it as --mmproj FILE" } else { "" };
                let inputs = match encodes.as_slice() {
                    [] => "unknown input".to_owned(),
                    inputs => inputs.join(" and "),
                };
                format!("projector of type {name} for {inputs}{advice}")
            }
        }
    }

    /// The line of the text output with the models that it fits.
    pub(super) fn fits(&self) -> String {
        match self {
            Self::Imatrix { layers, hidden_size, experts, .. } => {
                let width = hidden_size.map(|width| format!(" and width {width}"));
                let experts = match experts {
                    0 | 1 => String::new(),
                    experts => format!(", with {experts} experts"),
                };
                format!("models of {layers} layers{}{experts}", width.unwrap_or_default())
            }
            Self::ControlVector { made_for, layers: [_, last], hidden_size, .. } => {
                let name = made_for.as_deref().map_or_else(
                    || "models".to_owned(),
                    |name| format!("{} models", terminal::shown(name)),
                );
                format!("{name} of width {hidden_size} with more than {last} layers")
            }
            Self::Projector { hidden_size, .. } => match hidden_size {
                Some(width) => format!("models of width {width}"),
                None => "unknown".to_owned(),
            },
        }
    }

    /// The line of the text output with the sizes of the file itself.
    pub(super) fn sizes(&self) -> Option<String> {
        let Self::Projector { encoder_layers, image_size, patch_size, .. } = self else {
            return None;
        };
        let layers = encoder_layers.map(|layers| format!("{layers} layers"));
        let pixels = image_size
            .zip(*patch_size)
            .map(|(image, patch)| format!("pictures of {image} pixels in patches of {patch}"));
        let parts: Vec<_> = [layers, pixels].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The end of the names of sums in importance matrices.
const SUMS: &str = ".in_sum2";

fn imatrix(gguf: &Gguf) -> (Companion, Vec<String>) {
    let mut problems = Vec::new();
    let read = Imatrix::from_gguf(gguf);
    let (datasets, chunks, chunk_tokens) = match &read {
        Ok(imatrix) => {
            problems.extend(imatrix.unseen_experts().map(|(name, unseen)| {
                format!("{unseen} experts of '{name}' were never selected: take a longer text")
            }));
            (imatrix.datasets.clone(), imatrix.num_chunks, imatrix.chunk_tokens)
        }
        Err(problem) => {
            problems.push(problem.to_string());
            Default::default()
        }
    };
    let sums = || {
        let tensors = gguf.tensors().iter();
        tensors.filter_map(|tensor| Some((tensor.name().strip_suffix(SUMS)?, tensor.shape())))
    };
    let is_input = |name: &str| ["attn_q.", "attn_qkv."].iter().any(|part| name.contains(part));
    let layers: BTreeSet<_> = sums().filter_map(|(name, _)| layer(name)).collect();
    let companion = Companion::Imatrix {
        datasets,
        chunks,
        chunk_tokens,
        tensors: sums().count(),
        layers: layers.last().map_or(0, |last| last + 1),
        hidden_size: sums().find(|(name, _)| is_input(name)).map(|(_, shape)| shape[0]),
        experts: sums()
            .filter(|(name, _)| name.contains("_exps"))
            .filter_map(|(_, shape)| shape.get(1).copied())
            .max()
            .unwrap_or(0),
    };
    (companion, problems)
}

fn control_vector(gguf: &Gguf) -> (Companion, Vec<String>) {
    let made_for = gguf.metadata().get("controlvector.model_hint").and_then(Value::as_str);
    let name = |tensor: &TensorInfo| tensor.name().strip_prefix("direction.")?.parse().ok();
    let layers: BTreeSet<usize> = gguf.tensors().iter().filter_map(name).collect();
    let ends = [layers.first(), layers.last()].map(|layer| layer.copied().unwrap_or(0));
    let companion = Companion::ControlVector {
        made_for: made_for.map(str::to_owned),
        layers: ends,
        directions: layers.len(),
        hidden_size: gguf.tensors().first().map_or(0, TensorInfo::elements),
    };
    let file = gguf.paths().first().map(|path| path.display().to_string());
    let problem = ControlVector::from_gguf(gguf, file.unwrap_or_default()).err();
    (companion, problem.map(|problem| problem.to_string()).into_iter().collect())
}

fn projector(gguf: &Gguf) -> (Companion, Vec<String>) {
    let metadata = gguf.metadata();
    let has = |key: &str| matches!(metadata.get(key), Some(Value::Bool(true)));
    let (sees, hears) = (has("clip.has_vision_encoder"), has("clip.has_audio_encoder"));
    let encoder = if sees { "vision" } else { "audio" };
    let number = |key: &str| {
        let number = metadata.get(&format!("clip.{encoder}.{key}"))?.as_integer()?;
        u64::try_from(number).ok()
    };
    let name = metadata.get(&format!("clip.{encoder}.projector_type"));
    let name = name.or_else(|| metadata.get("clip.projector_type")).and_then(Value::as_str);
    // An encoder that the file has and that is not supported is a problem, but the other one is
    // used.
    let pictures = sees.then(|| Projector::open(gguf).err());
    let sounds = hears.then(|| SoundProjector::open(gguf).err());
    let supported = [&pictures, &sounds].into_iter().any(|read| matches!(read, Some(None)));
    let problems = [pictures, sounds].into_iter().flatten().flatten();
    let mut problems: Vec<String> = problems.map(|problem| problem.to_string()).collect();
    if !sees && !hears {
        problems.extend(Projector::open(gguf).err().map(|problem| problem.to_string()));
    }
    let companion = Companion::Projector {
        projector: name.map(str::to_owned),
        encodes: [(sees, "pictures"), (hears, "sounds")]
            .into_iter()
            .filter_map(|(encodes, what)| encodes.then_some(what))
            .collect(),
        encoder_layers: number("block_count"),
        image_size: number("image_size"),
        patch_size: number("patch_size"),
        hidden_size: number("projection_dim"),
        supported,
    };
    (companion, problems)
}

/// The layer in the name of a tensor.
pub(super) fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}
