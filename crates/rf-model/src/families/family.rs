//! The parts of a family.

use crate::config::ModelConfig;
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

/// An architecture.
pub(super) struct Family {
    /// `general.architecture`.
    pub(super) name: &'static str,
    /// The hyper-parameters, from metadata.
    pub(super) config: fn(&Keys<'_>, WeightTable) -> Result<ModelConfig, Error>,
    /// The weights of a layer.
    pub(super) weights: WeightTable,
}
