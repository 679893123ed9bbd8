//! The ELF part of a code object: segments, symbols, relocations, the metadata note.

use std::ops::Range;

use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{
    LittleEndian, Object as _, ObjectSegment as _, ObjectSymbol, ObjectSymbolTable as _,
    RelocationFlags, RelocationTarget, SegmentFlags,
};

use super::lines::SourceLines;
use crate::Error;
use crate::isa::Arch;

/// The largest accepted image. The largest GPU libraries have code objects of some 100 MB.
const MAX_IMAGE_BYTES: u64 = 1 << 30;
/// The ABI versions of code objects 4, 5 and 6.
const ABI_VERSIONS: [u8; 3] = [2, 3, 4];
/// A 64-bit address of a symbol.
const R_AMDGPU_ABS64: u32 = 3;
/// A 64-bit address in the image.
const R_AMDGPU_RELATIVE64: u32 = 13;
/// The type of the metadata note: `NT_AMDGPU_METADATA`.
const METADATA_NOTE: u32 = 32;

/// The part of a code object that is loaded.
#[derive(Debug)]
pub(super) struct Image {
    /// The contents of all segments at their offsets, without relocation. What a segment has
    /// beyond its contents is zero, and not part of this.
    pub(super) bytes: Vec<u8>,
    /// Segments in the order of their offsets, without overlap.
    pub(super) segments: Vec<Extent>,
    pub(super) relocations: Vec<Relocation>,
    symbols: Vec<Symbol>,
}

/// The place of a segment in the image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The bytes that the file has.
    pub(super) file_bytes: u64,
    pub(super) writable: bool,
    pub(super) executable: bool,
}

/// A place in the image that holds an address in the image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relocation {
    pub(super) offset: u64,
    /// The address's offset in the image.
    pub(super) target: u64,
}

#[derive(Debug)]
struct Symbol {
    name: String,
    offset: u64,
    bytes: u64,
}

impl Extent {
    /// The place of the contents in the image.
    pub(super) fn contents(&self) -> Range<usize> {
        self.offset as usize..(self.offset + self.file_bytes) as usize
    }
}

impl Image {
    pub(super) fn symbol(&self, name: &str) -> Option<(u64, u64)> {
        let symbol = self.symbols.iter().find(|symbol| symbol.name == name)?;
        Some((symbol.offset, symbol.bytes))
    }

    /// The bytes at an offset, if the image has them.
    pub(super) fn bytes_at<const N: usize>(&self, offset: u64) -> Option<&[u8; N]> {
        let offset = usize::try_from(offset).ok()?;
        self.bytes.get(offset..)?.first_chunk()
    }

    /// Returns true if an instruction may start at this offset.
    pub(super) fn is_executable(&self, offset: u64) -> bool {
        self.segments.iter().any(|segment| {
            let at = offset.checked_sub(segment.offset);
            let inside = at.is_some_and(|at| at < segment.file_bytes);
            segment.executable && inside && offset.is_multiple_of(4)
        })
    }
}

/// The parts of a code object.
pub(super) struct Contents {
    pub(super) arch: Arch,
    pub(super) image: Image,
    /// The metadata note.
    pub(super) note: Vec<u8>,
    pub(super) lines: SourceLines,
}

/// Reads the metadata note alone, of code for any AMD GPU.
pub(super) fn read_note(file: &[u8]) -> Result<Vec<u8>, Error> {
    header(file)?;
    metadata_note(&ElfFile64::parse(file)?, file)
}

/// Reads the file.
pub(super) fn read(file: &[u8]) -> Result<Contents, Error> {
    let header = header(file)?;
    let flags = header.e_flags(LittleEndian);
    let arch =
        Arch::from_elf_mach(flags as u8).ok_or(Error::UnsupportedGpu { mach: flags & 0xff })?;
    let abi = header.e_ident().abi_version;
    if !ABI_VERSIONS.contains(&abi) {
        let reason = format!("code object ABI version {abi}; clang 19 and newer write 3 or 4");
        return Err(Error::Unsupported { reason });
    }
    if header.e_type(LittleEndian) != elf::ET_DYN {
        return Err(Error::Unsupported { reason: "it is not linked (no shared object)".into() });
    }
    let elf = ElfFile64::<LittleEndian>::parse(file)?;
    let (bytes, segments) = segments(&elf)?;
    let image = Image { bytes, segments, relocations: relocations(&elf)?, symbols: symbols(&elf)? };
    check_relocations(&image)?;
    let note = metadata_note(&elf, file)?;
    Ok(Contents { arch, image, note, lines: SourceLines::read(&elf) })
}

