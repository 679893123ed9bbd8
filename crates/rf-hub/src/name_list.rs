//! The list of short names: that of the crate, or a newer one that is signed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, fs, io};

use minisign_verify::{PublicKey, Signature};

use crate::ShortName;
use crate::transfer::agent;

/// The first line of a list, before its date.
const HEADER: &str = "# ROCmForge names ";

/// The extension of signatures, which minisign chooses.
const SIGNATURE: &str = ".minisig";

/// The largest list.
const MAX_BYTES: u64 = 1 << 20;

/// The time after which a silent connection is given up.
const SILENCE: Duration = Duration::from_secs(30);

/// The lines of the stored file before the list: the key and the signature.
const STORED_LINES: usize = 5;

/// A list of short names.
///
/// The crate has one. [`NameList::update`] stores a newer one in the user's data folder, where
/// [`NameList::current`] finds it. A list is text: the line `# ROCmForge names YYYY-MM-DD`, then
/// comments (`#`) and rows of a name, a model, the size of its download in 10⁹ bytes and its
/// product (`text`, `embeddings`, `scores`).
#[derive(Clone, Debug, PartialEq)]
pub struct NameList {
    date: String,
    names: Vec<ShortName>,
}

/// An error on the way to a list of short names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameListError {
    /// The text is no public key.
    #[error("'{text}' is no public key of minisign: give the file or the line that minisign made")]
    Key {
        /// The text as given.
        text: String,
    },
    /// The file with the signature is missing.
    #[error("'{list}' has no signature ({reason}): put its file '{list}.minisig' beside it")]
    Unsigned {
        /// The file of the list.
        list: String,
        /// The reason of the failure.
        reason: String,
    },
    /// The signature is damaged, of another key or of another list.
    #[error("the signature of '{list}' is not valid ({reason}): the list is not used")]
    Signature {
        /// The file or URL of the list.
        list: String,
        /// The reason of the failure.
        reason: String,
    },
    /// The text is no list of names.
    #[error("'{list}' is no list of names (line {line}: {reason}): the list is not used")]
    Format {
        /// The file or URL of the list.
        list: String,
        /// The number of the line.
        line: usize,
        /// A description of the problem.
        reason: &'static str,
    },
    /// The list in use is newer.
    #[error("'{list}' is of {date}, and the list in use of {current}: the older list is not used")]
    Older {
        /// The file or URL of the list.
        list: String,
        /// The date of the list.
        date: String,
        /// The date of the list in use.
        current: String,
    },
    /// A file cannot be read.
    #[error("cannot read '{file}': {reason}")]
    Read {
        /// The file.
        file: String,
        /// The reason of the failure.
        reason: String,
    },
    /// A URL cannot be read.
    #[error(
        "cannot download '{url}': {reason}: check the URL, and that LIST.minisig is beside LIST"
    )]
    Download {
        /// The URL.
        url: String,
        /// The reason of the failure.
        reason: String,
    },
    /// There is no folder for the list, since the user has no home.
    #[error("no folder for the list of names: set XDG_DATA_HOME to one")]
    NoHome,
    /// The list cannot be stored.
    #[error("cannot write '{}': {error}: check its permissions", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        error: io::Error,
    },
}

impl NameListError {
    /// Returns true if another list or key is needed, and trying again would not help.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Download { .. } | Self::Write { .. })
    }
}

