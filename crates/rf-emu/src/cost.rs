//! The costs of kernels: cycles of issue, traffic of memory, and estimated times.
//!
//! Executions are counted by instruction. All that follows from the instruction alone (`issue`) is
//! computed from them after a launch; addresses are looked at while memory instructions execute
//! (`traffic`). Without [`Options::count_each`](crate::Options::count_each) neither happens.

mod card;
mod estimate;
mod issue;
mod listing;
mod page;
mod profile;
pub(crate) mod traffic;

pub use card::{Card, Cards, CardsError};
pub use estimate::{Assumptions, Estimate, LaunchBound};
pub use issue::{Unit, UnitCycles};
pub use profile::{CostProfile, Costs, InstructionCost, InvalidCosts, KernelProfile};
pub use traffic::Accesses;
