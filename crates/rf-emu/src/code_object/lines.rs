//! The lines of the source from which instructions were made: the section `.debug_line` (DWARF).

use std::borrow::Cow;
use std::num::NonZero;

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, DebugStr, EndianSlice,
    LineProgramHeader, LittleEndian, Section as _,
};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The line of the source of each instruction of a code object. Code that is compiled
/// without `-g` or `-gline-tables-only` has no lines.
#[derive(Debug, Default)]
pub struct SourceLines {
    files: Vec<String>,
    /// Rows in the order of offsets.
    rows: Vec<LineRow>,
}

/// The instructions from `offset` up to the next row.
#[derive(Clone, Copy, Debug)]
struct LineRow {
    offset: u64,
    /// 0 after the end of a sequence of instructions.
    line: u32,
    /// An index of `files`.
    file: u32,
}

/// The sections that a line program refers to.
struct Sections<'a> {
    lines: DebugLine<Slice<'a>>,
    line_strings: DebugLineStr<Slice<'a>>,
    strings: DebugStr<Slice<'a>>,
}

impl SourceLines {
    /// The file and the line of the instruction at an offset in the code object. The line of code
    /// that was inlined is that of the inlined function.
    pub fn lookup(&self, offset: u64) -> Option<(&str, u32)> {
        let next = self.rows.partition_point(|row| row.offset <= offset);
        let row = self.rows.get(next.checked_sub(1)?)?;
        let file = self.files.get(row.file as usize)?;
        (row.line != 0).then_some((file, row.line))
    }

    /// Returns true if no instruction has a line.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Reads the lines. Those from which damage keeps us are missing: they are no part of the code.
    pub(super) fn read(elf: &ElfFile64<'_, object::LittleEndian>) -> Self {
        let section = |name| {
            let section = elf.section_by_name(name);
            section.and_then(|section| section.data().ok()).unwrap_or_default()
        };
        let lines = section(DebugLine::<Slice<'_>>::section_name());
        let sections = Sections {
            lines: DebugLine::new(lines, LittleEndian),
            line_strings: DebugLineStr::from(Slice::new(section(".debug_line_str"), LittleEndian)),
            strings: DebugStr::new(section(".debug_str"), LittleEndian),
        };
        let mut found = Self::default();
        let mut offset = 0;
        // The programs of the compilation units follow each other.
        while offset < lines.len() {
            let place = DebugLineOffset(offset);
            let Ok(program) = sections.lines.program(place, 8, None, None) else { break };
            let header = program.header().clone();
            let length_bytes = usize::from(header.format().initial_length_size());
            let first_file = found.files.len();
            found.files.extend(header.file_names().iter().map(|file| sections.path(&header, file)));
            let mut rows = program.rows();
            while let Ok(Some((_, row))) = rows.next_row() {
                // Version 5 counts files from 0, earlier ones from 1.
                let before = u64::from(header.version() < 5);
                let file = row.file_index().checked_sub(before);
                let file = file.filter(|&file| file < header.file_names().len() as u64);
                let line = row.line().filter(|_| !row.end_sequence()).map_or(0, NonZero::get);
                found.rows.push(LineRow {
                    offset: row.address(),
                    line: if file.is_some() { u32::try_from(line).unwrap_or(0) } else { 0 },
                    file: (first_file as u64 + file.unwrap_or(0)) as u32,
                });
            }
            let Some(next) = offset.checked_add(length_bytes + header.unit_length()) else { break };
            offset = next;
        }
        // Of several rows of an offset the last one counts; the end of a sequence comes before the
        // start of the next one.
        found.rows.sort_by_key(|row| (row.offset, row.line != 0));
        found
    }
}

impl<'a> Sections<'a> {
    /// The path of a file, with the folder unless the path is absolute.
    fn path(
        &self,
        header: &LineProgramHeader<Slice<'a>>,
        file: &gimli::FileEntry<Slice<'a>>,
    ) -> String {
        let name = self.text(file.path_name());
        // Folder 0 is the one in which the compiler ran: paths stay relative to it.
        let folder = (file.directory_index() != 0).then(|| file.directory(header)).flatten();
        match folder.map(|folder| self.text(folder)) {
            Some(folder) if !name.starts_with('/') => format!("{folder}/{name}"),
            _ => name.into_owned(),
        }
    }

    fn text(&self, value: AttributeValue<Slice<'a>>) -> Cow<'a, str> {
        let text = match value {
            AttributeValue::String(text) => Ok(text),
            AttributeValue::DebugLineStrRef(offset) => self.line_strings.get_str(offset),
            AttributeValue::DebugStrRef(offset) => self.strings.get_str(offset),
            _ => return "?".into(),
        };
        text.map_or("?".into(), |text| text.to_string_lossy())
    }
}
