//! Fetches models from a stand-in for the hub.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rf_hub::{Error, FetchEvent, Hub};
use rf_testing::hub::{REPO, StandIn, sha256};
use tempfile::TempDir;

/// Bytes that differ everywhere, more than a few reads.
fn contents(seed: u32) -> Vec<u8> {
    rf_testing::Lcg::new(seed).bytes(700_000)
}

/// A hub with one model, and an empty cache.
fn one_model() -> (StandIn, TempDir, Hub) {
    let server = StandIn::start(&[("README.md", b"text".to_vec()), ("m-Q8_0.gguf", contents(1))]);
    let cache = TempDir::new().unwrap();
    let hub = Hub::new(&server.url(), cache.path());
    (server, cache, hub)
}

fn fetch(hub: &Hub, quant: &str) -> Result<PathBuf, Error> {
    hub.fetch(&format!("{REPO}{quant}").parse().unwrap(), &mut |_| {})
}

fn folder(cache: &TempDir) -> PathBuf {
    cache.path().join("models--owner--model-GGUF")
}

/// The names in the folder of contents.
fn blobs(cache: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder(cache).join("blobs")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn cached_models_are_listed_and_removed() {
    let server = StandIn::start(&[
        ("m-Q8_0.gguf", contents(1)),
        ("m-UD-Q4_K_XL.gguf", contents(2)),
        ("mmproj-F16.gguf", contents(3)),
    ]);
    let cache = TempDir::new().unwrap();
    let hub = Hub::new(&server.url(), cache.path());
    assert!(hub.cached().is_empty());
    let small = fetch(&hub, ":Q8_0").unwrap();
    fetch(&hub, ":Q4_K_XL").unwrap();
    let listed = |hub: &Hub| -> Vec<String> {
        hub.cached().iter().map(|model| model.name.to_string()).collect()
    };
    assert_eq!(listed(&hub), [format!("{REPO}:Q8_0"), format!("{REPO}:UD-Q4_K_XL")]);
    let first = &hub.cached()[0];
    assert_eq!((&first.path, first.size_bytes), (&small, 700_000));
    assert!(first.modified.is_some());

    let remove = |quant: &str| hub.remove(&format!("{REPO}{quant}").parse().unwrap());
    assert!(matches!(remove(":Q2_K"), Err(Error::NothingToRemove { .. })));
    assert_eq!(remove(":q4_k_xl").unwrap(), 700_000);
    assert_eq!(listed(&hub), [format!("{REPO}:Q8_0")]);
    assert_eq!(blobs(&cache), [sha256(&contents(1))]);
    assert_eq!(remove("").unwrap(), 700_000);
    assert!(listed(&hub).is_empty() && !folder(&cache).exists());
    assert!(matches!(remove(""), Err(Error::NothingToRemove { .. })));
}

#[test]
fn the_projector_of_a_model_comes_and_goes_with_it() {
    let server = StandIn::start(&[("m-Q8_0.gguf", contents(1)), ("mmproj-F16.gguf", contents(3))]);
    let cache = TempDir::new().unwrap();
    let hub = Hub::new(&server.url(), cache.path()).with_projectors(true);
    let mut total = 0;
    let on_event = &mut |event: FetchEvent<'_>| {
        if let FetchEvent::Progress { total_bytes, .. } = event {
            total = total_bytes;
        }
    };
    let model = hub.fetch(&REPO.parse().unwrap(), on_event).unwrap();
    assert_eq!(total, 1_400_000);
    assert_eq!(fs::read(model.with_file_name("mmproj-F16.gguf")).unwrap(), contents(3));
    assert_eq!(hub.cached().len(), 1, "a projector is no model");
    hub.remove(&format!("{REPO}:Q8_0").parse().unwrap()).unwrap();
    assert!(!folder(&cache).exists());
}

