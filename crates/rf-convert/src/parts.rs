//! The format of each part of a model: the rules of the mixes, as in llama.cpp.

use rf_quant::DType;

use crate::mix::{Mix, Recipe};
use crate::model::{ModelPart, ModelShape};

/// A tensor as the rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorPlace {
    pub(crate) part: ModelPart,
    /// Tensors of the part before this one, in the order of layers.
    pub(crate) index: usize,
    /// The layer: the index, or the number in the name in models with experts.
    pub(crate) layer: usize,
    /// True if the model has an importance matrix.
    pub(crate) has_imatrix: bool,
}

impl Mix {
    /// The format of the output matrix, whose rows fill blocks of the base format or do not.
    pub(crate) fn output(&self, fills_blocks: bool) -> DType {
        match self.recipe {
            _ if self.recipe == Recipe::Mxfp4Moe || !fills_blocks => DType::Q8_0,
            Recipe::Iq1 | Recipe::Iq2Xs | Recipe::Iq2Small | Recipe::Iq3Xxs => DType::Q5K,
            _ if self.base == DType::Q8_0 => DType::Q8_0,
            _ => DType::Q6K,
        }
    }

    /// The format of a matrix other than the output.
    pub(crate) fn matrix(&self, shape: &ModelShape, place: TensorPlace) -> DType {
        match place.part {
            ModelPart::Embedding => self.embedding(),
            ModelPart::AttentionV => self.attention_v(shape, place),
            ModelPart::AttentionK => self.attention_k(shape),
            ModelPart::AttentionQ => match self.recipe {
                Recipe::Iq3Xs => DType::Iq3Xxs,
                Recipe::Iq3Xxs => DType::Iq2S,
                _ => self.base,
            },
            ModelPart::AttentionOutput => self.attention_output(shape),
            ModelPart::FfnDown => self.ffn_down(shape, place),
            ModelPart::FfnGate | ModelPart::FfnUp => {
                let eighth = shape.num_layers / 8;
                let middle = eighth..7 * shape.num_layers / 8;
                match self.recipe {
                    Recipe::Iq3Xs if middle.contains(&place.layer) => DType::Iq3Xxs,
                    _ => self.base,
                }
            }
            ModelPart::Output | ModelPart::Other => self.base,
        }
    }

    fn embedding(&self) -> DType {
        match self.recipe {
            Recipe::Iq1 | Recipe::Iq2Xs => DType::Q2K,
            Recipe::Iq2Small | Recipe::Iq3Xxs => DType::Iq3S,
            Recipe::Ternary => DType::Q4K,
            _ => self.base,
        }
    }

    fn attention_v(&self, shape: &ModelShape, place: TensorPlace) -> DType {
        let TensorPlace { index, has_imatrix, .. } = place;
        let count = shape.num_attention_v;
        let shared = shape.heads_per_kv_head >= 4;
        let dtype = match self.recipe {
            Recipe::Iq1 | Recipe::Iq2Xs | Recipe::Iq2Small => {
                return match self.recipe {
                    _ if shared || shape.num_experts >= 4 => DType::Q4K,
                    Recipe::Iq2Small => DType::Iq3S,
                    _ => DType::Q2K,
                };
            }
            Recipe::Q2K | Recipe::Q2KSmall | Recipe::Iq3Xxs | Recipe::Iq3Xs | Recipe::Iq3Small
                if shared =>
            {
                DType::Q4K
            }
            Recipe::Q2K => DType::Q3K,
            Recipe::Iq3Xxs if !has_imatrix => DType::Iq3S,
            Recipe::Q3KMedium if index < 2 => DType::Q5K,
            Recipe::Q3KMedium | Recipe::Iq3Medium => DType::Q4K,
            Recipe::Q3KLarge => DType::Q5K,
            Recipe::Q4KMedium | Recipe::Q5KMedium if has_more_bits(index, count) => DType::Q6K,
            Recipe::Q4KSmall if index < 4 => DType::Q5K,
            Recipe::Iq4 if shared => DType::Q5K,
            _ => self.base,
        };
        match dtype {
            _ if shape.num_experts == 8 => DType::Q8_0,
            DType::Q3K | DType::Q4K if shape.is_llama_70b => DType::Q5K,
            dtype => dtype,
        }
    }

