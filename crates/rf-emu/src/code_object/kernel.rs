//! Kernels: resources, initial registers, arguments.

use super::descriptor::{self, Descriptor};
use super::elf::Image;
use super::metadata::{ArgumentMetadata, KernelMetadata};
use crate::Error;
use crate::isa::{Arch, ProcessorFamily};

/// The largest accepted size of the arguments. HIP allows a few KiB.
const MAX_KERNARG_BYTES: u32 = 1 << 20;

/// The stack of a thread whose depth the compiler does not know.
const DYNAMIC_STACK_BYTES: u32 = 16 << 10;

/// A kernel of a code object.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "the bits of a descriptor")]
pub struct Kernel {
    /// The name by which programs find it.
    pub name: String,
    /// The offset of the first instruction in the image.
    pub entry: u64,
    /// The number of vector registers of a wave.
    pub vgprs: u32,
    /// The number of scalar registers that the code uses, with VCC.
    pub sgprs: u32,
    /// The LDS that every workgroup has, before dynamic LDS.
    pub lds_bytes: u32,
    /// The private memory of a thread, at least 16 KiB if the depth of its calls is not known.
    pub scratch_bytes: u32,
    /// The size of the arguments in memory, hidden ones included.
    pub kernarg_bytes: u32,
    /// The maximum number of threads of a workgroup.
    pub max_workgroup_size: u32,
    /// The only supported size of a workgroup, if the source fixes it.
    pub required_workgroup_size: Option<[u32; 3]>,
    /// True if a wave has 32 lanes; otherwise 64.
    pub wave32: bool,
    /// True if a workgroup may use both compute units of a workgroup processor.
    pub workgroup_processor_mode: bool,
    /// The values in the first scalar registers, in order.
    pub user_sgprs: Vec<UserSgpr>,
    /// The number of scalar registers before those of the workgroup's position.
    pub num_user_sgprs: u32,
    /// Which coordinates of the workgroup's position follow the user registers. From RDNA 4 on they
    /// are in trap registers instead.
    pub workgroup_id: [bool; 3],
    /// True if a scalar register with the wave's number in the workgroup follows.
    pub workgroup_info: bool,
    /// True if the wave has scratch memory. Before RDNA 3 a scalar register with its offset is the
    /// last one.
    pub has_scratch: bool,
    /// The number of coordinates of the thread's position in vector registers, 1 to 3.
    pub thread_id_dimensions: u32,
    /// The initial `MODE` bits 0 to 7: rounding of f32, rounding of f16 and f64, denormals of f32,
    /// denormals of f16 and f64 (2 bits each).
    pub float_mode: u8,
    /// True if clamping turns NaN into zero (before RDNA 4).
    pub dx10_clamp: bool,
    /// True if instructions quiet signalling NaN (before RDNA 4).
    pub ieee_mode: bool,
    /// The arguments in order of their offsets.
    pub arguments: Vec<Argument>,
}

/// A value that the hardware places in the first scalar registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserSgpr {
    /// The buffer descriptor of scratch memory: 4 registers.
    PrivateSegmentBuffer,
    /// The address of the dispatch packet: 2 registers.
    DispatchPtr,
    /// The address of the queue: 2 registers.
    QueuePtr,
    /// The address of the arguments: 2 registers.
    KernargPtr,
    /// The number of the dispatch: 2 registers.
    DispatchId,
    /// The place of scratch memory: 2 registers.
    FlatScratchInit,
    /// The private memory of a thread in bytes: 1 register.
    PrivateSegmentSize,
}

impl UserSgpr {
    /// All values, in the order of registers, which is the order of the bits in the descriptor.
    const ALL: [Self; 7] = [
        Self::PrivateSegmentBuffer,
        Self::DispatchPtr,
        Self::QueuePtr,
        Self::KernargPtr,
        Self::DispatchId,
        Self::FlatScratchInit,
        Self::PrivateSegmentSize,
    ];

    /// The number of registers.
    pub fn registers(self) -> u32 {
        match self {
            Self::PrivateSegmentBuffer => 4,
            Self::PrivateSegmentSize => 1,
            _ => 2,
        }
    }
}

/// A kernel argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Argument {
    /// The name in the source, if the compiler recorded it.
    pub name: Option<String>,
    /// The offset in the arguments in bytes.
    pub offset: u32,
    /// The size in bytes.
    pub bytes: u32,
    /// The meaning.
    pub kind: ArgumentKind,
}

/// The meaning of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// A value that the program passes.
    Value,
    /// An address that the program passes.
    Pointer,
    /// A value that the launch fills.
    Hidden(Hidden),
}

/// A value that the launch fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hidden {
    /// The number of workgroups in a dimension.
    BlockCount(usize),
    /// The number of threads of a workgroup in a dimension.
    GroupSize(usize),
    /// The number of threads of the last, partial workgroup in a dimension.
    Remainder(usize),
    /// The first position of the grid in a dimension.
    GlobalOffset(usize),
    /// The number of dimensions.
    GridDims,
    /// The size of dynamic LDS.
    DynamicLdsSize,
    /// The upper half of LDS addresses.
    SharedBase,
    /// The upper half of scratch addresses.
    PrivateBase,
    /// Services of the host, such as printing, which are absent: the address is zero.
    Service,
}