#[test]
fn a_download_has_the_layout_of_the_usual_cache() {
    let (server, cache, hub) = one_model();
    let mut progress = Vec::new();
    let path = hub
        .fetch(&REPO.parse().unwrap(), &mut |event| {
            if let FetchEvent::Progress { done_bytes, total_bytes } = event {
                progress.push((done_bytes, total_bytes));
            }
        })
        .unwrap();
    assert_eq!(path, folder(&cache).join("snapshots/c0ffee01/m-Q8_0.gguf"));
    assert_eq!(fs::read(&path).unwrap(), contents(1));
    assert_eq!(blobs(&cache), [sha256(&contents(1))]);
    assert_eq!(fs::read_to_string(folder(&cache).join("refs/main")).unwrap(), "c0ffee01");
    #[cfg(unix)]
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../../blobs").join(sha256(&contents(1))));
    assert_eq!(progress.first(), Some(&(0, 700_000)));
    assert_eq!(progress.last(), Some(&(700_000, 700_000)));
    assert!(progress.is_sorted());
    assert!(server.requests()[0].path.contains("blobs=true"));
}

#[test]
fn what_is_cached_is_not_downloaded_again() {
    let (server, cache, hub) = one_model();
    let path = fetch(&hub, "").unwrap();
    server.requests();
    assert_eq!(fetch(&hub, ":q8_0").unwrap(), path);
    assert_eq!(server.requests().len(), 1, "only the list of files");

    // A commit that leaves the file as it is.
    server.behaviour().commit = "c0ffee02";
    let newer = fetch(&hub, "").unwrap();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(newer, folder(&cache).join("snapshots/c0ffee02/m-Q8_0.gguf"));
    assert_eq!(fs::read(newer).unwrap(), contents(1));

    // One that changes it.
    server.behaviour().files[1].1 = contents(2);
    server.behaviour().commit = "c0ffee03";
    assert_eq!(fs::read(fetch(&hub, "").unwrap()).unwrap(), contents(2));
}

#[test]
fn a_cached_model_works_without_the_hub() {
    let (server, cache, hub) = one_model();
    let path = fetch(&hub, "").unwrap();
    for status in [500, 429] {
        server.behaviour().status = Some(status);
        assert_eq!(fetch(&hub, "").unwrap(), path);
    }
    drop(server);
    let mut reason = None;
    let again = hub.fetch(&REPO.parse().unwrap(), &mut |event| {
        if let FetchEvent::Unreachable(error) = event {
            reason = Some(error.to_string());
        }
    });
    assert_eq!(again.unwrap(), path);
    assert!(reason.unwrap().contains("check the network"));

    let error = fetch(&hub, ":Q4_K_M").unwrap_err();
    assert!(matches!(error, Error::Network { .. }) && !error.is_bad_input(), "{error}");
    let offline = Hub::new("http://127.0.0.1:1", cache.path()).with_offline(true);
    assert_eq!(fetch(&offline, ":Q8_0").unwrap(), path);
    let error = fetch(&offline, ":Q4_K_M").unwrap_err();
    assert!(error.to_string().contains("'owner/model-GGUF:Q4_K_M' is not in the cache"), "{error}");
}

#[test]
fn a_lost_connection_is_resumed_at_once() {
    let (server, _cache, hub) = one_model();
    server.behaviour().cuts = vec![100_000, 250_000];
    assert_eq!(fs::read(fetch(&hub, "").unwrap()).unwrap(), contents(1));
    let requests = server.requests();
    let ranges = requests.iter().filter(|request| request.path.starts_with("/storage/"));
    let ranges: Vec<_> = ranges.map(|request| request.header("range")).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-"), Some("bytes=350000-")]);
}

#[test]
fn a_silent_connection_is_given_up_and_said() {
    let (server, _cache, hub) = one_model();
    let hub = hub.with_silence(Duration::from_millis(300));
    server.behaviour().cuts = vec![100_000];
    server.behaviour().silence = Some(Duration::from_secs(20));
    let started = Instant::now();
    let mut said = Vec::new();
    let name = REPO.parse().unwrap();
    let path = hub.fetch(&name, &mut |event| {
        if let FetchEvent::Retry { file, reason } = event {
            said.push((file.to_owned(), reason.to_owned()));
        }
    });
    assert_eq!(fs::read(path.unwrap()).unwrap(), contents(1));
    assert_eq!(said, [("m-Q8_0.gguf".to_owned(), "no data for 0.3 s".to_owned())]);
    assert!(started.elapsed() < Duration::from_secs(15), "the end was not waited for");
}

