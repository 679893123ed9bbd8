//! The entry of the crate: a hub, its cache folder, and the way to a model file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use ureq::Agent;

use crate::cache::{self, CachedModel, Folder};
use crate::listing::{Blob, Listing, Remote};
use crate::transfer::{Transfer, TransferEvent, agent};
use crate::{Error, ModelName, choice};

const ENDPOINT: &str = "https://huggingface.co";

/// The time after which a silent connection is given up.
const SILENCE: Duration = Duration::from_mins(1);

/// An event while a model is fetched.
#[derive(Debug)]
#[non_exhaustive]
pub enum FetchEvent<'a> {
    /// Bytes of the model are on the disk. There is no such event if nothing is downloaded.
    Progress {
        /// Bytes on the disk, of all files of the model.
        done_bytes: u64,
        /// The size of all files of the model.
        total_bytes: u64,
    },
    /// A download stopped, because the connection was lost or silent, and is tried again.
    Retry {
        /// The file of the repository.
        file: &'a str,
        /// The reason of the failure.
        reason: &'a str,
    },
    /// The hub cannot be reached, so a cached model is used without looking for a newer one.
    Unreachable(&'a Error),
}

/// A hub and the folder for its files.
#[derive(Debug)]
pub struct Hub {
    endpoint: String,
    cache: PathBuf,
    token: Option<String>,
    offline: bool,
    projectors: bool,
    retries: u32,
    silence: Duration,
    agent: Agent,
}