    fn attention_k(&self, shape: &ModelShape) -> DType {
        match self.recipe {
            Recipe::Iq1 | Recipe::Iq2Xs | Recipe::Iq2Small if shape.num_experts == 8 => DType::Q4K,
            _ if shape.num_experts == 8 => DType::Q8_0,
            Recipe::Iq3Xs => DType::Iq3Xxs,
            Recipe::Iq3Xxs => DType::Iq2S,
            _ => self.base,
        }
    }

    fn attention_output(&self, shape: &ModelShape) -> DType {
        let eight_experts = shape.num_experts == 8;
        match self.recipe {
            Recipe::Q2K
            | Recipe::Q3KSmall
            | Recipe::Q3KMedium
            | Recipe::Q4KSmall
            | Recipe::Q4KMedium
            | Recipe::Iq4
            | Recipe::Iq3Medium
            | Recipe::Iq3Small
            | Recipe::Iq3Xs
            | Recipe::Iq3Xxs
            | Recipe::Iq2Small
            | Recipe::Iq2Xs
            | Recipe::Iq1
                if eight_experts =>
            {
                DType::Q5K
            }
            Recipe::Q2K => DType::Q3K,
            Recipe::Q3KMedium | Recipe::Iq3Medium => DType::Q4K,
            Recipe::Q3KLarge if !eight_experts => DType::Q5K,
            Recipe::Iq3Xxs | Recipe::Iq2Small => DType::Iq3S,
            Recipe::Iq1 => DType::Iq2Xxs,
            _ => self.base,
        }
    }

    fn ffn_down(&self, shape: &ModelShape, place: TensorPlace) -> DType {
        let TensorPlace { index, layer, has_imatrix, .. } = place;
        let num_layers = shape.num_layers;
        let is_early = layer < num_layers / 8;
        let has_more_bits = has_more_bits(layer, num_layers);
        match self.recipe {
            Recipe::Iq1 | Recipe::Iq2Xs if index < num_layers / 8 => DType::Q2K,
            Recipe::Iq2Small if index < num_layers / 8 => DType::Iq3S,
            Recipe::Q2K => DType::Q3K,
            Recipe::Q2KSmall if is_early => DType::Q4K,
            Recipe::Iq3Xxs if !has_imatrix => {
                if is_early {
                    DType::Q4K
                } else {
                    DType::Q3K
                }
            }
            Recipe::Iq3Medium if is_early || shape.num_experts == 8 && has_more_bits => DType::Q4K,
            Recipe::Q3KMedium if layer < num_layers / 16 => DType::Q5K,
            Recipe::Q3KMedium => DType::Q4K,
            Recipe::Q3KLarge => DType::Q5K,
            Recipe::Q4KMedium | Recipe::Q5KMedium if has_more_bits => DType::Q6K,
            Recipe::Q4KSmall if is_early => DType::Q5K,
            Recipe::Iq4 if is_early && !has_imatrix => DType::Q5K,
            Recipe::OnePass if is_early && has_imatrix => match self.base {
                DType::Q4_0 => DType::Q4_1,
                _ => DType::Q5_1,
            },
            _ => self.base,
        }
    }
}

/// Returns true if a layer is in the first or last eighth, or every third between them.
fn has_more_bits(layer: usize, num_layers: usize) -> bool {
    let eighth = num_layers / 8;
    layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_and_every_third_layer_get_more_bits() {
        let layers: Vec<usize> = (0..32).filter(|&layer| has_more_bits(layer, 32)).collect();
        assert_eq!(layers, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
    }
}