impl ArgumentKind {
    /// The kind with this name in the metadata (`.value_kind`).
    fn from_metadata(kind: &str) -> Option<Self> {
        let hidden = match kind {
            "by_value" => return Some(Self::Value),
            "global_buffer" | "dynamic_shared_pointer" => return Some(Self::Pointer),
            "hidden_grid_dims" => Hidden::GridDims,
            "hidden_dynamic_lds_size" => Hidden::DynamicLdsSize,
            "hidden_shared_base" => Hidden::SharedBase,
            "hidden_private_base" => Hidden::PrivateBase,
            "hidden_none"
            | "hidden_printf_buffer"
            | "hidden_hostcall_buffer"
            | "hidden_default_queue"
            | "hidden_completion_action"
            | "hidden_multigrid_sync_arg"
            | "hidden_heap_v1"
            | "hidden_queue_ptr" => Hidden::Service,
            _ => {
                let (kind, dimension) = kind.rsplit_once('_')?;
                let dimension = ["x", "y", "z"].iter().position(|&name| name == dimension)?;
                match kind {
                    "hidden_block_count" => Hidden::BlockCount(dimension),
                    "hidden_group_size" => Hidden::GroupSize(dimension),
                    "hidden_remainder" => Hidden::Remainder(dimension),
                    "hidden_global_offset" => Hidden::GlobalOffset(dimension),
                    _ => return None,
                }
            }
        };
        Some(Self::Hidden(hidden))
    }
}

impl Kernel {
    pub(super) fn new(metadata: KernelMetadata, arch: Arch, image: &Image) -> Result<Self, Error> {
        let name = metadata.name;
        let damaged = |reason: &str| Error::Damaged { reason: format!("kernel '{name}' {reason}") };
        let symbol = image.symbol(&metadata.symbol);
        let (offset, _) = symbol.ok_or_else(|| damaged("has no descriptor symbol"))?;
        let bytes = image.bytes_at::<{ descriptor::BYTES }>(offset);
        let descriptor = Descriptor::read(bytes.ok_or_else(|| damaged("has no descriptor"))?);

        let entry = offset.wrapping_add_signed(descriptor.entry_offset);
        if !image.is_executable(entry) {
            return Err(damaged("starts outside the executable segments"));
        }
        let same = descriptor.lds_bytes == metadata.lds_bytes
            && descriptor.scratch_bytes == metadata.scratch_bytes
            && descriptor.kernarg_bytes == metadata.kernarg_bytes;
        if !same {
            return Err(damaged("has a descriptor that contradicts its metadata"));
        }
        if metadata.kernarg_bytes > MAX_KERNARG_BYTES {
            return Err(damaged("has more than 1 MiB of arguments"));
        }
        let wave32 = descriptor.property(10);
        if metadata.wave_size != if wave32 { 32 } else { 64 } {
            return Err(damaged("has a descriptor and metadata of different wave sizes"));
        }
        if descriptor.preloaded_dwords() != 0 {
            let reason = format!("kernel '{name}' preloads arguments into registers");
            return Err(Error::Unsupported { reason });
        }
        let user_sgprs: Vec<_> = (0..)
            .zip(UserSgpr::ALL)
            .filter(|&(bit, _)| descriptor.property(bit))
            .map(|(_, register)| register)
            .collect();
        let num_user_sgprs = descriptor.user_sgprs();
        if user_sgprs.iter().map(|register| register.registers()).sum::<u32>() > num_user_sgprs {
            return Err(damaged("has more user registers than it reserves"));
        }
        let before_rdna4 = arch.family() < ProcessorFamily::Rdna4;
        let arguments = arguments(&name, metadata.arguments, metadata.kernarg_bytes)?;
        Ok(Self {
            entry,
            vgprs: metadata.vgprs,
            sgprs: metadata.sgprs,
            lds_bytes: metadata.lds_bytes,
            scratch_bytes: if descriptor.property(11) {
                metadata.scratch_bytes.max(DYNAMIC_STACK_BYTES)
            } else {
                metadata.scratch_bytes
            },
            kernarg_bytes: metadata.kernarg_bytes,
            max_workgroup_size: metadata.max_workgroup_size,
            required_workgroup_size: metadata.required_workgroup_size,
            wave32,
            workgroup_processor_mode: descriptor.rsrc1_bit(29),
            user_sgprs,
            num_user_sgprs,
            workgroup_id: [7, 8, 9].map(|bit| descriptor.rsrc2_bit(bit)),
            workgroup_info: descriptor.rsrc2_bit(10),
            has_scratch: descriptor.rsrc2_bit(0),
            thread_id_dimensions: descriptor.thread_id_dimensions().min(3),
            float_mode: descriptor.float_mode(),
            dx10_clamp: before_rdna4 && descriptor.rsrc1_bit(21),
            ieee_mode: before_rdna4 && descriptor.rsrc1_bit(23),
            arguments,
            name,
        })
    }
}

/// The arguments in order, after checking that they do not overlap and are within the segment.
fn arguments(
    kernel: &str,
    arguments: Vec<ArgumentMetadata>,
    kernarg_bytes: u32,
) -> Result<Vec<Argument>, Error> {
    let mut known = Vec::with_capacity(arguments.len());
    for ArgumentMetadata { name, offset, bytes, kind } in arguments {
        let Some(kind) = ArgumentKind::from_metadata(&kind) else {
            let reason = format!("kernel '{kernel}' has an argument of kind {kind}");
            return Err(Error::Unsupported { reason });
        };
        known.push(Argument { name, offset, bytes, kind });
    }
    known.sort_by_key(|argument| argument.offset);
    let mut end = 0;
    for argument in &known {
        let next = argument.offset.checked_add(argument.bytes);
        let inside = next.is_some_and(|next| next <= kernarg_bytes);
        if argument.offset < end || !inside {
            let reason = format!("kernel '{kernel}' has arguments that overlap or do not fit");
            return Err(Error::Damaged { reason });
        }
        end = argument.offset + argument.bytes;
    }
    Ok(known)
}
