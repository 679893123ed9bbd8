//! Changes of the metadata of a model file.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rf_gguf::{Gguf, GgufWriter, Value};

use crate::copying::{self, check_is_new};
use crate::edit_problem::EditProblem;
use crate::error::Error;
use crate::split::SPLIT_KEYS;

mod text;

/// The requested changes. Keys are removed first, then renamed, then set.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Keys to remove.
    pub remove: Vec<String>,
    /// Old and new names of keys, which keep their place.
    pub rename: Vec<(String, String)>,
    /// Keys and the text of their values. A key of the file keeps its type. The value of a new key
    /// has its type in front, as in `u32:5`, or for an array `u32[]:[5, 6]`. Arrays are JSON lists.
    pub set: Vec<(String, String)>,
}

/// The change of one key.
#[derive(Clone, Debug)]
pub struct Change {
    /// The key before.
    pub key: String,
    /// The key afterwards.
    pub new_key: String,
    /// The value before; missing for a new key.
    pub old: Option<Value>,
    /// The value afterwards; missing for a removed key.
    pub new: Option<Value>,
}

/// Planned changes of the metadata of one file. The data of the tensors stay as they are.
#[derive(Debug)]
pub struct Edit<'a> {
    gguf: &'a Gguf,
    changes: Vec<Change>,
    writer: GgufWriter,
}

impl<'a> Edit<'a> {
    /// Checks the changes.
    ///
    /// # Errors
    ///
    /// If the model has several files, a key cannot be changed as requested, or a tensor has an
    /// unsupported type.
    pub fn plan(gguf: &'a Gguf, changes: &Changes) -> Result<Self, Error> {
        if gguf.paths().len() > 1 {
            return Err(Error::SeveralParts { parts: gguf.paths().len() });
        }
        let mut entries = Entries::of(gguf);
        entries.apply(changes)?;
        let mut writer = GgufWriter::new();
        for Change { new_key, new, .. } in &entries.0 {
            if let Some(value) = new {
                writer.add(new_key, value.clone())?;
            }
        }
        copying::declare(&mut writer, gguf.tensors())?;
        let mut changes = entries.0;
        changes.retain(|change| change.key != change.new_key || change.old != change.new);
        Ok(Self { gguf, changes, writer })
    }

    /// The changes, in the order of the keys. A key that keeps its value is none.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Writes the changed file to `output`.
    ///
    /// `progress` receives the bytes of tensor data that were copied since its last call. When it
    /// breaks, the work stops and leaves no file.
    ///
    /// # Errors
    ///
    /// If `output` exists or cannot be written, or `progress` breaks.
    pub fn write(
        &self,
        output: &Path,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        check_is_new(output)?;
        copying::write(self.gguf, &self.writer, output, &mut progress)
    }

    /// Replaces the file by the changed one and returns the path of its backup: the name with
    /// `.bak` and, if that exists, a number. There is a complete file under the name at all times.
    ///
    /// # Errors
    ///
    /// If the model was read from memory, a file cannot be written, or `progress` breaks. The
    /// file is then the old one, and there is no backup.
    pub fn write_in_place(
        &self,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<PathBuf, Error> {
        let path = self.gguf.paths().first().ok_or(rf_gguf::Error::Empty)?;
        // The backup of a link is beside the file that it names, which is replaced.
        let file = if path.is_symlink() { fs::canonicalize(path).ok() } else { None };
        let file = file.unwrap_or_else(|| path.clone());
        let backup = back_up(&file)?;
        let written = copying::write(self.gguf, &self.writer, &file, &mut progress);
        if let Err(error) = written {
            // The error of the file is the one to report.
            drop(fs::remove_file(&backup));
            return Err(error);
        }
        Ok(backup)
    }
}

/// Gives a file a second name, or copies it where the file system has no such names.
fn back_up(file: &Path) -> Result<PathBuf, Error> {
    for number in 0_u32.. {
        let mut name = file.as_os_str().to_owned();
        name.push(if number == 0 { ".bak".to_owned() } else { format!(".bak{number}") });
        let path = PathBuf::from(name);
        let linked = fs::hard_link(file, &path).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Err(error),
            _ => copy_new(file, &path),
        });
        match linked {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(Error::Backup { path, source }),
        }
    }
    Err(Error::Exists { path: file.to_owned() })
}

fn copy_new(from: &Path, to: &Path) -> io::Result<()> {
    let mut copy = fs::File::create_new(to)?;
    let copied = fs::File::open(from).and_then(|mut file| io::copy(&mut file, &mut copy));
    let copied = copied.and_then(|_| copy.sync_all());
    if copied.is_err() {
        drop(fs::remove_file(to));
    }
    copied
}

/// The metadata while they are changed: an entry for each key before, and those of new keys.
struct Entries(Vec<Change>);

impl Entries {
    fn of(gguf: &Gguf) -> Self {
        let entries = gguf.metadata().iter().map(|(key, value)| {
            let [old, new] = [(); 2].map(|()| Some(value.clone()));
            Change { key: key.to_owned(), new_key: key.to_owned(), old, new }
        });
        Self(entries.collect())
    }

    fn apply(&mut self, changes: &Changes) -> Result<(), Error> {
        let renamed = changes.rename.iter().flat_map(|(old, new)| [old, new]);
        let set = changes.set.iter().map(|(key, _)| key);
        let mut keys = changes.remove.iter().chain(renamed).chain(set);
        if let Some(key) = keys.find(|key| key.starts_with(SPLIT_KEYS)) {
            return Err(problem(key, EditProblem::OfParts));
        }
        for key in &changes.remove {
            self.required(key)?.new = None;
        }
        for (key, new_key) in &changes.rename {
            let is_taken = self.named(new_key).is_some();
            let entry = self.required(key)?;
            if is_taken {
                return Err(problem(key, EditProblem::NameTaken { name: new_key.clone() }));
            }
            entry.new_key.clone_from(new_key);
        }
        for (key, text) in &changes.set {
            self.set(key, text).map_err(|error| problem(key, error))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, text: &str) -> Result<(), EditProblem> {
        if let Some(entry) = self.named(key) {
            entry.new = Some(text::parsed(entry.new.as_ref(), text)?);
            return Ok(());
        }
        let new = Some(text::parsed(None, text)?);
        // The place of a removed key of this name.
        let removed = self.0.iter_mut().find(|entry| entry.new.is_none() && entry.new_key == key);
        if let Some(removed) = removed {
            removed.new = new;
        } else {
            self.0.push(Change { key: key.to_owned(), new_key: key.to_owned(), old: None, new });
        }
        Ok(())
    }

    /// The entry that has this name after the changes so far.
    fn named(&mut self, key: &str) -> Option<&mut Change> {
        self.0.iter_mut().find(|entry| entry.new.is_some() && entry.new_key == key)
    }

    fn required(&mut self, key: &str) -> Result<&mut Change, Error> {
        self.named(key).ok_or_else(|| problem(key, EditProblem::Missing))
    }
}

fn problem(key: &str, problem: EditProblem) -> Error {
    Error::Edit { key: key.to_owned(), problem }
}