fn header(file: &[u8]) -> Result<&FileHeader64<LittleEndian>, Error> {
    let header = FileHeader64::<LittleEndian>::parse(file)?;
    match header.e_machine(LittleEndian) {
        elf::EM_AMDGPU => Ok(header),
        machine => Err(Error::OtherProcessor { machine }),
    }
}

/// The flat image, and the places of its segments.
fn segments(elf: &ElfFile64<'_, LittleEndian>) -> Result<(Vec<u8>, Vec<Extent>), Error> {
    let damaged = |reason: &str| Error::Damaged { reason: reason.to_owned() };
    let mut extents: Vec<Extent> = Vec::new();
    let mut contents = Vec::new();
    let mut image_bytes = 0;
    for segment in elf.segments() {
        let (offset, bytes) = (segment.address(), segment.size());
        if offset.checked_add(bytes).is_none_or(|end| end > MAX_IMAGE_BYTES) {
            return Err(damaged("a segment ends beyond 1 GiB"));
        }
        if extents.last().is_some_and(|last| last.offset + last.bytes > offset) {
            return Err(damaged("the segments overlap or are not in order"));
        }
        let data = segment.data()?;
        let file_bytes = data.len() as u64;
        if file_bytes > bytes {
            return Err(damaged("a segment is larger in the file than in memory"));
        }
        let SegmentFlags::Elf { p_flags } = segment.flags() else {
            return Err(damaged("a segment has no flags"));
        };
        let (writable, executable) = (p_flags & elf::PF_W != 0, p_flags & elf::PF_X != 0);
        extents.push(Extent { offset, bytes, file_bytes, writable, executable });
        contents.push((offset as usize, data));
        image_bytes = (offset + file_bytes) as usize;
    }
    // Zeroed by the system: a file of a few bytes cannot make this touch a gigabyte.
    let mut image = vec![0; image_bytes];
    for (offset, data) in contents {
        image[offset..offset + data.len()].copy_from_slice(data);
    }
    Ok((image, extents))
}

fn symbols(elf: &ElfFile64<'_, LittleEndian>) -> Result<Vec<Symbol>, Error> {
    let mut symbols = Vec::new();
    for symbol in elf.dynamic_symbols().filter(ObjectSymbol::is_definition) {
        let name = symbol.name()?.to_owned();
        symbols.push(Symbol { name, offset: symbol.address(), bytes: symbol.size() });
    }
    Ok(symbols)
}

fn relocations(elf: &ElfFile64<'_, LittleEndian>) -> Result<Vec<Relocation>, Error> {
    let mut relocations = Vec::new();
    let Some(entries) = elf.dynamic_relocations() else { return Ok(relocations) };
    for (offset, relocation) in entries {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let addend = relocation.addend() as u64;
        let target = match (r_type, relocation.target()) {
            (R_AMDGPU_RELATIVE64, _) => addend,
            (R_AMDGPU_ABS64, RelocationTarget::Symbol(index)) => {
                let table = elf.dynamic_symbol_table();
                let symbol = table.and_then(|table| table.symbol_by_index(index).ok());
                let symbol = symbol.filter(ObjectSymbol::is_definition).ok_or_else(|| {
                    let reason = "a relocation refers to a symbol of another file".into();
                    Error::Unsupported { reason }
                })?;
                symbol.address().wrapping_add(addend)
            }
            _ => {
                let reason = format!("relocation type {r_type} at {offset:#x}");
                return Err(Error::Unsupported { reason });
            }
        };
        relocations.push(Relocation { offset, target });
    }
    Ok(relocations)
}

/// Checks that each relocation changes 8 bytes of a segment's contents.
fn check_relocations(image: &Image) -> Result<(), Error> {
    let within = |relocation: &Relocation| {
        image.segments.iter().any(|segment| {
            let at = relocation.offset.checked_sub(segment.offset);
            at.is_some_and(|at| at.checked_add(8).is_some_and(|end| end <= segment.file_bytes))
        })
    };
    match image.relocations.iter().find(|relocation| !within(relocation)) {
        None => Ok(()),
        Some(outside) => Err(Error::Damaged {
            reason: format!("a relocation at {:#x} is in no segment", outside.offset),
        }),
    }
}

fn metadata_note(elf: &ElfFile64<'_, LittleEndian>, file: &[u8]) -> Result<Vec<u8>, Error> {
    for section in elf.elf_section_table().iter() {
        let Some(mut notes) = section.notes(LittleEndian, file)? else { continue };
        while let Some(note) = notes.next()? {
            if note.name() == b"AMDGPU" && note.n_type(LittleEndian) == METADATA_NOTE {
                return Ok(note.desc().to_vec());
            }
        }
    }
    Err(Error::Damaged { reason: "it has no kernel metadata".to_owned() })
}