#[test]
fn an_interrupted_download_is_resumed_by_the_next_run() {
    let (server, cache, hub) = one_model();
    let hub = hub.with_retries(0);
    server.behaviour().cuts = vec![300_000];
    let error = fetch(&hub, "").unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    assert!(error.to_string().ends_with("run the command again to resume it"), "{error}");
    assert_eq!(blobs(&cache), [format!("{}.part", sha256(&contents(1)))]);
    server.requests();
    assert_eq!(fs::read(fetch(&hub, "").unwrap()).unwrap(), contents(1));
    let last = server.requests().pop().unwrap();
    assert_eq!(last.header("range"), Some("bytes=300000-"));
    assert_eq!(blobs(&cache), [sha256(&contents(1))]);
}

#[test]
fn leftovers_of_other_lengths_do_no_harm() {
    for (left, ignores_ranges) in [
        (contents(1), false),                  // complete, but not yet checked
        (vec![7; 900_000], false),             // too long
        (contents(1)[..5_000].to_vec(), true), // the server begins again
    ] {
        let (server, cache, hub) = one_model();
        server.behaviour().ignores_ranges = ignores_ranges;
        let part = folder(&cache).join("blobs").join(format!("{}.part", sha256(&contents(1))));
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        fs::write(part, left).unwrap();
        assert_eq!(fs::read(fetch(&hub, "").unwrap()).unwrap(), contents(1));
    }
}

#[test]
fn a_damaged_download_is_removed() {
    let (server, cache, hub) = one_model();
    server.behaviour().damaged = true;
    let error = fetch(&hub, "").unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    assert!(error.to_string().contains("'m-Q8_0.gguf'"), "{error}");
    assert!(blobs(&cache).is_empty());
    assert!(!folder(&cache).join("snapshots").exists());
    server.behaviour().damaged = false;
    assert_eq!(fs::read(fetch(&hub, "").unwrap()).unwrap(), contents(1));
}

