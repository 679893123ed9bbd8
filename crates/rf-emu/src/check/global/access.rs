//! One access of global memory.

use crate::fault::RaceCause;

/// Several workgroups read the word.
const MANY: u32 = u32::MAX;

/// The meaning of a write to other workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// A write that a scope confines to its workgroup. Also stands for reads.
    Plain,
    /// A store without a scope, of several lanes: it may be a flag per lane.
    Lanes,
    /// A store that is atomic for the device, or may be: of one lane, without a scope.
    Flag,
    /// An atomic update for the device.
    Update,
}

impl WriteKind {
    const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Plain,
            1 => Self::Lanes,
            2 => Self::Flag,
            _ => Self::Update,
        }
    }

    /// The cause of a race with an earlier write, as far as the two accesses tell.
    pub(super) fn cause(self, earlier: Option<AccessRecord>) -> RaceCause {
        match (self, earlier.map(|earlier| earlier.kind)) {
            (Self::Update, _) | (_, Some(Self::Update)) => RaceCause::NotAtomic,
            _ => RaceCause::Unordered,
        }
    }
}

/// The caches that a load passes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadScope {
    /// It reads the caches of its workgroup.
    Plain,
    /// It reads them, and is atomic within the workgroup.
    Workgroup,
    /// It passes by these caches.
    Device,
}

impl LoadScope {
    /// The cause of a race of the load, as far as the load tells.
    pub(super) fn cause(self) -> RaceCause {
        match self {
            Self::Plain => RaceCause::Unordered,
            Self::Workgroup => RaceCause::Scope,
            Self::Device => RaceCause::NotAtomic,
        }
    }
}

/// An access of a word of memory, in 64 bits: a bit per byte from bit 0, the kind from bit 4, bit
/// 6 for a release, the epoch from bit 7, the workgroup from bit 32. Zero stands for no access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRecord {
    pub(super) workgroup: u32,
    pub(super) epoch: u32,
    /// A bit per byte.
    pub(super) bytes: u8,
    pub(super) kind: WriteKind,
    /// True if it is a store whose wave had completed the earlier ones.
    pub(super) releases: bool,
}

/// The last epoch that an access can hold; later ones count as this one.
pub(super) const LAST_EPOCH: u32 = (1 << 25) - 1;

impl AccessRecord {
    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self {
            workgroup: (bits >> 32) as u32,
            epoch: bits as u32 >> 7,
            bytes: bits as u8 & 15,
            kind: WriteKind::from_bits(bits >> 4),
            releases: bits & 64 != 0,
        })
    }

    pub(super) fn bits(self) -> u64 {
        let Self { workgroup, epoch, bytes, kind, releases } = self;
        let epoch = epoch.min(LAST_EPOCH);
        u64::from(workgroup) << 32
            | u64::from(epoch << 7 | u32::from(releases) << 6 | (kind as u32) << 4)
            | u64::from(bytes)
    }

    /// The read of several workgroups.
    pub(super) fn of_many(self, mask: u8) -> Self {
        let bytes = self.bytes | mask;
        Self { workgroup: MANY, epoch: MANY, bytes, kind: WriteKind::Plain, releases: false }
    }
}
