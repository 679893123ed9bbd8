//! Errors of GGUF files, with the place of the problem and a cure.

use std::path::PathBuf;
use std::{fmt, io};

use crate::tensor_type::TensorType;
use crate::value::ValueKind;

/// Why a GGUF file could not be read, understood or written.
///
/// [`Error::Io`], [`Error::TensorData`] and [`Error::Header`] keep their cause as
/// [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing exists at the path.
    #[error("file '{}' does not exist", path.display())]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("'{}' is a directory: give the path of a .gguf file", path.display())]
    Directory {
        /// The path as given.
        path: PathBuf,
    },
    /// The path names a pipe, a socket or a device: it cannot be mapped, nor replaced by a rename.
    #[error("'{}' is not a regular file", path.display())]
    NotRegular {
        /// The path as given.
        path: PathBuf,
    },
    /// The operating system reported an error.
    #[error("cannot {action} '{}'", path.display())]
    Io {
        /// The failed action: `open`, `map` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An error inside the named file.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file; for a split model, the part.
        path: PathBuf,
        /// The error.
        error: Box<Self>,
    },
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: {}", not_gguf(*.found))]
    NotGguf {
        /// The first bytes, zero-filled where the file is shorter.
        found: [u8; 16],
    },
    /// A version that is not 2 or 3.
    #[error(
        "GGUF version {version} is not supported (2 and 3 are): {}",
        if *.version < 2 { "convert the model again with a current llama.cpp" }
        else { "the file is newer than this program" }
    )]
    Version {
        /// The version that the header states.
        version: u32,
    },
    /// The file was written for a big-endian machine.
    #[error(
        "big-endian GGUF (version {version}) is not supported: convert it with llama.cpp's \
         gguf_convert_endian.py"
    )]
    BigEndian {
        /// The version, read in the file's own byte order.
        version: u32,
    },
    /// The bytes break a rule of the format.
    #[error("at byte {offset}: {subject}: {problem}")]
    Malformed {
        /// The offset in the file.
        offset: u64,
        /// The part of the file.
        subject: Subject,
        /// The broken rule.
        problem: Problem,
    },
    /// A required key is missing.
    #[error("the metadata has no key '{key}'")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key holds a value of the wrong kind.
    #[error("key '{key}' holds {found}, not {expected}")]
    WrongKind {
        /// The key.
        key: String,
        /// The expected kind.
        expected: &'static str,
        /// The kind in the file.
        found: ValueKind,
    },
    /// A key holds an array with elements of the wrong kind.
    #[error("key '{key}' holds an array of {found}, not {expected}")]
    WrongElementKind {
        /// The key.
        key: String,
        /// The expected kind.
        expected: &'static str,
        /// The kind of the elements in the file.
        found: ValueKind,
    },
    /// A key holds a number that does not fit in the requested type.
    #[error("key '{key}' holds {value}, which does not fit in {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The number in the file.
        value: i128,
        /// The requested type.
        expected: &'static str,
    },
    /// A required tensor is missing.
    #[error("the file has no tensor '{name}'")]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// A tensor has an unsupported format.
    #[error(
        "tensor '{name}' has type {ty}, which is not supported: re-quantise the model to one that is, \
         such as Q4_K_M"
    )]
    UnsupportedType {
        /// The tensor.
        name: String,
        /// Type of the tensor in the file.
        ty: TensorType,
    },
    /// A part of a split model is missing.
    #[error("part {part} of {count} is missing: '{}' does not exist", path.display())]
    MissingPart {
        /// The expected path of the part.
        path: PathBuf,
        /// Number of the part, from 1.
        part: u32,
        /// The number of parts.
        count: u32,
    },
    /// The name of a part of a split model does not determine the names of the others.
    #[error(
        "the file is part {part} of {count} but is not named so: parts must be called \
         NAME-{part:05}-of-{count:05}.gguf to be found"
    )]
    PartName {
        /// Number of the part in the metadata, from 1.
        part: u32,
        /// The number of parts.
        count: u32,
    },
    /// The parts of a split model do not belong together.
    #[error(
        "the parts of the split model do not fit together: {what} is {found}, expected {expected}"
    )]
    PartMismatch {
        /// The metadata key that differs.
        what: &'static str,
        /// The value found.
        found: u64,
        /// The value that the first part implies.
        expected: u64,
    },
    /// The parts of a split model have another number of tensors than the first one states.
    #[error(
        "the parts of the split model do not fit together: {key} is {stated}, and the parts have \
         {found} tensors"
    )]
    PartTensors {
        /// The metadata key.
        key: &'static str,
        /// Value of the key.
        stated: u64,
        /// The number of tensors in all parts.
        found: usize,
    },
    /// A part of a split model was given as bytes, so the other parts are unknown.
    #[error("the bytes are one of {count} parts of a split model: open it by path")]
    SplitInMemory {
        /// The number of parts.
        count: u32,
    },
    /// The writer was given something that the reader refuses.
    #[error("cannot write {subject}: {problem}")]
    Unwritable {
        /// The key or tensor.
        subject: Subject,
        /// The rule that it breaks.
        problem: Problem,
    },
    /// The data of a tensor could not be produced or stored.
    #[error("cannot write the data of tensor '{name}'")]
    TensorData {
        /// The tensor.
        name: String,
        /// The error of the producer or of the output.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The header could not be stored.
    #[error("cannot write the GGUF header")]
    Header {
        /// The error of the output.
        source: io::Error,
    },
}

