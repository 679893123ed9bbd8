//! The sequence of a slot.

use crate::adapters::AdapterScales;

/// The tokens of a slot, and the adapters with which they were computed.
#[derive(Debug, Default)]
pub(super) struct SlotText {
    pub(super) adapters: AdapterScales,
    pub(super) tokens: Vec<u32>,
}
