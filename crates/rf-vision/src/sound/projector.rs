//! Projector files with an audio encoder.

use std::fmt;
use std::sync::Arc;

use rf_gguf::Gguf;
use rf_graph::{Graph, KvLayout, KvType, Program, Weight};

use super::kind::{SoundKind, SoundNetwork, SoundSettings};
use super::mel::Spectrogram;
use super::{Sound, encoders};
use crate::build::Builder;
use crate::chunk::{Piece, RowGroup};
use crate::error::Error;
use crate::modality::Modality;
use crate::network::PAGE_TOKENS;
use crate::weights::ProjectorWeights;

/// The audio encoder of a projector (`mmproj`) file. Its weights stay in the file until a
/// [`SoundEncoder`](crate::SoundEncoder) loads them.
#[derive(Clone)]
pub struct SoundProjector {
    kind: &'static SoundKind,
    bins: usize,
    network: Arc<dyn SoundNetwork>,
    graph: Graph,
    weights: Vec<Weight>,
}

impl SoundProjector {
    /// Reads the metadata and finds the tensors of a projector.
    ///
    /// # Errors
    ///
    /// If the file is no projector of sound, its type is not supported, a tensor is missing, has an
    /// unexpected shape, or is not used.
    pub fn open(gguf: &Gguf) -> Result<Self, Error> {
        let name = Modality::Sound.projector_type(gguf)?;
        let kind = encoders::ALL.iter().find(|kind| kind.name == name);
        let Some(kind) = kind else {
            let supported = encoders::ALL.iter().map(|kind| kind.name).collect();
            return Err(Error::UnsupportedProjector { name, supported });
        };
        let settings = SoundSettings::read(gguf.metadata())?;
        let mut builder = Builder::new(&settings, ProjectorWeights::new(gguf, Modality::Sound));
        let network = Arc::from((kind.build)(&mut builder)?);
        let (graph, weights) = builder.finish(kind.name)?;
        Ok(Self { kind, bins: settings.bins, network, graph, weights })
    }

    /// The type of the projector, such as `ultravox`.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Elements per row: the input width of the text model.
    pub fn width(&self) -> usize {
        self.network.width()
    }

    /// The parts of a sound in the prompt, from the number of its samples at 16 kHz alone.
    pub fn pieces(&self, samples: usize) -> Vec<Piece> {
        let [before, after] =
            self.kind.around.map(|text| (!text.is_empty()).then(|| Piece::Text(text.to_owned())));
        let group = |frames| {
            let rows = self.network.rows(frames);
            Piece::Rows(RowGroup { rows, grid: None, non_causal: false })
        };
        let groups = self.kind.method.frames(samples).into_iter().map(group);
        before.into_iter().chain(groups).chain(after).collect()
    }

    /// The spectrograms of a sound as the encoder gets them, one for each group of rows of
    /// [`Self::pieces`] in their order.
    pub fn spectrograms(&self, sound: &Sound) -> Vec<Spectrogram> {
        self.kind.method.pieces(sound, self.bins)
    }

    /// The program that computes the embeddings, for backends and memory plans. It is not fused.
    pub fn program(&self) -> Program {
        let max_rows = self.network.max_rows();
        let num_pages = max_rows.div_ceil(PAGE_TOKENS) + 1;
        let layers = self.network.kv_layers();
        Program {
            graph: self.graph.clone(),
            weights: self.weights.clone(),
            kv: KvLayout::new(layers, PAGE_TOKENS, num_pages, KvType::F32),
            max_batch_tokens: max_rows,
            max_output_rows: max_rows,
        }
    }

    pub(super) fn network(&self) -> &dyn SoundNetwork {
        &*self.network
    }
}

impl fmt::Debug for SoundProjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoundProjector").field("name", &self.name()).finish_non_exhaustive()
    }
}
