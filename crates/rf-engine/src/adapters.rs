//! The adapters that change a sequence, and how much.

use std::sync::Arc;

/// A scale for each adapter of a model ([`Model::adapters`](crate::Model::adapters)), in their
/// order. Missing ones are 0: such an adapter does not change the sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdapterScales {
    /// The scales without zeros at the end, as bits, which are the key in the prefix cache.
    bits: Arc<[u32]>,
}

impl AdapterScales {
    /// Scales of the first adapters of a model.
    pub fn new(scales: &[f32]) -> Self {
        let len = scales.iter().rposition(|scale| *scale != 0.0).map_or(0, |last| last + 1);
        // The sum turns −0 into 0.
        Self { bits: scales[..len].iter().map(|scale| (scale + 0.0).to_bits()).collect() }
    }

    /// The scales, without zeros at the end.
    pub fn to_vec(&self) -> Vec<f32> {
        self.bits.iter().map(|bits| f32::from_bits(*bits)).collect()
    }

    /// Differs for sequences that different adapters change.
    pub(crate) fn key(&self) -> &[u32] {
        &self.bits
    }

    /// Checks the scales against the number of adapters of a model.
    ///
    /// # Errors
    ///
    /// If there are more scales than adapters, or one is not finite.
    pub fn check(&self, adapters: usize) -> Result<(), AdapterScalesError> {
        if self.bits.len() > adapters {
            return Err(AdapterScalesError::Unknown { id: self.bits.len() - 1, adapters });
        }
        match self.to_vec().iter().position(|scale| !scale.is_finite()) {
            Some(id) => Err(AdapterScalesError::NotFinite { id }),
            None => Ok(()),
        }
    }
}

/// Scales that a model cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterScalesError {
    /// The model has fewer adapters.
    #[error("there is no adapter with id {id}: the model was loaded with {adapters}")]
    Unknown {
        /// The index of the adapter.
        id: usize,
        /// Adapters of the model.
        adapters: usize,
    },
    /// A scale is not a finite number.
    #[error("the scale of adapter {id} is not a finite number")]
    NotFinite {
        /// The index of the adapter.
        id: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_equal_if_they_change_a_sequence_alike() {
        assert_eq!(AdapterScales::new(&[0.0, -0.0]), AdapterScales::default());
        assert_eq!(AdapterScales::new(&[-0.0, 2.0, 0.0]), AdapterScales::new(&[0.0, 2.0]));
        assert_ne!(AdapterScales::new(&[1.0]), AdapterScales::new(&[0.0, 1.0]));
        assert_eq!(AdapterScales::new(&[0.5, 0.0]).to_vec(), [0.5]);
    }

    #[test]
    fn scales_fit_the_adapters_of_a_model() {
        let scales = AdapterScales::new(&[0.0, 1.0]);
        assert_eq!(scales.check(2), Ok(()));
        assert_eq!(scales.check(1), Err(AdapterScalesError::Unknown { id: 1, adapters: 1 }));
        let nan = AdapterScales::new(&[f32::NAN]);
        assert_eq!(nan.check(1), Err(AdapterScalesError::NotFinite { id: 0 }));
    }
}