impl Error {
    /// Adds the file to the error.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        Self::InFile { path: path.to_owned(), error: Box::new(self) }
    }
}

/// The part of a file that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// The fixed header: version and counts.
    Header,
    /// A metadata entry with an unknown key, by its index.
    Entry(u64),
    /// A metadata entry.
    Key(String),
    /// A tensor with an unknown name, by its index.
    TensorEntry(u64),
    /// A tensor.
    Tensor(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Entry(index) => write!(f, "metadata entry {index}"),
            // Names come from the file: escape what could upset a terminal.
            Self::Key(key) => write!(f, "key '{}'", key.escape_debug()),
            Self::TensorEntry(index) => write!(f, "tensor entry {index}"),
            Self::Tensor(name) => write!(f, "tensor '{}'", name.escape_debug()),
        }
    }
}

/// A broken rule of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends inside a field.
    #[error("the file is truncated: {needed_bytes} bytes are needed, {available_bytes} remain")]
    Truncated {
        /// The size of the field.
        needed_bytes: u64,
        /// The bytes from the field to the end of the file.
        available_bytes: u64,
    },
    /// A count exceeds the items that the rest of the file can hold.
    #[error(
        "{count} items cannot fit in the remaining {available_bytes} bytes: the file is truncated or damaged"
    )]
    CountTooLarge {
        /// The count in the file.
        count: u64,
        /// The bytes from the count to the end of the file.
        available_bytes: u64,
    },
    /// A key or name is empty.
    #[error("the name is empty")]
    EmptyName,
    /// A key or name is longer than the format allows.
    #[error("the name has {length_bytes} bytes, more than the {limit_bytes} allowed")]
    NameTooLong {
        /// The length.
        length_bytes: u64,
        /// The maximum.
        limit_bytes: u64,
    },
    /// A key, name or value is not UTF-8.
    #[error("the text is not valid UTF-8")]
    InvalidUtf8,
    /// A key occurs twice.
    #[error("the key occurs twice")]
    DuplicateKey,
    /// A tensor name occurs twice.
    #[error("the tensor occurs twice")]
    DuplicateTensor,
    /// A value has a kind that the format does not define.
    #[error("unknown value type {id}")]
    UnknownValueKind {
        /// The number in the file.
        id: u32,
    },
    /// A bool is neither 0 nor 1.
    #[error("a bool must be 0 or 1, not {value}")]
    InvalidBool {
        /// The byte in the file.
        value: u8,
    },
    /// Arrays are nested too deeply.
    #[error("arrays are nested more than {limit} deep")]
    ArrayTooDeep {
        /// The deepest supported nesting.
        limit: usize,
    },
    /// The strings of one array take more than 4 GiB.
    #[error("the strings of the array take {length_bytes} bytes, more than 4 GiB")]
    ArrayTooLarge {
        /// The total length.
        length_bytes: u64,
    },
    /// `general.alignment` is zero, no power of two, or larger than the limit.
    #[error("alignment {alignment} is not a power of two between 1 and {limit}")]
    BadAlignment {
        /// The alignment in the file.
        alignment: i128,
        /// The largest supported alignment.
        limit: u64,
    },
    /// A tensor has no axis or too many.
    #[error("{count} dimensions, where 1 to 4 are allowed")]
    DimensionCount {
        /// The number of axes.
        count: u64,
    },
    /// An axis has length zero.
    #[error("dimension {axis} is zero")]
    ZeroDimension {
        /// The axis, from 0.
        axis: usize,
    },
    /// The number of elements or bytes does not fit in 63 bits.
    #[error("the size overflows: shape {shape:?}")]
    SizeOverflow {
        /// The shape in the file.
        shape: Vec<u64>,
    },
    /// A row is not a whole number of quantisation blocks.
    #[error("rows of {columns} values are not a multiple of the {block_elements} of a {ty} block")]
    PartialBlock {
        /// The length of the contiguous axis.
        columns: u64,
        /// Values per block.
        block_elements: u64,
        /// The type.
        ty: TensorType,
    },
    /// The data does not start at a multiple of the alignment.
    #[error("data offset {data_offset} is not a multiple of the alignment {alignment}")]
    MisalignedData {
        /// The offset in the data section.
        data_offset: u64,
        /// The alignment of the file.
        alignment: u64,
    },
    /// The data goes past the end of the file.
    #[error(
        "its data ends at byte {end} but the file has {file_bytes}: the file is truncated (was the download \
         complete?)"
    )]
    DataPastEnd {
        /// The end of the data, saturated to 64 bits.
        end: u64,
        /// The size of the file.
        file_bytes: u64,
    },
    /// Two tensors share bytes.
    #[error("its data overlaps that of tensor '{}'", other.escape_debug())]
    OverlappingData {
        /// The tensor that starts earlier.
        other: String,
    },
    /// A private MXFP6 type lacks the key that describes its layout.
    #[error("type {ty} needs the key '{}' with value 1, found {}", crate::MXFP6_LAYOUT_KEY, found_layout(*.found))]
    Mxfp6Layout {
        /// The type.
        ty: TensorType,
        /// The value of the key. `None` if it is missing.
        found: Option<u32>,
    },
    /// The producer of a tensor's data wrote the wrong number of bytes.
    #[error("{written_bytes} bytes of data were produced where the shape needs {expected_bytes}")]
    WrongDataSize {
        /// The number of bytes produced.
        written_bytes: u64,
        /// The number of bytes that shape and type require.
        expected_bytes: u64,
    },
}

