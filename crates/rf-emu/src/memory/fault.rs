//! Accesses that the memory of the device does not allow.

use super::AllocationRange;

/// Why a kernel must not access an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessFault {
    /// A byte of the access is in no allocation.
    #[error("{bytes} bytes at {address:#x} are out of bounds: {}", place(*.address, *.bytes, .nearest.as_ref()))]
    OutOfBounds {
        /// The first address of the access.
        address: u64,
        /// The size of the access.
        bytes: u64,
        /// The allocation that the access overlaps or is closest to.
        nearest: Option<AllocationRange>,
    },
    /// A byte of the access is in an allocation that was freed.
    #[error("{bytes} bytes at {address:#x} were freed: {} into {freed}", .address.saturating_sub(.freed.base))]
    Freed {
        /// The first address of the access.
        address: u64,
        /// The size of the access.
        bytes: u64,
        /// The freed allocation.
        freed: AllocationRange,
    },
    /// The kernel writes memory that it may only read.
    #[error("{bytes} bytes at {address:#x} are read-only: they belong to {range}")]
    ReadOnly {
        /// The first address of the access.
        address: u64,
        /// The size of the access.
        bytes: u64,
        /// The allocation.
        range: AllocationRange,
    },
}

/// Describes an address relative to the nearest allocation.
fn place(address: u64, bytes: u64, nearest: Option<&AllocationRange>) -> String {
    let Some(range) = nearest else { return "the device has no allocation".to_owned() };
    let end = address.saturating_add(bytes);
    if address >= range.end() {
        format!("{} bytes past the end of {range}", address - range.end())
    } else if end <= range.base {
        format!("{} bytes before {range}", range.base - address)
    } else if address < range.base {
        format!("the first {} bytes are before {range}", range.base - address)
    } else {
        format!("the last {} bytes are past the end of {range}", end - range.end())
    }
}
