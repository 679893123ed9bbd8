//! Faults of kernels: the error and its place.

use std::fmt;

use crate::AccessFault;
use crate::isa::DecodeError;

/// A kernel did something that it must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of the fault.
    pub kind: Box<FaultKind>,
    /// The name of the kernel.
    pub kernel: String,
    /// The place, if a wave executed an instruction.
    pub place: Option<Box<FaultPlace>>,
}

/// The place of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultPlace {
    /// The offset of the instruction in the code object.
    pub address: u64,
    /// The file and the line of the source, if the code object has them.
    pub source: Option<(String, u32)>,
    /// The text of the instruction.
    pub instruction: String,
    /// The position of the workgroup in the grid.
    pub workgroup: [u32; 3],
    /// The number of the wave in its workgroup.
    pub wave: u32,
    /// The lane, if the fault belongs to one.
    pub lane: Option<u32>,
}

/// The kind of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// The launch does not fit the kernel.
    #[error("the launch is not possible: {0}")]
    Launch(String),
    /// The arguments in memory do not fit the kernel and the launch.
    #[error("the arguments do not fit the kernel: {reason}")]
    Arguments {
        /// The mismatch.
        reason: String,
    },
    /// The code cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The emulator does not execute this.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// An access outside live memory.
    #[error(transparent)]
    Access(#[from] AccessFault),
    /// An access outside the LDS of the workgroup.
    #[error("{bytes} bytes at {address:#x} are outside the {size} bytes of LDS")]
    LdsBounds {
        /// The address in LDS.
        address: u32,
        /// The size of the access.
        bytes: u32,
        /// The size of the LDS.
        size: u32,
    },
    /// An access outside the scratch memory of the thread.
    #[error("{bytes} bytes at {address:#x} are outside the {size} bytes of scratch memory")]
    ScratchBounds {
        /// The address in scratch memory.
        address: u32,
        /// The size of the access.
        bytes: u32,
        /// The size of the scratch memory.
        size: u32,
    },
    /// An address is not a multiple of what the access needs.
    #[error("the address {address:#x} is not a multiple of {alignment}")]
    Misaligned {
        /// The address.
        address: u64,
        /// The required alignment.
        alignment: u32,
    },
    /// An address, a condition or a stored value depends on something that was never written.
    #[error("{used} depends on {register}, which is not initialised")]
    Uninitialised {
        /// The use of the value.
        used: &'static str,
        /// The register.
        register: String,
    },
    /// A register is used before the load into it is waited for.
    #[error("{register} is used before {counter} covers the load into it")]
    Unawaited {
        /// The register.
        register: String,
        /// The name of the counter.
        counter: &'static str,
    },
    /// A store to LDS is not complete when the wave arrives at a barrier.
    #[error("a store to LDS is not waited for before the barrier")]
    UnawaitedStore,
    /// Two waves access the same byte of LDS without a barrier between them.
    #[error("wave {other} {access} the same byte of LDS ({address:#x}) without a barrier between")]
    LdsRace {
        /// The other wave.
        other: u32,
        /// The access of the other wave: `reads` or `writes`.
        access: &'static str,
        /// The address in LDS.
        address: u32,
    },
    /// Two workgroups access the same memory, and nothing orders the accesses.
    #[error(
        "workgroup {other} {access} the same byte ({address:#x}), and no release and acquire \
         orders the two{cause}"
    )]
    GlobalRace {
        /// The number of the other workgroup, x fastest.
        other: u32,
        /// The access of the other workgroup: `reads` or `writes`.
        access: &'static str,
        /// The address.
        address: u64,
        /// The missing part, as far as it is known.
        cause: RaceCause,
    },
    /// Waves wait at different barriers, or one ended while others wait.
    #[error("divergent barrier: {0}")]
    Barrier(String),
    /// All waves wait, and none can continue.
    #[error("every wave waits at a barrier that no wave can complete")]
    Deadlock,
    /// A workgroup waits for another one, which cannot start or also waits.
    #[error(
        "the workgroup waits in a loop for another one, as do all {resident} resident workgroups{}",
        waiting(*.left)
    )]
    Residency {
        /// The number of workgroups that have started and not ended.
        resident: usize,
        /// The number of workgroups that have not started.
        left: usize,
    },
    /// A matrix instruction runs with inactive lanes.
    #[error("a matrix instruction needs all lanes, EXEC is {exec:#010x}")]
    MatrixExec {
        /// EXEC.
        exec: u32,
    },
    /// RDNA 3's matrix operands differ between the two halves of the wave.
    #[error("the halves of a matrix operand differ: {register} in lanes {lane} and {}", .lane + 16)]
    MatrixHalves {
        /// The register.
        register: String,
        /// The lower lane.
        lane: u32,
    },
    /// A lane receives the value of an inactive lane.
    #[error("the value comes from lane {source_lane}, which is inactive")]
    InactiveLane {
        /// The lane that is read.
        source_lane: u32,
    },
    /// An instruction must not follow another one so closely.
    #[error("hazard {name} with the instruction at {other:#x}: {rule}")]
    Hazard {
        /// The name of the rule in LLVM.
        name: &'static str,
        /// The rule.
        rule: &'static str,
        /// The offset of the other instruction in the code object.
        other: u64,
    },
    /// A wave executed more instructions than the options allow.
    #[error("more than {limit} instructions in one wave")]
    InstructionLimit {
        /// The limit.
        limit: u64,
    },
    /// The program counter left the decoded code.
    #[error("the program continues at {address:#x}, outside the kernel")]
    Escaped {
        /// The offset in the code object.
        address: u64,
    },
}