#[test]
fn a_missing_repository_is_named() {
    let (server, cache, hub) = one_model();
    let error = hub.fetch(&"owner/other:Q8_0".parse().unwrap(), &mut |_| {}).unwrap_err();
    let expected =
        format!("repository 'owner/other' does not exist on {}: check the name", server.url());
    assert_eq!(error.to_string(), expected);
    assert!(error.is_bad_input());
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[test]
fn the_token_goes_to_the_hub_and_not_to_the_storage() {
    let (server, _cache, hub) = one_model();
    server.behaviour().token = Some("hf_secret");
    let error = fetch(&hub, "").unwrap_err();
    assert!(matches!(error, Error::Denied { status: 401, .. }), "{error}");
    assert!(error.to_string().contains("set HF_TOKEN"), "{error}");
    server.requests();
    fetch(&hub.with_token(Some("hf_secret".to_owned())), "").unwrap();
    let requests = server.requests();
    let tokens: Vec<_> = requests.iter().map(|request| request.header("authorization")).collect();
    assert_eq!(tokens, [Some("Bearer hf_secret"), Some("Bearer hf_secret"), None]);
}

#[test]
fn all_parts_of_a_split_model_are_downloaded() {
    let server = StandIn::start(&[
        ("m-Q8_0.gguf", contents(1)),
        ("Q4_K_M/my model-Q4_K_M-00001-of-00002.gguf", contents(2)),
        ("Q4_K_M/my model-Q4_K_M-00002-of-00002.gguf", contents(3)),
    ]);
    let cache = TempDir::new().unwrap();
    let hub = Hub::new(&server.url(), cache.path());
    let mut last = None;
    let path = hub
        .fetch(&REPO.parse().unwrap(), &mut |event| {
            if let FetchEvent::Progress { done_bytes, total_bytes } = event {
                last = Some((done_bytes, total_bytes));
            }
        })
        .unwrap();
    assert_eq!(path.file_name().unwrap(), "my model-Q4_K_M-00001-of-00002.gguf");
    assert_eq!(fs::read(&path).unwrap(), contents(2));
    let second = path.with_file_name("my model-Q4_K_M-00002-of-00002.gguf");
    assert_eq!(fs::read(&second).unwrap(), contents(3));
    assert_eq!(last, Some((1_400_000, 1_400_000)));
    assert_eq!(blobs(&cache).len(), 2, "the other quantisation stays on the hub");

    drop(server);
    assert_eq!(fetch(&hub, ":Q4_K_M").unwrap(), path);
    fs::remove_file(second).unwrap();
    fetch(&hub, ":Q4_K_M").unwrap_err();
}

#[test]
fn a_mirror_that_lists_names_only_is_asked_for_headers() {
    let (server, cache, hub) = one_model();
    server.behaviour().names_only = true;
    let hub = hub.with_token(Some("hf_secret".to_owned()));
    assert_eq!(fs::read(fetch(&hub, "").unwrap()).unwrap(), contents(1));
    for request in server.requests() {
        let is_storage = request.path.starts_with("/storage/");
        assert_eq!(request.header("authorization").is_none(), is_storage, "{request:?}");
    }
    assert_eq!(blobs(&cache), [sha256(&contents(1))]);
    server.behaviour().files[1].1 = contents(2);
    server.behaviour().commit = "c0ffee02";
    server.behaviour().damaged = true;
    let error = fetch(&hub, "").unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
}

#[test]
fn names_that_lead_out_of_the_cache_are_ignored() {
    let server = StandIn::start(&[("../../evil-Q8_0.gguf", contents(1)), ("a.txt", Vec::new())]);
    let cache = TempDir::new().unwrap();
    let error = fetch(&Hub::new(&server.url(), cache.path()), "").unwrap_err();
    assert!(matches!(error, Error::NoGguf { .. }), "{error}");
    assert!(error.to_string().contains("(files: a.txt)"), "{error}");
}

#[test]
fn a_download_in_progress_is_not_disturbed() {
    let (_server, cache, hub) = one_model();
    let blobs = folder(&cache).join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = fs::File::create(blobs.join(format!("{}.part", sha256(&contents(1))))).unwrap();
    part.lock().unwrap();
    let error = fetch(&hub, "").unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(part);
    fetch(&hub, "").unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_and_a_bad_folder_are_named_with_a_cure() {
    let (_server, cache, hub) = one_model();
    let blobs = folder(&cache).join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.part", sha256(&contents(1))));
    std::os::unix::fs::symlink("/dev/full", &part).unwrap();
    let error = fetch(&hub, "").unwrap_err();
    assert!(matches!(error, Error::Disk { .. }), "{error}");
    let message = error.to_string();
    assert!(message.starts_with(&format!("cannot use '{}'", part.display())), "{message}");
    assert!(message.contains("make room on the disk"), "{message}");

    let file = cache.path().join("file");
    fs::write(&file, "").unwrap();
    let (server, ..) = one_model();
    let error = fetch(&Hub::new(&server.url(), file), "").unwrap_err();
    assert!(error.to_string().contains("set HF_HOME"), "{error}");
}

#[test]
fn models_are_listed_and_read_in_part_without_a_download() {
    let split = ["q/m-F16-00001-of-00002.gguf", "q/m-F16-00002-of-00002.gguf"];
    let server = StandIn::start(&[
        ("m-Q8_0.gguf", contents(1)),
        (split[0], contents(2)),
        (split[1], contents(3)),
        ("m-Q2_K-00001-of-00002.gguf", contents(4)),
    ]);
    let cache = TempDir::new().unwrap();
    let hub = Hub::new(&server.url(), cache.path());
    let name = |quant: &str| format!("{REPO}{quant}").parse().unwrap();
    let models = hub.models(&name("")).unwrap();
    let names: Vec<String> = models.iter().map(|model| model.name.to_string()).collect();
    assert_eq!(names, [format!("{REPO}:Q8_0"), format!("{REPO}:F16")]);
    assert_eq!(models[1].size_bytes(), 1_400_000);
    let files: Vec<&str> = models[1].files.iter().map(|(file, _)| &**file).collect();
    assert_eq!(files, split);
    assert_eq!(hub.models(&name(":f16")).unwrap().len(), 1);
    let error = hub.models(&name(":Q3_K")).unwrap_err();
    assert!(matches!(error, Error::UnknownQuant { .. }), "{error}");
    for ignores_ranges in [false, true] {
        server.behaviour().ignores_ranges = ignores_ranges;
        let part = |range| hub.part(&name(""), split[1], range).unwrap();
        assert_eq!(part(0..5000), contents(3)[..5000]);
        assert_eq!(part(5000..70_000), contents(3)[5000..70_000]);
        assert_eq!(part(699_000..800_000), contents(3)[699_000..]);
    }
    assert!(hub.cached().is_empty());
    let offline = Hub::new(&server.url(), cache.path()).with_offline(true);
    assert!(matches!(offline.models(&name("")), Err(Error::NotCached { .. })));
}
