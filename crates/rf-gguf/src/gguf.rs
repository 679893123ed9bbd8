//! Opens a model by path, with all its parts, or from bytes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::{FileBytes, TensorData};
use crate::error::{Error, Problem, Subject};
use crate::metadata::{Duplicate, Metadata, index_by_name};
use crate::mmap::MappedFile;
use crate::parse::{Parsed, parse};
use crate::split::{self, PartIndex};
use crate::tensor::TensorInfo;
use crate::tensor_type::{MXFP6_LAYOUT, MXFP6_LAYOUT_KEY};
use crate::value::Value;

/// An opened GGUF model: checked metadata and tensor table.
///
/// Tensor data stays in the file, which is mapped as long as this value or any of its
/// [`TensorData`] exists.
#[derive(Debug)]
pub struct Gguf {
    version: u32,
    alignment: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    // Indices into `tensors`, sorted by name.
    by_name: Vec<usize>,
    parts: Vec<Arc<FileBytes>>,
    paths: Vec<PathBuf>,
}

impl Gguf {
    /// Opens the file at `path` and, if it is a part of a split model, all other parts.
    ///
    /// `path` can be any part. The others are expected in the same folder as
    /// `NAME-00001-of-0000N.gguf`. The metadata come from the first part, the tensors from all
    /// parts in order.
    ///
    /// # Errors
    ///
    /// When a file cannot be opened or breaks a rule of the format. The error names the file, the
    /// offset and the key or tensor.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let opened = Opened::map(path)?;
        match split::part(&opened.parsed.metadata).map_err(|error| error.in_file(path))? {
            None => Self::assemble(opened, Vec::new(), vec![path.to_owned()]),
            Some(part) => Self::open_parts(path, opened, part),
        }
    }

    /// Reads a model that is embedded in the program.
    ///
    /// # Errors
    ///
    /// When the bytes break a rule of the format, or are one part of a split model.
    pub fn from_static(bytes: &'static [u8]) -> Result<Self, Error> {
        Self::from_memory(FileBytes::Static(bytes))
    }

    /// Reads a model from memory.
    ///
    /// # Errors
    ///
    /// When the bytes break a rule of the format, or are one part of a split model.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::from_memory(FileBytes::Owned(bytes))
    }

    /// The version of the format: 2 or 3.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The alignment of tensor data, in a split model that of the first part.
    pub const fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The metadata, in a split model those of the first part.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Replaces a value of the metadata in memory, or adds it.
    pub fn override_metadata(&mut self, key: &str, value: Value) {
        self.metadata.set(key, value);
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let find = |&index: &usize| self.tensors[index].name().cmp(name);
        let place = self.by_name.binary_search_by(find).ok()?;
        Some(&self.tensors[self.by_name[place]])
    }

    /// The tensor with this name.
    ///
    /// # Errors
    ///
    /// When no tensor has this name.
    pub fn required_tensor(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.tensor(name).ok_or_else(|| Error::MissingTensor { name: name.to_owned() })
    }

    /// The stored bytes of one of this model's tensors.
    pub fn data(&self, tensor: &TensorInfo) -> TensorData {
        debug_assert!(self.parts.iter().any(|part| Arc::ptr_eq(part, &tensor.source)));
        tensor.data()
    }

    /// Checks that rf-quant supports the format of every tensor. Running a model requires it,
    /// listing its tensors does not.
    ///
    /// # Errors
    ///
    /// When a format is not supported. The error names the tensor and its type.
    pub fn check_types(&self) -> Result<(), Error> {
        self.tensors.iter().try_for_each(|tensor| tensor.dtype().map(drop))
    }

    /// The files of the model in order. Empty for a model from memory.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The total size of the model's files.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    fn from_memory(source: FileBytes) -> Result<Self, Error> {
        let opened = Opened::parse(source)?;
        match split::part(&opened.parsed.metadata)? {
            None => Self::assemble(opened, Vec::new(), Vec::new()),
            Some(part) => Err(Error::SplitInMemory { count: part.count }),
        }
    }

    /// `named` is the part at the given path.
    fn open_parts(path: &Path, named: Opened, part: PartIndex) -> Result<Self, Error> {
        let paths = part.all_paths(path).map_err(|error| error.in_file(path))?;
        let mut named = Some(named);
        let mut opened = Vec::new();
        for (index, path) in (0..).zip(&paths) {
            let this = match named.take_if(|_| index == part.index) {
                Some(named) => named,
                None => Opened::map(path).map_err(|error| match error {
                    Error::NotFound { path } => {
                        Error::MissingPart { path, part: index + 1, count: part.count }
                    }
                    error => error,
                })?,
            };
            PartIndex { index, ..part }
                .check(&this.parsed.metadata)
                .map_err(|error| error.in_file(path))?;
            opened.push(this);
        }
        let rest = opened.split_off(1);
        let first = opened.remove(0);
        let tensors: usize =
            rest.iter().chain([&first]).map(|opened| opened.parsed.tensors.len()).sum();
        split::check_tensor_count(&first.parsed.metadata, tensors)
            .map_err(|error| error.in_file(&paths[0]))?;
        Self::assemble(first, rest, paths)
    }

    fn assemble(first: Opened, rest: Vec<Opened>, paths: Vec<PathBuf>) -> Result<Self, Error> {
        let Opened { source, parsed } = first;
        let Parsed { version, alignment, metadata, mut tensors } = parsed;
        let mut parts = vec![source];
        for opened in rest {
            tensors.extend(opened.parsed.tensors);
            parts.push(opened.source);
        }
        let mut gguf =
            Self { version, alignment, metadata, tensors, by_name: Vec::new(), parts, paths };
        gguf.check_mxfp6_layout()?;
        gguf.by_name = index_by_name(&gguf.tensors, TensorInfo::name)
            .map_err(|Duplicate(index)| gguf.malformed(index, Problem::DuplicateTensor))?;
        Ok(gguf)
    }

    fn check_mxfp6_layout(&self) -> Result<(), Error> {
        let Some(index) = self.tensors.iter().position(|tensor| tensor.ty.is_mxfp6()) else {
            return Ok(());
        };
        match self.metadata.u32(MXFP6_LAYOUT_KEY)? {
            Some(MXFP6_LAYOUT) => Ok(()),
            found => {
                let ty = self.tensors[index].ty;
                Err(self.malformed(index, Problem::Mxfp6Layout { ty, found }))
            }
        }
    }

    fn malformed(&self, index: usize, problem: Problem) -> Error {
        let tensor = &self.tensors[index];
        let error = Error::Malformed {
            offset: tensor.entry_offset,
            subject: Subject::Tensor(tensor.name.to_string()),
            problem,
        };
        let part = self.parts.iter().position(|part| Arc::ptr_eq(part, &tensor.source));
        match part.and_then(|part| self.paths.get(part)) {
            Some(path) => error.in_file(path),
            None => error,
        }
    }
}

/// One opened and parsed file.
struct Opened {
    source: Arc<FileBytes>,
    parsed: Parsed,
}

impl Opened {
    fn parse(source: FileBytes) -> Result<Self, Error> {
        let source = Arc::new(source);
        let parsed = parse(&source)?;
        Ok(Self { source, parsed })
    }

    fn map(path: &Path) -> Result<Self, Error> {
        let fail = |action| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::NotFound => Error::NotFound { path: path.to_owned() },
                _ => Error::Io { action, path: path.to_owned(), source },
            }
        };
        // Checked before opening, because opening a pipe waits for its writer.
        let metadata = fs::metadata(path).map_err(fail("open"))?;
        if metadata.is_dir() {
            return Err(Error::Directory { path: path.to_owned() });
        }
        if !metadata.is_file() {
            return Err(Error::NotRegular { path: path.to_owned() });
        }
        if metadata.len() == 0 {
            return Err(Error::Empty.in_file(path));
        }
        let file = File::open(path).map_err(fail("open"))?;
        let map = MappedFile::new(&file).map_err(fail("map"))?;
        Self::parse(FileBytes::Mapped(map)).map_err(|error| error.in_file(path))
    }
}