/// The workgroups that have not started, in words.
fn waiting(left: usize) -> String {
    match left {
        0 => String::new(),
        _ => format!("; {left} more can only start when one of them ends"),
    }
}

impl Fault {
    /// Returns true if the fault is one of addresses, which a device reports as an illegal address.
    pub fn is_memory(&self) -> bool {
        matches!(
            *self.kind,
            FaultKind::Access(_)
                | FaultKind::LdsBounds { .. }
                | FaultKind::ScratchBounds { .. }
                | FaultKind::Misaligned { .. }
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel '{}': {}", self.kernel, self.kind)?;
        let Some(place) = &self.place else { return Ok(()) };
        let [x, y, z] = place.workgroup;
        f.write_str(" [")?;
        if let Some((file, line)) = &place.source {
            write!(f, "{file}:{line}; ")?;
        }
        write!(
            f,
            "{:#x}: {}; workgroup ({x}, {y}, {z}), wave {}",
            place.address, place.instruction, place.wave
        )?;
        match place.lane {
            Some(lane) => write!(f, ", lane {lane}]"),
            None => f.write_str("]"),
        }
    }
}

impl std::error::Error for Fault {}

/// A fault without its place.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Box<FaultKind>,
    pub(crate) lane: Option<u32>,
}

impl Problem {
    /// A fault in one lane.
    pub(crate) fn in_lane(kind: impl Into<FaultKind>, lane: usize) -> Self {
        Self { kind: Box::new(kind.into()), lane: Some(lane as u32) }
    }
}

impl<K: Into<FaultKind>> From<K> for Problem {
    fn from(kind: K) -> Self {
        Self { kind: Box::new(kind.into()), lane: None }
    }
}

/// The part that is missing between the accesses of a race in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaceCause {
    /// The workgroup has seen nothing of the other one.
    #[error("")]
    Unordered,
    /// The other workgroup set a flag before its access was complete.
    #[error(
        ": the other workgroup set the flag that this one has seen without a wait for its stores"
    )]
    NotReleased,
    /// The workgroup has seen the other one's release, and its caches may hold older values.
    #[error(
        ": this workgroup has seen the release of the other one, but not dropped its caches since \
         (an acquire at agent scope)"
    )]
    NotAcquired,
    /// One of the accesses is atomic, the other one is a plain access, or atomic in its workgroup
    /// only.
    #[error(": one of the accesses is not atomic at agent scope")]
    NotAtomic,
    /// The access is atomic in its workgroup only.
    #[error(": this access is atomic in its workgroup only, not at agent scope")]
    Scope,
}