/// A hint from the first bytes of a file of another type, with a cure if possible.
fn not_gguf(found: [u8; 16]) -> String {
    let starts = |prefix: &[u8]| found.starts_with(prefix);
    let hint = if starts(b"version https://") {
        "it is a Git LFS pointer: fetch the real file with `git lfs pull`"
    } else if starts(b"<!") || starts(b"<html") {
        "it is a web page: the download link gave a page instead of the file"
    } else if starts(b"PK\x03\x04") {
        "it is a zip archive, perhaps a PyTorch checkpoint: convert it to GGUF first"
    } else if starts(b"tjgg") || starts(b"lmgg") || starts(b"fmgg") || starts(b"algg") {
        "it is in a ggml format older than GGUF: convert the original model again"
    } else if found[8] == b'{' && found[..8] != [0; 8] && found[4..8] == [0; 4] {
        "it looks like a safetensors file: convert it to GGUF first"
    } else if found
        .iter()
        .all(|&b| b == 0 || b == b'\n' || b == b'\r' || b == b'\t' || (32..127).contains(&b))
        && found[0] != 0
    {
        "it looks like a text file"
    } else {
        return format!("it starts with bytes {:02x?} and not with \"GGUF\"", &found[..4]);
    };
    hint.to_owned()
}

fn found_layout(found: Option<u32>) -> String {
    found.map_or_else(|| "no such key".to_owned(), |value| value.to_string())
}
