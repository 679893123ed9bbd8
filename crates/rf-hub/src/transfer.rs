//! Downloads the contents of a file into the cache folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::config::RedirectAuthHeaders;
use ureq::{Agent, BodyReader};

use crate::Error;
use crate::cache::create_parent;
use crate::listing::{Blob, Remote};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// The client of downloads. It gives up a connection that is silent for so long.
pub(crate) fn agent(silence: Duration) -> Agent {
    let silence = Some(silence);
    Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(silence)
        .timeout_per_read(silence)
        // Storage servers get links that are signed; the token is for the hub.
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .accept_encoding("identity")
        .user_agent(concat!("rocmforge/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// A download of one file.
pub(crate) struct Transfer<'a> {
    pub(crate) remote: &'a Remote<'a>,
    /// The path inside the repository.
    pub(crate) file: &'a str,
    pub(crate) blob: &'a Blob,
    /// Attempts after one that brought nothing.
    pub(crate) retries: u32,
    /// The time after which a silent connection is given up.
    pub(crate) silence: Duration,
}

/// An event of a download.
pub(crate) enum TransferEvent<'a> {
    /// The number of bytes that are there.
    Bytes(u64),
    /// An attempt failed for this reason, and another one follows.
    Retry(&'a str),
}

impl Transfer<'_> {
    /// Downloads to `to`, from where an earlier attempt stopped.
    pub(crate) fn run(
        &self,
        to: &Path,
        on_event: &mut dyn FnMut(TransferEvent<'_>),
    ) -> Result<(), Error> {
        const PAUSE: Duration = Duration::from_millis(500);
        create_parent(to)?;
        let path = to.with_extension("part");
        let disk = |error| Error::Disk { path: path.clone(), error };
        let mut part =
            OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(disk)?;
        part.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::Busy { file: self.file.to_owned() },
            TryLockError::Error(error) => disk(error),
        })?;
        let mut failures = 0;
        loop {
            let before = part.metadata().map_err(disk)?.len();
            let Err(error) = self.attempt(&mut part, before, &path, on_event) else { break };
            let temporary = matches!(error, Error::Interrupted { .. }) || error.is_outage();
            let advanced = part.metadata().map_err(disk)?.len() > before;
            failures = if advanced { 0 } else { failures + 1 };
            if !temporary || self.retries == 0 || failures > self.retries {
                return Err(error);
            }
            on_event(TransferEvent::Retry(&reason(&error)));
            std::thread::sleep(PAUSE);
        }
        if let Some(expected) = self.blob.sha256() {
            let found = sha256(&mut part).map_err(disk)?;
            if !found.eq_ignore_ascii_case(expected) {
                fs::remove_file(&path).map_err(disk)?;
                let (file, expected) = (self.file.to_owned(), expected.to_owned());
                return Err(Error::Checksum { file, expected, found });
            }
        }
        fs::rename(&path, to).map_err(disk)
    }

    /// Requests what lies after the first `start` bytes and appends it to `part`.
    fn attempt(
        &self,
        part: &mut File,
        start: u64,
        path: &Path,
        on_event: &mut dyn FnMut(TransferEvent<'_>),
    ) -> Result<(), Error> {
        let mut on_bytes = |done| on_event(TransferEvent::Bytes(done));
        let disk = |error| Error::Disk { path: path.to_owned(), error };
        let stopped = |reason| Error::Interrupted { file: self.file.to_owned(), reason };
        let size = self.blob.size;
        let mut done = start;
        // More bytes than the file has are those of another one.
        if start > size {
            part.set_len(0).map_err(disk)?;
            done = 0;
        }
        on_bytes(done);
        if done < size {
            let mut body = self.request(done)?;
            if done > 0 && !body.resumes {
                part.set_len(0).map_err(disk)?;
                done = 0;
            }
            let mut chunk = vec![0; CHUNK];
            loop {
                let read = match body.reader.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if is_silence(&error) => {
                        return Err(stopped(format!(
                            "no data for {} s",
                            self.silence.as_secs_f64()
                        )));
                    }
                    Err(error) => return Err(stopped(error.to_string())),
                };
                part.write_all(&chunk[..read]).map_err(disk)?;
                done += read as u64;
                on_bytes(done);
                if done > size {
                    part.set_len(0).map_err(disk)?;
                    return Err(self.remote.answer(self.file, "too many bytes".to_owned()));
                }
            }
        }
        if done < size {
            return Err(stopped(format!("got {done} of {size} bytes")));
        }
        part.sync_all().map_err(disk)
    }

    fn request(&self, start: u64) -> Result<Contents, Error> {
        let mut request = self.remote.get(self.file);
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        let response = request.call().map_err(|error| self.remote.failure(self.file, &error))?;
        let resumes = response.status() == 206;
        Ok(Contents { reader: response.into_body().into_reader(), resumes })
    }
}

/// The bytes of a response.
struct Contents {
    reader: BodyReader<'static>,
    /// True if the bytes begin at the requested position, false if at 0.
    resumes: bool,
}

/// Returns true if a connection was given up because it brought no data.
fn is_silence(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(ureq::Error::Timeout(_)))
}

/// The reason of a failed attempt, without a cure: another attempt follows.
fn reason(error: &Error) -> String {
    match error {
        Error::Interrupted { reason, .. } | Error::Network { reason, .. } => reason.clone(),
        Error::Status { status, .. } => format!("status {status}"),
        other => other.to_string(),
    }
}

/// The SHA-256 of a file in hexadecimal.
fn sha256(file: &mut File) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&chunk[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}
