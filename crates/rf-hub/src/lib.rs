//! Model files of the Hugging Face hub: finds those of a repository, downloads them into the usual
//! cache folder, and reuses what is there.
//!
//! **Place in the layering.** On its own: this crate knows neither GGUF nor engines. A program
//! opens the path that it returns.
//!
//! **Where to start.** [`Hub::fetch`]. Internally, `listing` asks the API for the files, `choice`
//! selects those of the model, `transfer` downloads them and `cache` knows the folder. Apart from
//! the hub, [`NameList`] is the list of short names, and [`PublicWeb`] fetches the files that
//! clients of a server name.
//!
//! **Invariants.**
//! - A file is in the cache under its name only after its size, and its SHA-256 if the hub states
//!   one, were checked. What is incomplete has the extension `part`, and the next run resumes it.
//! - The folder has the layout of `huggingface_hub`, so other programs share it.
//! - Names in answers of the hub cannot lead out of the folder.
//! - The token goes to the hub and not to the servers that it redirects to.
//! - A list of short names from elsewhere is used only with a signature that fits.
//!
//! The crate `hf-hub` is not used. Its download fails on a complete `part` file, takes an ignored
//! range for a resumed one, checks no sum, and sends the token to storage servers. What remains of
//! it, three URLs and three folder names, does not pay for the eleven crates that it brings.
//!
//! # Example
//!
//! ```no_run
//! use rf_hub::{FetchEvent, Hub};
//!
//! # fn main() -> Result<(), rf_hub::Error> {
//! let hub = Hub::from_env()?;
//! let path = hub.fetch(&"owner/repo-GGUF:Q4_K_M".parse()?, &mut |event| {
//!     if let FetchEvent::Progress { done_bytes, total_bytes } = event {
//!         println!("{done_bytes} of {total_bytes}");
//!     }
//! })?;
//! # Ok(())
//! # }
//! ```

mod cache;
mod choice;
mod error;
mod hub;
mod listing;
mod name;
mod name_list;
mod remote_model;
mod short_name;
mod transfer;
mod web;

pub use cache::CachedModel;
pub use error::Error;
pub use hub::{FetchEvent, Hub};
pub use name::ModelName;
pub use name_list::{NameList, NameListError};
pub use remote_model::RemoteModel;
pub use short_name::{Product, ShortName};
pub use web::{PublicWeb, WebError, WebLimits};
