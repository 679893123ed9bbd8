//! The beginnings of model files of the hub: metadata and tensor tables, without weights.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rocmforge::gguf::Gguf;
use rocmforge::hub::{Hub, RemoteModel};
use tempfile::TempDir;

/// Bytes of the first file of a model, and of each further one, that are downloaded in turn until
/// the header is complete. A vocabulary of 250 000 tokens takes about 10 MB.
const STEPS: [(u64, u64); 3] = [(6 << 20, 1 << 20), (16 << 20, 4 << 20), (64 << 20, 64 << 20)];

/// A folder of files that begin as those of the hub, have their sizes, and hold no weights.
pub(super) struct Heads<'a> {
    hub: &'a Hub,
    folder: TempDir,
}

impl<'a> Heads<'a> {
    pub(super) fn new(hub: &'a Hub) -> Result<Self> {
        let folder = TempDir::new().context("cannot create a folder for headers")?;
        Ok(Self { hub, folder })
    }

    /// The path of the first file of a model. What lies behind the header is a hole, which takes no
    /// place on the disk.
    pub(super) fn open(&self, model: &RemoteModel) -> Result<PathBuf> {
        let base = |file: &str| file.rsplit('/').next().unwrap_or(file).to_owned();
        let paths: Vec<PathBuf> =
            model.files.iter().map(|(file, _)| self.folder.path().join(base(file))).collect();
        let mut done = vec![0; paths.len()];
        let mut outcome = Ok(());
        for (first, further) in STEPS {
            for (number, ((file, size), path)) in model.files.iter().zip(&paths).enumerate() {
                let end = if number == 0 { first } else { further }.min(*size);
                if end <= done[number] {
                    continue;
                }
                let bytes = self.hub.part(&model.name, file, done[number]..end)?;
                let mut options = OpenOptions::new();
                let mut head = options.create(true).truncate(false).write(true).open(path)?;
                head.seek(SeekFrom::Start(done[number]))?;
                head.write_all(&bytes)?;
                head.set_len(*size)?;
                done[number] += bytes.len() as u64;
            }
            outcome = Gguf::open(&paths[0]).map(drop);
            if outcome.is_ok() {
                break;
            }
        }
        outcome?;
        Ok(paths.into_iter().next().unwrap_or_default())
    }
}