impl Hub {
    /// A hub at the URL `endpoint`, with the cache folder `cache`.
    pub fn new(endpoint: &str, cache: impl Into<PathBuf>) -> Self {
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache: cache.into(),
            token: None,
            offline: false,
            projectors: false,
            retries: 5,
            silence: SILENCE,
            agent: agent(SILENCE),
        }
    }

    /// The hub that the environment names, with the variables of `huggingface_hub`: `HF_ENDPOINT`,
    /// `HF_TOKEN` (else the file `HF_TOKEN_PATH` or `HF_HOME/token`), `HF_HUB_CACHE` (else
    /// `HF_HOME/hub`, else `XDG_CACHE_HOME/huggingface/hub`) and `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    ///
    /// [`Error::NoHome`] if no variable names a folder and the user has no home.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| env::var_os(name))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let folder = |name| set(name).map(PathBuf::from);
        let text = |name| set(name).map(|value| value.to_string_lossy().trim().to_owned());
        let home = folder("HF_HOME").or_else(|| {
            let user = || folder(HOME).or_else(env::home_dir).map(|home| home.join(".cache"));
            Some(folder("XDG_CACHE_HOME").or_else(user)?.join("huggingface"))
        });
        let cache = folder("HF_HUB_CACHE").or_else(|| Some(home.as_ref()?.join("hub")));
        let token_file = folder("HF_TOKEN_PATH").or_else(|| Some(home?.join("token")));
        let token = text("HF_TOKEN")
            .or_else(|| Some(fs::read_to_string(token_file?).ok()?.trim().to_owned()));
        let offline = text("HF_HUB_OFFLINE")
            .is_some_and(|value| ["1", "on", "yes", "true"].contains(&&*value.to_lowercase()));
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        Ok(Self::new(&endpoint, cache.ok_or(Error::NoHome)?)
            .with_token(token)
            .with_offline(offline))
    }

    /// Sends this token of an account to the hub.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token: token.filter(|token| !token.is_empty()), ..self }
    }

    /// Uses only what is cached.
    #[must_use]
    pub fn with_offline(self, offline: bool) -> Self {
        Self { offline, ..self }
    }

    /// Downloads the projector of a model too, if its repository has one, into the folder of the
    /// model. A projector (`mmproj` file) encodes pictures.
    #[must_use]
    pub fn with_projectors(self, projectors: bool) -> Self {
        Self { projectors, ..self }
    }

    /// Tries a download again up to `retries` times in a row without progress; 5 by default, and 0
    /// gives up at the first failure.
    #[must_use]
    pub fn with_retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Gives up a connection that brings no data for so long, and tries again; a minute by default.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, agent: agent(silence), ..self }
    }

    /// The folder of downloaded files.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The path of a model file, for a split model that of its first part. Downloads what is
    /// missing.
    ///
    /// # Errors
    ///
    /// Each [`Error`] documents when it occurs. What was downloaded until then stays, except for
    /// [`Error::Checksum`], so that the next call resumes.
    pub fn fetch(
        &self,
        name: &ModelName,
        on_event: &mut dyn FnMut(FetchEvent<'_>),
    ) -> Result<PathBuf, Error> {
        let folder = Folder::new(&self.cache, name.repo());
        if let Err(error) = self.check_online(name) {
            return folder.model(name).ok_or(error);
        }
        let remote = self.remote(name.repo());
        match remote.listing() {
            Ok(listing) => self.download(name, &remote, &listing, &folder, on_event),
            Err(error) if error.is_outage() => {
                let Some(path) = folder.model(name) else { return Err(error) };
                on_event(FetchEvent::Unreachable(&error));
                Ok(path)
            }
            Err(error) => Err(error),
        }
    }

    /// The complete models in the cache folder, by name. Needs no network.
    pub fn cached(&self) -> Vec<CachedModel> {
        cache::models(&self.cache)
    }

    /// Removes a cached model, or all models of a repository if `name` has no quantisation. Returns
    /// the size of the removed model files in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NothingToRemove`] if it is not cached, [`Error::Disk`] if a file cannot be removed.
    pub fn remove(&self, name: &ModelName) -> Result<u64, Error> {
        Folder::new(&self.cache, name.repo()).remove(name)
    }

    /// Checks that downloads are allowed.
    pub(crate) fn check_online(&self, name: &ModelName) -> Result<(), Error> {
        let (name, cache) = (name.to_string(), self.cache.clone());
        if self.offline { Err(Error::NotCached { name, cache }) } else { Ok(()) }
    }

    pub(crate) fn remote<'a>(&'a self, name: &'a str) -> Remote<'a> {
        let token = self.token.as_deref();
        Remote { agent: &self.agent, token, name, endpoint: &self.endpoint }
    }

    /// Downloads the missing files of a model.
    fn download(
        &self,
        name: &ModelName,
        remote: &Remote<'_>,
        Listing { commit, files }: &Listing,
        folder: &Folder,
        on_event: &mut dyn FnMut(FetchEvent<'_>),
    ) -> Result<PathBuf, Error> {
        let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
        let chosen = choice::choose(name.repo(), &paths, name.quant())?;
        let projector = choice::projector(&paths).filter(|_| self.projectors);
        let wanted = chosen.iter().copied().chain(projector);
        let parts = wanted.filter_map(|path| files.iter().find(|file| file.path == path));
        let parts = parts.map(|file| Ok((&*file.path, remote.blob(file)?)));
        let parts = parts.collect::<Result<Vec<(&str, Blob)>, Error>>()?;
        let total_bytes = parts.iter().map(|(_, blob)| blob.size).sum();
        let mut before = 0;
        for (file, blob) in &parts {
            if !folder.has(commit, file, blob) {
                if !folder.has_blob(blob) {
                    let (retries, silence) = (self.retries, self.silence);
                    let transfer = Transfer { remote, file, blob, retries, silence };
                    transfer.run(&folder.blob(&blob.id), &mut |event| match event {
                        TransferEvent::Bytes(done) => {
                            on_event(FetchEvent::Progress {
                                done_bytes: before + done,
                                total_bytes,
                            });
                        }
                        TransferEvent::Retry(reason) => {
                            on_event(FetchEvent::Retry { file, reason });
                        }
                    })?;
                }
                folder.link(commit, file, blob)?;
            }
            before += blob.size;
        }
        folder.set_main(commit)?;
        Ok(folder.file(commit, chosen[0]))
    }
}

/// The variable with the user's folder, as Python reads it: shells on Windows set `HOME` to another
/// one.
const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(variables: &[(&str, &str)]) -> Hub {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Hub::from_variables(|name| find(name).map(|(_, value)| value.into())).unwrap()
    }

    #[test]
    fn the_cache_folder_is_the_usual_one() {
        for (variables, expected) in [
            (&[(HOME, "/users/u")][..], "/users/u/.cache/huggingface/hub"),
            (&[(HOME, "/users/u"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("HF_HOME", "/hf"), ("XDG_CACHE_HOME", "/x")], "/hf/hub"),
            (&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/models")], "/models"),
            (&[("HF_HOME", ""), (HOME, "/users/u")], "/users/u/.cache/huggingface/hub"),
        ] {
            assert_eq!(hub(variables).cache(), Path::new(expected), "{variables:?}");
        }
    }

    #[test]
    fn endpoint_token_and_offline_mode_come_from_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let home = ("HF_HOME", folder.path().to_str().unwrap());
        let plain = hub(&[home]);
        assert_eq!((&*plain.endpoint, plain.token, plain.offline), (ENDPOINT, None, false));
        fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        assert_eq!(hub(&[home]).token.as_deref(), Some("hf_file"));
        let set =
            [("HF_TOKEN", "hf_env "), ("HF_ENDPOINT", "http://mirror/"), ("HF_HUB_OFFLINE", "1")];
        let set = hub(&[&[home][..], &set].concat());
        assert_eq!(set.token.as_deref(), Some("hf_env"));
        assert_eq!((&*set.endpoint, set.offline), ("http://mirror", true));
    }
}
