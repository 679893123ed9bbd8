//! The models of a repository, before anything is downloaded: their sizes and parts of their files.

use std::io::{self, Read};
use std::ops::Range;

use crate::{Error, Hub, ModelName, choice};

/// A model on the hub.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteModel {
    /// The repository and the quantisation.
    pub name: ModelName,
    /// Its files in order, several for a split model: the path in the repository, and the size in
    /// bytes.
    pub files: Vec<(String, u64)>,
}

impl RemoteModel {
    /// The size of all files in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }
}

impl Hub {
    /// Lists the complete models of a repository, or the one in the quantisation that `name` has.
    ///
    /// # Errors
    ///
    /// The errors of [`fetch`](Self::fetch), except those of the disk.
    pub fn models(&self, name: &ModelName) -> Result<Vec<RemoteModel>, Error> {
        self.check_online(name)?;
        let remote = self.remote(name.repo());
        let files = remote.listing()?.files;
        let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
        // One of them, or an error that names what there is.
        let chosen = choice::choose(name.repo(), &paths, name.quant())?;
        let is_meant = |parts: &[&str]| name.quant().is_none() || parts == chosen;
        let mut models = Vec::new();
        for (quant, parts) in choice::complete(&paths) {
            let named = ModelName::of_parts(name.repo(), Some(&quant));
            let Some(named) = named.filter(|_| is_meant(&parts)) else { continue };
            let parts = files.iter().filter(|file| parts.contains(&&*file.path));
            let files = parts.map(|file| Ok((file.path.clone(), remote.blob(file)?.size)));
            models.push(RemoteModel { name: named, files: files.collect::<Result<_, Error>>()? });
        }
        Ok(models)
    }

    /// Downloads a part of a file of a repository into memory. It is shorter where the file ends.
    ///
    /// # Errors
    ///
    /// The errors of [`fetch`](Self::fetch), except those of the disk.
    pub fn part(&self, name: &ModelName, file: &str, range: Range<u64>) -> Result<Vec<u8>, Error> {
        self.check_online(name)?;
        let remote = self.remote(name.repo());
        let last = range.end.saturating_sub(1);
        let request = remote.get(file).header("Range", format!("bytes={}-{last}", range.start));
        let response = request.call().map_err(|error| remote.failure(file, &error))?;
        let is_part = response.status() == 206;
        let mut reader = response.into_body().into_reader();
        let mut bytes = Vec::new();
        let read = || {
            // A server may send the whole file.
            if !is_part {
                io::copy(&mut (&mut reader).take(range.start), &mut io::sink())?;
            }
            reader.take(range.end - range.start).read_to_end(&mut bytes)
        };
        read().map_err(|error| Error::Interrupted {
            file: file.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(bytes)
    }
}
