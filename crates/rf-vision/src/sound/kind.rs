//! A type of audio projector as data: its spectrogram, the text around its rows, and its network.

use rf_gguf::Metadata;
use rf_graph::KvLayer;

use super::mel::{Method, Spectrogram};
use crate::build::Builder;
use crate::error::Error;
use crate::modality::{Keys, Modality, Transformer};
use crate::network::StageRunner;

/// A type of audio projector.
pub(super) struct SoundKind {
    /// The type in files.
    pub(super) name: &'static str,
    pub(super) method: Method,
    /// Text before and after the rows.
    pub(super) around: [&'static str; 2],
    pub(super) build: fn(&mut SoundBuilder<'_>) -> Result<Box<dyn SoundNetwork>, Error>,
}

/// The graph of an audio projector under construction.
pub(super) type SoundBuilder<'a> = Builder<'a, SoundSettings>;

/// The settings of an audio projector.
#[derive(Clone)]
pub(super) struct SoundSettings {
    /// Values per frame of a spectrogram.
    pub(super) bins: usize,
    /// Successive rows that become one.
    pub(super) stack: usize,
    pub(super) transformer: Transformer,
}

impl SoundSettings {
    pub(super) fn read(metadata: &Metadata) -> Result<Self, Error> {
        let keys = Keys { metadata, modality: Modality::Sound };
        Ok(Self {
            bins: keys.number("num_mel_bins", 1..=1024)?,
            stack: keys.optional_or("projector.stack_factor", 1..=64, Some(1))?,
            transformer: Transformer::read(&keys)?,
        })
    }
}

impl SoundBuilder<'_> {
    /// The first rows of the table of positions, which each piece or block begins with.
    pub(super) fn first_positions(&mut self, rows: usize, width: usize) -> Result<Vec<f32>, Error> {
        let name = "a.position_embd.weight";
        let places = self.weights.axis(name, 1)?;
        let mut positions = self.weights.values(name, places, width)?;
        if places < rows {
            return Err(Error::Shape {
                name: name.to_owned(),
                found: vec![width as u64, places as u64],
                expected: vec![width as u64, rows as u64],
            });
        }
        positions.truncate(rows * width);
        Ok(positions)
    }
}

/// The network of an audio projector.
pub(super) trait SoundNetwork: Send + Sync {
    /// The embeddings of a piece of a sound.
    fn encode(&self, piece: &Spectrogram, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error>;

    /// Elements of a row of embeddings.
    fn width(&self) -> usize;

    /// The rows of a piece of so many frames.
    fn rows(&self, frames: usize) -> usize;

    /// The most rows of a batch.
    fn max_rows(&self) -> usize;

    /// The layers of the cache.
    fn kv_layers(&self) -> Vec<KvLayer>;
}
