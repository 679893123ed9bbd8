//! Qwen 3 ASR and Omni: blocks of a second, reduced by convolutions over time and pitch, then a
//! transformer over all blocks of a piece.

use rf_graph::layer::NormKind;
use rf_graph::{Activation, KvLayer};

use crate::error::Error;
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Stage, StageRunner};
use crate::sound::conv::{Conv, Plane};
use crate::sound::kind::{SoundBuilder, SoundKind, SoundNetwork};
use crate::sound::mel::{BLOCK_FRAMES, Method, Spectrogram};

pub(in crate::sound) static QWEN3A: SoundKind = SoundKind {
    name: "qwen3a",
    method: Method::WhisperBlocks,
    around: ["<|audio_start|>", "<|audio_end|>"],
    build,
};

/// Rows of a batch of convolutions.
const BATCH: usize = 512;

/// Rows of a block, after three convolutions that take every second frame.
const BLOCK_ROWS: usize = 13;

struct Qwen3A {
    transformer: Transformer,
    /// The positions of a block.
    positions: Vec<f32>,
    convolutions: [Stage; 3],
    layers: Stage,
}

fn build(b: &mut SoundBuilder<'_>) -> Result<Box<dyn SoundNetwork>, Error> {
    let settings = b.settings.clone();
    let transformer = Transformer { activation: Activation::GeluErf, ..settings.transformer };
    let Transformer { hidden_size, num_layers, norm_eps, .. } = transformer;
    let spec = b.spec(&transformer, NormKind::Layer);

    let (mut channels, mut pitches) = (1, settings.bins);
    let mut convolution = |b: &mut SoundBuilder<'_>, name: &str| {
        let x = Conv::SQUARE.linear(b, name, channels)?;
        channels = x.width;
        pitches = Conv::SQUARE.output([1, pitches])[1];
        let x = b.activation(x, Activation::GeluErf);
        Ok::<_, Error>(b.end(x))
    };
    let convolutions = [
        convolution(b, "a.conv2d.1")?,
        convolution(b, "a.conv2d.2")?,
        convolution(b, "a.conv2d.3")?,
    ];

    let x = b.input(channels * pitches);
    let positions = b.input(hidden_size);
    let x = b.linear_to("a.conv_out", x, hidden_size)?;
    let x = b.add(x, positions);
    let x = b.layers(&spec, 0..num_layers, x)?;
    let x = b.norm("a.post_ln", NormKind::Layer, norm_eps, x)?;
    let x = b.linear("mm.a.mlp.1", x)?;
    let x = b.activation(x, Activation::GeluErf);
    let x = b.linear("mm.a.mlp.2", x)?;
    let layers = b.end(x);

    let positions = b.first_positions(BLOCK_ROWS, hidden_size)?;
    Ok(Box::new(Qwen3A { transformer, positions, convolutions, layers }))
}

impl SoundNetwork for Qwen3A {
    fn width(&self) -> usize {
        self.layers.width
    }

    fn rows(&self, frames: usize) -> usize {
        frames / BLOCK_FRAMES * BLOCK_ROWS
    }

    fn max_rows(&self) -> usize {
        BATCH
    }

    fn kv_layers(&self) -> Vec<KvLayer> {
        self.transformer.kv_layers()
    }

    fn encode(&self, piece: &Spectrogram, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let (mut features, mut positions) = (Vec::new(), Vec::new());
        for block in piece.values.chunks_exact(BLOCK_FRAMES * piece.bins) {
            // Time is the fast axis.
            let pitches = 0..piece.bins;
            let values = pitches.flat_map(|bin| block[bin..].iter().step_by(piece.bins)).copied();
            let size = [BLOCK_FRAMES, piece.bins];
            let mut x = Plane { values: values.collect(), channels: 1, size };
            for stage in self.convolutions {
                x = Conv::SQUARE.run(stage, &x, BATCH, run)?;
            }
            let [times, pitches] = x.size;
            for time in 0..times {
                for channel in 0..x.channels {
                    let value = |pitch| x.values[(pitch * times + time) * x.channels + channel];
                    features.extend((0..pitches).map(value));
                }
            }
            positions.extend_from_slice(&self.positions);
        }
        let rows = self.rows(piece.frames());
        run.groups(self.layers, &[&features, &positions], &AttentionGroup::all(rows))
    }
}
