//! Gemma 4 for sound: a conformer, whose layers have two feed-forward units, attention to the rows
//! just before and a causal convolution. Attention and the convolution run on the host between the
//! stages.

use rf_graph::layer::{LayerWeights, NormKind};
use rf_graph::{Activation, Function, Gating, KvLayer};

use super::local_attention::LocalAttention;
use crate::build::Rows;
use crate::error::Error;
use crate::network::{Stage, StageRunner};
use crate::sound::conv::{Conv, Plane};
use crate::sound::kind::{SoundBuilder, SoundKind, SoundNetwork};
use crate::sound::mel::{Method, Spectrogram};

pub(in crate::sound) static GEMMA4A: SoundKind =
    SoundKind { name: "gemma4a", method: Method::Gemma, around: ["<|audio>", "<audio|>"], build };

const EPS: f32 = 1e-6;

/// Rows of a batch: those of 30 seconds after two convolutions that take every second frame.
const MAX_ROWS: usize = 750;

/// Rows that the causal convolution of a layer sees.
const TAPS: usize = 5;

struct Gemma4A {
    /// Width of a row in the encoder.
    hidden: usize,
    convolutions: [Stage; 2],
    /// Up to the queries, keys and values of the first layer.
    start: Stage,
    layers: Vec<Layer>,
    /// Width of the embeddings.
    width: usize,
}

struct Layer {
    attention: LocalAttention,
    /// From the output of attention to the gate of the convolution.
    middle: Stage,
    /// For each column the factors on its last rows.
    taps: Vec<f32>,
    /// From the output of the convolution to the queries, keys and values of the next layer, or to
    /// the embeddings.
    end: Stage,
}

fn build(b: &mut SoundBuilder<'_>) -> Result<Box<dyn SoundNetwork>, Error> {
    let settings = b.settings.clone();
    let t = settings.transformer;
    let width = t.hidden_size;
    if t.num_layers == 0 || t.num_heads * t.head_dim != width {
        return Err(Error::Setting {
            key: "clip.audio.attention.head_count".to_owned(),
            value: t.num_heads.to_string(),
            reason: "the heads must be as wide as a row",
        });
    }

    let (mut channels, mut pitches) = (1, settings.bins);
    let mut convolution = |b: &mut SoundBuilder<'_>, name: &str| {
        let x = Conv::SQUARE.linear(b, name, channels)?;
        channels = x.width;
        pitches = Conv::SQUARE.output([1, pitches])[1];
        let x = b.norm(&format!("{name}.norm"), NormKind::Layer, EPS, x)?;
        let x = b.activation(x, Activation::Relu);
        Ok::<_, Error>(b.end(x))
    };
    let convolutions = [convolution(b, "a.conv1d.0")?, convolution(b, "a.conv1d.1")?];

    let x = b.input(channels * pitches);
    let x = b.linear_to("a.input_projection", x, width)?;
    let start = before_attention(b, 0, x)?;
    let mut layers = Vec::with_capacity(t.num_layers);
    let mut output = width;
    for index in 0..t.num_layers {
        let name = format!("a.blk.{index}");
        let attention = LocalAttention::new(b, &name)?;
        let taps = b.weights.values(&format!("{name}.conv_dw.weight"), width, TAPS)?;
        let middle = after_attention(b, &name)?;
        let x = after_convolution(b, &name)?;
        let end = if index + 1 < t.num_layers {
            before_attention(b, index + 1, x)?
        } else {
            let x = b.linear("a.pre_encode.out", x)?;
            let x = b.norm("mm.a.soft_emb_norm", NormKind::Rms, EPS, x)?;
            let x = b.linear("mm.a.input_projection", x)?;
            output = x.width;
            b.end(x)
        };
        layers.push(Layer { attention, middle, taps, end });
    }
    Ok(Box::new(Gemma4A { hidden: width, convolutions, start, layers, width: output }))
}

/// Ends a stage with rows after the first feed-forward unit of a layer, and their queries, keys and
/// values.
fn before_attention(b: &mut SoundBuilder<'_>, layer: usize, x: Rows) -> Result<Stage, Error> {
    let name = format!("a.blk.{layer}");
    let x = feed_forward(b, &name, "", x)?;
    let normed = b.norm(&format!("{name}.attn_pre_norm"), NormKind::Rms, EPS, x)?;
    let mut outputs = vec![x];
    for part in ["attn_q", "attn_k", "attn_v"] {
        outputs.push(b.linear_to(&format!("{name}.{part}"), normed, x.width)?);
    }
    Ok(b.end_all(&outputs))
}

