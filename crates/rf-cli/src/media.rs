//! Pictures and sounds of prompts, and the projector that reads them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use rf_server::ImageFetcher;
use rocmforge::hub::{PublicWeb, WebLimits};
use rocmforge::{Loader, Media};

use crate::hub::Companions;
use crate::sources;

/// The projector of a model.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Pictures and sounds")]
pub(crate) struct ProjectorArgs {
    #[arg(
        help = "Read pictures and hear sounds with the projector FILE (-mm) [default: the file *mmproj*.gguf in the folder of the \
                model, if it fits, which is downloaded with the model]"
    )]
    #[arg(long, value_name = "FILE", conflicts_with = "no_mmproj")]
    mmproj: Option<PathBuf>,
    /// Read no pictures and hear no sounds, so that their encoders take no memory
    #[arg(long)]
    no_mmproj: bool,
    /// Encode pictures and sounds on the CPU, so that their encoders take no memory of the GPU
    #[arg(long)]
    no_mmproj_offload: bool,
}

impl ProjectorArgs {
    /// Adds the choice of the projector.
    pub(crate) fn add_to(&self, loader: Loader) -> Loader {
        let loader = if self.no_mmproj_offload { loader.mmproj_on_cpu() } else { loader };
        match &self.mmproj {
            Some(path) => loader.mmproj(path),
            None if self.no_mmproj => loader.no_mmproj(),
            None => loader,
        }
    }

    /// What is downloaded with the model.
    pub(crate) fn companions(&self) -> Companions {
        let is_wanted = self.mmproj.is_none() && !self.no_mmproj;
        if is_wanted { Companions::Projector } else { Companions::None }
    }

    /// Returns true if a projector is named.
    pub(crate) fn is_named(&self) -> bool {
        self.mmproj.is_some()
    }
}

/// Fetches the pictures of requests from the public web.
pub(crate) fn image_fetcher() -> ImageFetcher {
    let web = PublicWeb::new(WebLimits::default());
    ImageFetcher::new(move |url| Ok(web.fetch(url)?))
}

/// Reads the file of a picture.
pub(crate) fn image(path: &Path) -> Result<Media> {
    Ok(Media::image(sources::file_bytes(path)?))
}

/// Reads the file of a sound.
pub(crate) fn audio(path: &Path) -> Result<Media> {
    Ok(Media::audio(sources::file_bytes(path)?))
}
