//! Whisper's encoder with the projections of Ultravox, Qwen 2 Audio and Voxtral.

use rf_graph::layer::NormKind;
use rf_graph::{Activation, KvLayer};

use crate::build::Rows;
use crate::error::Error;
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Stage, StageRunner};
use crate::rows::mean_of_each;
use crate::sound::conv::{Conv, Plane};
use crate::sound::kind::{SoundBuilder, SoundKind, SoundNetwork};
use crate::sound::mel::{Method, Spectrogram, WHISPER_FRAMES};

pub(in crate::sound) static ULTRAVOX: SoundKind = SoundKind {
    name: "ultravox",
    method: Method::Whisper,
    around: ["", ""],
    build: |b| build(b, |_| false, ultravox),
};

pub(in crate::sound) static QWEN2A: SoundKind = SoundKind {
    name: "qwen2a",
    method: Method::Whisper,
    around: ["<|audio_bos|>", "<|audio_eos|>"],
    build: |b| build(b, |_| true, |b, x| b.linear("mm.a.fc", x)),
};

/// The published models stack four rows of the encoder. A factor that divides the rows after
/// averaging, as llama.cpp requires, stands for averaged rows.
pub(in crate::sound) static VOXTRAL: SoundKind = SoundKind {
    name: "voxtral",
    method: Method::Whisper,
    around: ["[BEGIN_AUDIO]", ""],
    build: |b| build(b, |stack| (ROWS / POOLED).is_multiple_of(stack), voxtral),
};

/// Rows of a piece: the second convolution takes every second frame.
const ROWS: usize = WHISPER_FRAMES / 2;

/// Successive rows whose mean is a row.
const POOLED: usize = 2;

struct Whisper {
    transformer: Transformer,
    positions: Vec<f32>,
    /// The first convolution.
    start: Stage,
    /// The second one, and the layers.
    layers: Stage,
    pools: bool,
    norm: Stage,
    stack: usize,
    head: Stage,
}

fn build(
    b: &mut SoundBuilder<'_>,
    pools: fn(usize) -> bool,
    head: fn(&mut SoundBuilder<'_>, Rows) -> Result<Rows, Error>,
) -> Result<Box<dyn SoundNetwork>, Error> {
    let settings = b.settings.clone();
    let transformer = Transformer { activation: Activation::GeluErf, ..settings.transformer };
    let Transformer { hidden_size, num_layers, norm_eps, .. } = transformer;
    let spec = b.spec(&transformer, NormKind::Layer);

    let x = Conv::line(1).linear(b, "a.conv1d.1", settings.bins)?;
    let x = b.activation(x, Activation::GeluErf);
    let channels = x.width;
    let start = b.end(x);

    let windows = b.input(channels * 3);
    let positions = b.input(hidden_size);
    let x = Conv::line(2).linear_of(b, "a.conv1d.2", windows)?;
    if x.width != hidden_size {
        return Err(Error::Shape {
            name: "a.conv1d.2.weight".to_owned(),
            found: vec![3, channels as u64, x.width as u64],
            expected: vec![3, channels as u64, hidden_size as u64],
        });
    }
    let x = b.activation(x, Activation::GeluErf);
    let x = b.add(x, positions);
    let x = b.layers(&spec, 0..num_layers, x)?;
    let layers = b.end(x);

    let x = b.input(hidden_size);
    let x = b.norm("a.post_ln", NormKind::Layer, norm_eps, x)?;
    let norm = b.end(x);

    let stack = settings.stack;
    let x = b.input(hidden_size * stack);
    let x = head(b, x)?;
    let head = b.end(x);

    let positions = b.first_positions(ROWS, hidden_size)?;
    let pools = pools(stack);
    Ok(Box::new(Whisper { transformer, positions, start, layers, pools, norm, stack, head }))
}

/// A gated unit, whose gate is the second half of the columns.
fn ultravox(b: &mut SoundBuilder<'_>, x: Rows) -> Result<Rows, Error> {
    const EPS: f32 = 1e-6;
    let x = b.norm("mm.a.norm_pre", NormKind::Rms, EPS, x)?;
    let x = b.linear("mm.a.mlp.1", x)?;
    let width = x.width / 2;
    if width == 0 || x.width != 2 * width {
        return Err(Error::Setting {
            key: "mm.a.mlp.1.weight".to_owned(),
            value: format!("{} rows", x.width),
            reason: "they must be even",
        });
    }
    let g = &mut b.weights.graph;
    let (up, gate) = (g.slice(x.id, 0..width), g.slice(x.id, width..2 * width));
    let id = g.glu(Activation::Silu, gate, up);
    let x = b.norm("mm.a.norm_mid", NormKind::Rms, EPS, Rows { id, width })?;
    b.linear("mm.a.mlp.2", x)
}

fn voxtral(b: &mut SoundBuilder<'_>, x: Rows) -> Result<Rows, Error> {
    let x = b.linear("mm.a.mlp.1", x)?;
    let x = b.activation(x, Activation::GeluErf);
    b.linear("mm.a.mlp.2", x)
}

impl Whisper {
    /// Rows before they are stacked.
    fn encoded_rows(&self) -> usize {
        if self.pools { ROWS / POOLED } else { ROWS }
    }
}

impl SoundNetwork for Whisper {
    fn width(&self) -> usize {
        self.head.width
    }

    fn rows(&self, _frames: usize) -> usize {
        self.encoded_rows().div_ceil(self.stack)
    }

    fn max_rows(&self) -> usize {
        ROWS
    }

    fn kv_layers(&self) -> Vec<KvLayer> {
        self.transformer.kv_layers()
    }

    fn encode(&self, piece: &Spectrogram, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let width = self.transformer.hidden_size;
        let size = [piece.frames(), 1];
        let mel = Plane { values: piece.values.clone(), channels: piece.bins, size };
        let x = Conv::line(1).run(self.start, &mel, ROWS, run)?;
        let windows = Conv::line(2).windows(&x, 0..ROWS);
        let mut x =
            run.groups(self.layers, &[&windows, &self.positions], &AttentionGroup::all(ROWS))?;
        if self.pools {
            x = mean_of_each(&x, width, POOLED);
        }
        x = run.rows(self.norm, &[&x], self.encoded_rows())?;
        let rows = self.rows(piece.frames());
        // The last row may have less to stack: zeros follow, as in the models' training.
        x.resize(rows * self.stack * width, 0.0);
        run.rows(self.head, &[&x], rows)
    }
}