/// The stage from the output of attention to rows, and the input of the convolution.
fn after_attention(b: &mut SoundBuilder<'_>, name: &str) -> Result<Stage, Error> {
    let width = b.settings.transformer.hidden_size;
    let residual = b.input(width);
    let x = b.input(width);
    let x = b.linear_to(&format!("{name}.attn_out"), x, width)?;
    let x = b.norm(&format!("{name}.attn_post_norm"), NormKind::Rms, EPS, x)?;
    let x = b.add(residual, x);
    let y = b.norm(&format!("{name}.conv_norm"), NormKind::Rms, EPS, x)?;
    let y = b.linear_to(&format!("{name}.conv_pw1"), y, 2 * width)?;
    let g = &mut b.weights.graph;
    let (value, gate) = (g.slice(y.id, 0..width), g.slice(y.id, width..2 * width));
    let id = g.gate(Gating::Sigmoid, value, gate);
    Ok(b.end_all(&[x, Rows { id, width }]))
}

/// The rest of a layer, a stage that begins with rows and the output of the convolution.
fn after_convolution(b: &mut SoundBuilder<'_>, name: &str) -> Result<Rows, Error> {
    let width = b.settings.transformer.hidden_size;
    let residual = b.input(width);
    let y = b.input(width);
    let y = b.norm(&format!("{name}.norm_conv"), NormKind::Rms, EPS, y)?;
    let y = b.activation(y, Activation::Silu);
    let y = b.linear_to(&format!("{name}.conv_pw2"), y, width)?;
    let x = b.add(residual, y);
    let x = feed_forward(b, name, "_1", x)?;
    b.norm(&format!("{name}.ln2"), NormKind::Rms, EPS, x)
}

/// `x + ½ · ffn(x)`, the names of the unit's tensors having this end.
fn feed_forward(b: &mut SoundBuilder<'_>, layer: &str, end: &str, x: Rows) -> Result<Rows, Error> {
    let inner = b.settings.transformer.intermediate_size;
    let y = b.norm(&format!("{layer}.ffn_norm{end}"), NormKind::Rms, EPS, x)?;
    let y = b.linear_to(&format!("{layer}.ffn_up{end}"), y, inner)?;
    let y = b.activation(y, Activation::Silu);
    let y = b.linear_to(&format!("{layer}.ffn_down{end}"), y, x.width)?;
    let y = b.norm(&format!("{layer}.ffn_post_norm{end}"), NormKind::Rms, EPS, y)?;
    let id = b.weights.graph().map(y.id, Function::Scale(0.5));
    Ok(b.add(x, Rows { id, ..y }))
}

impl SoundNetwork for Gemma4A {
    fn width(&self) -> usize {
        self.width
    }

    fn rows(&self, frames: usize) -> usize {
        let reduced = |size| Conv::SQUARE.output([1, size])[1];
        reduced(reduced(frames))
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    fn kv_layers(&self) -> Vec<KvLayer> {
        Vec::new()
    }

    fn encode(&self, piece: &Spectrogram, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let size = [piece.bins, piece.frames()];
        let mut x = Plane { values: piece.values.clone(), channels: 1, size };
        for stage in self.convolutions {
            x = Conv::SQUARE.run(stage, &x, MAX_ROWS, run)?;
        }
        let rows = x.size[1];
        let mut x = run.rows(self.start, &[&x.values], rows)?;
        for layer in &self.layers {
            let parts: Vec<&[f32]> = x.chunks_exact(rows * self.hidden).collect();
            let &[residual, q, k, v] = &*parts else { unreachable!("the outputs of a stage") };
            let attended = layer.attention.run(q, k, v);
            let y = run.rows(layer.middle, &[residual, &attended], rows)?;
            let (residual, gated) = y.split_at(rows * self.hidden);
            let convolved = self.causal_convolution(&layer.taps, gated);
            x = run.rows(layer.end, &[residual, &convolved], rows)?;
        }
        Ok(x)
    }
}

impl Gemma4A {
    /// Each column by itself; a row sees those before it.
    fn causal_convolution(&self, taps: &[f32], x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        for (row, out) in out.chunks_exact_mut(self.hidden).enumerate() {
            for tap in (TAPS - 1).saturating_sub(row)..TAPS {
                let seen = &x[(row + tap + 1 - TAPS) * self.hidden..][..self.hidden];
                let factors = taps[tap..].iter().step_by(TAPS);
                for ((out, value), factor) in out.iter_mut().zip(seen).zip(factors) {
                    *out += value * factor;
                }
            }
        }
        out
    }
}
