//! Pictures that requests name by URL.

use std::fmt;
use std::sync::Arc;

use rocmforge::Media;
use tokio::sync::Semaphore;

use crate::attachments::Attachment;
use crate::error::{ApiError, LoadError, check_count};

/// The most pictures that a request names by URL.
const MAX_URLS: usize = 16;
/// The most pictures that are fetched at a time. Each occupies a thread.
const MAX_FETCHES: usize = 16;

/// Fetches the pictures that requests name by URL.
#[derive(Clone)]
pub struct ImageFetcher(Arc<Fetch>);

type Fetch = dyn Fn(&str) -> Result<Vec<u8>, LoadError> + Send + Sync;

impl ImageFetcher {
    /// Fetches pictures by this function, which gets a URL and returns the bytes of the file. The
    /// text of its errors goes to the client. The function must end in time, and must not fetch
    /// what the client has no right to see, such as files of the own network.
    pub fn new(fetch: impl Fn(&str) -> Result<Vec<u8>, LoadError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(fetch))
    }
}

impl fmt::Debug for ImageFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageFetcher").finish_non_exhaustive()
    }
}

/// The pictures of URLs, if the server fetches any.
#[derive(Clone, Debug)]
pub(crate) struct ImageUrls {
    fetcher: Option<ImageFetcher>,
    slots: Arc<Semaphore>,
}

impl ImageUrls {
    pub(crate) fn new(fetcher: Option<ImageFetcher>) -> Self {
        Self { fetcher, slots: Arc::new(Semaphore::new(MAX_FETCHES)) }
    }

    /// The pictures and sounds of a request, in their order. `field` has the messages.
    pub(crate) async fn fetched(
        &self,
        field: &'static str,
        pictures: Vec<Attachment>,
    ) -> Result<Vec<Media>, ApiError> {
        let urls = pictures.iter().filter(|picture| matches!(picture, Attachment::Url { .. }));
        check_count(field, urls.count(), MAX_URLS)?;
        let mut images = Vec::with_capacity(pictures.len());
        for picture in pictures {
            images.push(match picture {
                Attachment::Sent(image) => image,
                Attachment::Url { url, path } => self.fetch(url, &path).await?,
            });
        }
        Ok(images)
    }

    async fn fetch(&self, url: String, path: &str) -> Result<Media, ApiError> {
        let Some(ImageFetcher(fetch)) = self.fetcher.clone() else {
            let problem = "the server fetches no pictures from other places: send the picture \
                           itself, as base64 or as a data URL such as data:image/png;base64,…";
            return Err(ApiError::field(path, problem));
        };
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let fetched = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            fetch(&url)
        });
        let fetched = fetched.await.map_err(|error| ApiError::internal(&error))?;
        let bytes = fetched.map_err(|error| ApiError::field(path, error))?;
        if bytes.is_empty() {
            return Err(ApiError::field(path, "the picture is empty"));
        }
        Ok(Media::image(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Attachment {
        Attachment::Url { url: name.to_owned(), path: "p.url".to_owned() }
    }

    async fn problem(urls: &ImageUrls, pictures: Vec<Attachment>) -> String {
        urls.fetched("messages", pictures)
            .await
            .map_or_else(|error| error.message, |_| String::new())
    }

    #[tokio::test]
    async fn pictures_are_fetched_in_the_order_of_the_request() {
        let urls = ImageUrls::new(Some(ImageFetcher::new(|url| match url {
            "missing" => Err("status 404".into()),
            "empty" => Ok(Vec::new()),
            url => Ok(url.as_bytes().to_vec()),
        })));
        let sent = Attachment::Sent(Media::image(vec![1]));
        let images =
            urls.fetched("messages", vec![named("a"), sent, named("b")]).await.ok().unwrap();
        let bytes: Vec<&[u8]> = images.iter().map(Media::bytes).collect();
        assert_eq!(bytes, [&b"a"[..], &[1], b"b"]);
        assert!(problem(&urls, vec![named("missing")]).await.contains("status 404"));
        assert!(problem(&urls, vec![named("empty")]).await.contains("empty"));
        let many = std::iter::repeat_n(named("a"), MAX_URLS + 1).collect();
        assert!(problem(&urls, many).await.contains("the maximum is 16"));
    }

    #[tokio::test]
    async fn a_server_without_a_fetcher_fetches_nothing() {
        let urls = ImageUrls::new(None);
        assert!(problem(&urls, vec![named("a")]).await.contains("fetches no pictures"));
    }
}
