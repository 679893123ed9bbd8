//! Projector files: what they encode, and the sizes that pictures get.

use std::fmt;
use std::sync::Arc;

use rf_gguf::Gguf;
use rf_graph::{Graph, KvLayout, KvType, Program, Weight};

use crate::build::Builder;
use crate::chunk::Piece;
use crate::config::{ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::ProjectorKind;
use crate::modality::Modality;
use crate::network::{Network, PAGE_TOKENS};
use crate::plan::TilePlan;
use crate::rgb::Rgb;
use crate::weights::ProjectorWeights;
use crate::{encoders, layout};

/// A projector (`mmproj`) file: the vision encoder that belongs to a text model. Its weights stay
/// in the file until an [`Encoder`](crate::Encoder) loads them.
#[derive(Clone)]
pub struct Projector {
    kind: &'static ProjectorKind,
    settings: ProjectorSettings,
    network: Arc<dyn Network>,
    graph: Graph,
    weights: Vec<Weight>,
    width: usize,
}

impl Projector {
    /// Reads the metadata and finds the tensors of a projector.
    ///
    /// # Errors
    ///
    /// If the file is no projector of pictures, its type is not supported, a tensor is missing, has
    /// an unexpected shape, or is not used.
    pub fn open(gguf: &Gguf) -> Result<Self, Error> {
        let name = Modality::Vision.projector_type(gguf)?;
        let kind = encoders::ALL.iter().find(|kind| kind.name == name);
        let Some(kind) = kind else {
            let supported = encoders::ALL.iter().map(|kind| kind.name).collect();
            return Err(Error::UnsupportedProjector { name, supported });
        };
        let settings =
            ProjectorSettings::read(kind.merge, kind.limits, kind.tile_text, gguf.metadata())?;
        let mut builder = Builder::new(&settings, ProjectorWeights::new(gguf, Modality::Vision));
        let network = Arc::from((kind.build)(&mut builder)?);
        let (graph, weights) = builder.finish(kind.name)?;
        let mut projector = Self { kind, width: 0, settings, network, graph, weights };
        projector.width = projector.network.width();
        Ok(projector)
    }

    /// The type of the projector, such as `qwen3vl_merger`.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Elements per row: the input width of the text model, times one plus its deepstack layers. A
    /// text model of another width belongs to another projector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The limits on the tokens of a picture; `None` if its tokens follow from fixed tile sizes.
    pub fn token_limits(&self) -> Option<TokenLimits> {
        self.settings.limits
    }

    /// Replaces limits on the tokens of a picture. A limit that is `None` stays as it is.
    ///
    /// # Errors
    ///
    /// If the projector has no limits, or no picture fulfils both.
    pub fn with_token_limits(
        mut self,
        min: Option<usize>,
        max: Option<usize>,
    ) -> Result<Self, Error> {
        if (min, max) == (None, None) {
            return Ok(self);
        }
        let Some(limits) = &mut self.settings.limits else {
            return Err(Error::FixedTokens { projector: self.name() });
        };
        // One new limit moves the other default, not the other way round.
        let new = TokenLimits {
            min: min.unwrap_or_else(|| limits.min.min(max.unwrap_or(limits.min))),
            max: max.unwrap_or_else(|| limits.max.max(min.unwrap_or(limits.max))),
        };
        if new.max == 0 || new.min > new.max {
            return Err(Error::TokenLimits { min: new.min, max: new.max });
        }
        *limits = new;
        Ok(self)
    }

    /// The parts of a picture in the prompt, from its size `[width, height]` alone. `index` is the
    /// number of the picture in the prompt, from 0: some models read it.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyPatches`] for a picture that is too long and narrow.
    pub fn pieces(&self, size: [usize; 2], index: usize) -> Result<Vec<Piece>, Error> {
        Ok(layout::pieces(self.kind, &self.settings, &self.plan(size)?, self.width, index))
    }

    /// The program that computes the embeddings, for backends and memory plans. It is not fused.
    pub fn program(&self) -> Program {
        let layers = self.settings.transformer.kv_layers();
        let max_rows = self.max_rows();
        let num_pages = max_rows.div_ceil(PAGE_TOKENS) + self.network.max_spans(max_rows);
        Program {
            graph: self.graph.clone(),
            weights: self.weights.clone(),
            kv: KvLayout::new(layers, PAGE_TOKENS, num_pages, KvType::F32),
            max_batch_tokens: max_rows,
            max_output_rows: max_rows,
        }
    }

    pub(crate) fn network(&self) -> &dyn Network {
        &*self.network
    }

    /// The most rows of a batch: patches, and a row for the whole picture.
    fn max_rows(&self) -> usize {
        self.settings.max_patches() + 1
    }

    /// The picture as the encoder gets it: resized, padded and cut into tiles, one for each group
    /// of rows of [`Self::pieces`] in their order.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyPatches`] for a picture that is too long and narrow.
    pub fn resized(&self, picture: &Rgb) -> Result<Vec<Rgb>, Error> {
        let (mut tiles, overview) = self.plan(picture.size())?.apply(picture, self.kind.kernel);
        let place = if self.kind.tile_text == TileText::MiniCpm { 0 } else { tiles.len() };
        tiles.splice(place..place, overview);
        Ok(tiles)
    }

    /// How a picture is resized and cut.
    fn plan(&self, size: [usize; 2]) -> Result<TilePlan, Error> {
        let plan = (self.kind.plan)(&self.settings, size);
        let tiles = plan.tiles.as_ref().map(|tiles| tiles.size);
        let overview = plan.overview.as_ref().map(|overview| overview.size);
        for tile in [tiles, overview].into_iter().flatten() {
            let [columns, rows] = self.settings.patches(tile);
            let (patches, max) = (columns.saturating_mul(rows), self.settings.max_patches());
            if patches > max {
                let [width, height] = size;
                return Err(Error::TooManyPatches { width, height, patches, max });
            }
        }
        Ok(plan)
    }
}

impl fmt::Debug for Projector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projector").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rf_gguf::GgufWriter;

    use super::*;

    /// The settings of a projector of which only sizes matter.
    fn settings(
        projector: &str,
        keys: &serde_json::Value,
    ) -> Option<(&'static ProjectorKind, ProjectorSettings)> {
        let kind = *encoders::ALL.iter().find(|kind| kind.name == projector)?;
        let mut writer = GgufWriter::new();
        for key in ["embedding_length", "feed_forward_length", "attention.head_count"] {
            writer.set(&format!("clip.vision.{key}"), 1_u32).unwrap();
        }
        writer.set("clip.vision.block_count", 1_u32).unwrap();
        writer.set("clip.vision.attention.layer_norm_epsilon", 1e-6_f32).unwrap();
        for key in ["image_mean", "image_std"] {
            writer.set(&format!("clip.vision.{key}"), vec![0.5_f32; 3]).unwrap();
        }
        for (key, value) in keys.as_object().unwrap() {
            let value = u32::try_from(value.as_u64().unwrap()).unwrap();
            writer.set(&format!("clip.{key}"), value).unwrap();
        }
        let mut bytes = Vec::new();
        writer.write_to(&mut bytes, |_, _| unreachable!("no tensors")).unwrap();
        let gguf = Gguf::from_bytes(bytes).unwrap();
        let settings =
            ProjectorSettings::read(kind.merge, kind.limits, kind.tile_text, gguf.metadata());
        Some((kind, settings.unwrap()))
    }

    #[test]
    fn rows_match_golden() {
        let Some(path) = rf_testing::shared("golden/vision/sizes.json") else { return };
        let text = std::fs::read_to_string(path).unwrap();
        let sets: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let mut failures = Vec::new();
        for set in &sets {
            let projector = set["projector"].as_str().unwrap();
            let Some((kind, mut settings)) = settings(projector, &set["keys"]) else { continue };
            if let [Some(min), Some(max)] = [0, 1].map(|i| set["limits"][i].as_u64()) {
                settings.limits = Some(TokenLimits { min: min as usize, max: max as usize });
            }
            for (size, expected) in set["sizes"].as_object().unwrap() {
                let (width, height) = size.split_once('x').unwrap();
                let size = [width, height].map(|n| n.parse().unwrap());
                let plan = (kind.plan)(&settings, size);
                let pieces = layout::pieces(kind, &settings, &plan, 1, 0);
                let rows = pieces.iter().filter_map(|piece| match piece {
                    Piece::Rows(group) => Some(group.rows),
                    Piece::Text(_) => None,
                });
                let rows: Vec<usize> = rows.collect();
                if serde_json::to_value(&rows).unwrap() != expected["rows"] {
                    let expected = &expected["rows"];
                    failures.push(format!("{}: {size:?}: {rows:?} {expected}", set["name"]));
                }
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    }
}