impl NameList {
    /// Returns the public key of the project, if the program was built with one
    /// (`ROCFORGE_NAMES_KEY`).
    pub fn project_key() -> Option<&'static str> {
        option_env!("ROCFORGE_NAMES_KEY").filter(|key| !key.is_empty())
    }

    /// Returns the list in use: the stored one if it is newer than that of the crate, else that.
    pub fn current() -> &'static Self {
        &CURRENT.0
    }

    /// Returns the reason why the stored list is not used, if it is damaged.
    pub fn stored_error() -> Option<&'static NameListError> {
        CURRENT.1.as_ref()
    }

    /// The date of the list, `YYYY-MM-DD`.
    pub fn date(&self) -> &str {
        &self.date
    }

    /// The names, grouped by family.
    pub fn names(&self) -> &[ShortName] {
        &self.names
    }

    /// Reads a list from a file or URL, verifies its signature, which is beside it and called
    /// `LIST.minisig`, with a public key of minisign, and stores it for later runs. This process
    /// continues with its list.
    ///
    /// # Errors
    ///
    /// If the list or its signature cannot be read, the signature is not valid, the list is not a
    /// list or an older one, or it cannot be stored.
    pub fn update(list: &str, key: &str) -> Result<Self, NameListError> {
        let key = public_key(key)?;
        let text = read(list)?;
        let signature = read(&format!("{list}{SIGNATURE}")).map_err(|error| match error {
            NameListError::Read { reason, .. } => {
                NameListError::Unsigned { list: list.to_owned(), reason }
            }
            error => error,
        })?;
        let stored = Stored::new(&key, &signature, &text, list)?;
        let new = stored.verified(list)?;
        let current = Self::current();
        if new.date < current.date {
            return Err(NameListError::Older {
                list: list.to_owned(),
                date: new.date,
                current: current.date.clone(),
            });
        }
        write(&stored_path().ok_or(NameListError::NoHome)?, &stored.text())?;
        Ok(new)
    }

    /// Parses the text of `list`, which the errors name.
    fn parse(text: &str, list: &str) -> Result<Self, NameListError> {
        let error = |line, reason| NameListError::Format { list: list.to_owned(), line, reason };
        let mut lines = text.lines().zip(1..);
        let date = lines.next().and_then(|(line, _)| line.strip_prefix(HEADER));
        let date = date.filter(|date| is_date(date));
        let date = date.ok_or_else(|| error(1, "expected '# ROCmForge names YYYY-MM-DD'"))?;
        let mut names = Vec::new();
        let mut known = HashSet::new();
        for (row, line) in lines {
            if row.starts_with('#') || row.trim().is_empty() {
                continue;
            }
            let name = ShortName::of_row(row).ok_or_else(|| {
                error(line, "expected FAMILY:TAG, OWNER/REPO[:QUANT], a size and a product")
            })?;
            if !known.insert(name.name().to_owned()) {
                return Err(error(line, "a name that the list has already"));
            }
            names.push(name);
        }
        Ok(Self { date: date.to_owned(), names })
    }

    /// The list of the crate, which a unit test parses.
    fn of_crate() -> Self {
        let list = Self::parse(include_str!("short_names.txt"), "short_names.txt");
        list.unwrap_or_else(|_| Self { date: String::new(), names: Vec::new() })
    }
}

impl ShortName {
    /// Returns all names of the list in use, grouped by family.
    pub fn all() -> &'static [Self] {
        NameList::current().names()
    }

    /// Finds a name, in any case: `FAMILY:TAG` or `FAMILY`, where `latest` means the family.
    pub fn find(text: &str) -> Option<&'static Self> {
        let text = text.strip_suffix(":latest").unwrap_or(text);
        let is_meant = |known: &&Self| {
            known.name().eq_ignore_ascii_case(text) || known.family().eq_ignore_ascii_case(text)
        };
        Self::all().iter().find(is_meant)
    }
}

/// The list in use, and the reason why the stored one is not.
static CURRENT: LazyLock<(NameList, Option<NameListError>)> = LazyLock::new(|| {
    let own = NameList::of_crate();
    let Some(path) = stored_path() else { return (own, None) };
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (own, None),
        Err(error) => {
            let (file, reason) = (path.display().to_string(), error.to_string());
            (own, Some(NameListError::Read { file, reason }))
        }
        Ok(text) => {
            let list = path.display().to_string();
            match Stored::parse(&text, &list).and_then(|stored| stored.verified(&list)) {
                // A newer program has a newer list.
                Ok(stored) if stored.date < own.date => (own, None),
                Ok(stored) => (stored, None),
                Err(error) => (own, Some(error)),
            }
        }
    }
});

/// A list with its signature and key, as one file: all three are replaced at once.
struct Stored<'a> {
    key: &'a str,
    signature: &'a str,
    list: &'a str,
}

impl<'a> Stored<'a> {
    fn new(
        key: &'a str,
        signature: &'a [u8],
        list: &'a [u8],
        name: &str,
    ) -> Result<Self, NameListError> {
        let text =
            |bytes| std::str::from_utf8(bytes).map_err(|_| signature_error(name, &"it is no text"));
        let (signature, list) = (text(signature)?, text(list)?);
        // The number of its lines is that of the stored form.
        if signature.lines().count() != STORED_LINES - 1 {
            return Err(signature_error(name, &"it is not of minisign"));
        }
        Ok(Self { key, signature: signature.trim_end(), list })
    }

    fn parse(text: &'a str, name: &str) -> Result<Self, NameListError> {
        let end = text.match_indices('\n').nth(STORED_LINES - 1).map(|(end, _)| end);
        let parts = end.and_then(|end| {
            let (key, signature) = text[..end].split_once('\n')?;
            Some(Self { key, signature, list: &text[end + 1..] })
        });
        parts.ok_or_else(|| signature_error(name, &"it is missing"))
    }

    fn text(&self) -> String {
        format!("{}\n{}\n{}", self.key, self.signature, self.list)
    }

