//! One key and its holder.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::client::Client;

#[derive(Clone)]
pub(super) struct ApiKey {
    /// The SHA-256 of the key, so that comparing takes the same time for all of them.
    pub(super) digest: [u8; 32],
    pub(super) client: Arc<Client>,
}

pub(super) fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}