    /// The list, whose signature is verified first.
    fn verified(&self, name: &str) -> Result<NameList, NameListError> {
        let key = PublicKey::from_base64(self.key)
            .map_err(|_| NameListError::Key { text: self.key.to_owned() })?;
        let signature =
            Signature::decode(self.signature).map_err(|error| signature_error(name, &error))?;
        let verified = key.verify(self.list.as_bytes(), &signature, false);
        verified.map_err(|error| signature_error(name, &error))?;
        NameList::parse(self.list, name)
    }
}

fn signature_error(list: &str, reason: &dyn ToString) -> NameListError {
    NameListError::Signature { list: list.to_owned(), reason: reason.to_string() }
}

/// The line with the key in the text of a file of minisign, or the text itself.
fn public_key(text: &str) -> Result<String, NameListError> {
    let line = text.trim().lines().last().unwrap_or_default().trim();
    match PublicKey::from_base64(line) {
        Ok(_) => Ok(line.to_owned()),
        Err(_) => Err(NameListError::Key { text: line.to_owned() }),
    }
}

/// Reads a file or a URL of at most [`MAX_BYTES`].
fn read(file: &str) -> Result<Vec<u8>, NameListError> {
    if file.starts_with("https://") || file.starts_with("http://") {
        return download(file).map_err(|error| NameListError::Download {
            url: file.to_owned(),
            reason: error.to_string(),
        });
    }
    let failed = |reason: String| NameListError::Read { file: file.to_owned(), reason };
    let metadata = fs::metadata(file).map_err(|error| failed(error.to_string()))?;
    if metadata.len() > MAX_BYTES {
        return Err(failed(format!("it is larger than {MAX_BYTES} bytes")));
    }
    fs::read(file).map_err(|error| failed(error.to_string()))
}

fn download(url: &str) -> Result<Vec<u8>, ureq::Error> {
    let mut response = agent(SILENCE).get(url).call()?;
    response.body_mut().with_config().limit(MAX_BYTES).read_to_vec()
}

/// Replaces a file at once.
fn write(path: &Path, text: &str) -> Result<(), NameListError> {
    let part = path.with_extension("part");
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&part, text)?;
        fs::rename(&part, path)
    };
    write().map_err(|error| NameListError::Write { path: path.to_owned(), error })
}

/// `$XDG_DATA_HOME/rocmforge/names`; the variable defaults to `~/.local/share`, on Windows to
/// `%LOCALAPPDATA%`.
fn stored_path() -> Option<PathBuf> {
    // The XDG specification requires that relative paths are ignored.
    let absolute =
        |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let user = || match absolute("LOCALAPPDATA") {
        Some(folder) if cfg!(windows) => Some(folder),
        _ => Some(absolute("HOME")?.join(".local/share")),
    };
    let data = absolute("XDG_DATA_HOME").or_else(user)?;
    Some(data.join("rocmforge").join("names"))
}

/// Returns true for `YYYY-MM-DD`, whose order is that of the text.
fn is_date(text: &str) -> bool {
    let is_right = |(index, byte): (usize, u8)| match index {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_list_of_the_crate_is_read() {
        let text = include_str!("short_names.txt");
        let list = NameList::parse(text, "short_names.txt").unwrap();
        assert_eq!(list, NameList::of_crate());
        let rows = text.lines().filter(|row| !row.starts_with('#'));
        assert_eq!(list.names().len(), rows.count());
        for name in list.names() {
            assert!(name.download_gb() > 0.1 && name.download_gb() < 1000.0, "{name}");
        }
    }

    #[test]
    fn a_text_that_is_no_list_is_an_error_with_its_line() {
        let row = "a:1b owner/repo 1 text";
        let parse = |text: String| NameList::parse(&text, "list").map(|list| list.names().len());
        assert_eq!(parse(format!("{HEADER}2026-01-01\n# x\n\n{row}\n")).unwrap(), 1);
        for (text, line) in [
            (String::new(), 1),
            (row.to_owned(), 1),
            (format!("{HEADER}2026-1-1\n{row}"), 1),
            (format!("{HEADER}2026-01-01x\n{row}"), 1),
            (format!("{HEADER}2026-01-01\n{row}\nb:1b"), 3),
            (format!("{HEADER}2026-01-01\n{row}\n{row}"), 3),
        ] {
            let error = parse(text.clone()).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}:")), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_stored_form_is_read_back() {
        let signature = "one\ntwo\nthree\nfour\n";
        let list = "list\nrow\n";
        let stored = Stored::new("key", signature.as_bytes(), list.as_bytes(), "x").unwrap();
        let text = stored.text();
        let back = Stored::parse(&text, "x").unwrap();
        assert_eq!((back.key, back.signature, back.list), ("key", signature.trim_end(), list));
        for damaged in ["", "key", "key\none\ntwo\nthree\nfour"] {
            assert!(Stored::parse(damaged, "x").is_err(), "{damaged}");
        }
    }
}
