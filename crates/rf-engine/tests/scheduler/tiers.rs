//! Pages of the prefix cache in host memory and in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use rf_engine::scheduler::{Scheduler, SchedulerStats};
use rf_engine::{DiskCacheOptions, Engine, EngineOptions};
use rf_graph::KvType;
use tempfile::TempDir;

use crate::recurrent::shapes::{LFM2, QWEN35};
use crate::support::{ENGINE, SCHEDULER, ask, data, end, engine, greedy, prompt, tiny};

/// Pages for little more than one sequence, so that each conversation drives out the others.
pub(crate) const FEW: EngineOptions = ENGINE
    .with_context_tokens(Some(256))
    .with_kv_tokens(Some(288))
    .with_sequences(1)
    .with_checkpoints(1)
    .with_always_reads_back(true);

const WITH_HOST: EngineOptions = FEW.with_host_cache_bytes(1 << 30);

/// Loads an engine with some options.
type Load = Box<dyn Fn(EngineOptions) -> Engine>;

/// An engine of each kind of cache.
fn kinds() -> Vec<(&'static str, Load)> {
    let of_file = |path: PathBuf| -> Load { Box::new(move |options| engine(&path, options)) };
    vec![
        ("full attention", of_file(tiny())),
        ("windows", of_file(data("gemma4_e4b"))),
        ("windows and sinks", of_file(data("gptoss_mxfp4"))),
        ("latent attention", of_file(data("deepseek2_mla"))),
        ("delta rule", Box::new(|options| QWEN35.engine(2, options))),
        ("convolutions", Box::new(|options| LFM2.engine(2, options))),
    ]
}

fn with_disk(mut engine: Engine, folder: &Path, max_bytes: u64) -> Engine {
    engine.set_disk_cache(&DiskCacheOptions::new(folder, max_bytes)).unwrap();
    engine
}

/// Two turns of three conversations, one after the other. Returns their tokens, and those that each
/// turn found.
fn turns(engine: Engine) -> (Vec<Vec<u32>>, Vec<usize>, SchedulerStats) {
    let scheduler = Scheduler::start(engine, SCHEDULER).unwrap();
    let handle = scheduler.handle();
    let mut texts: Vec<Vec<u32>> = (1..4).map(|seed| prompt(seed, 150)).collect();
    let mut cached = Vec::new();
    for _ in 0..2 {
        for text in &mut texts {
            let answer = ask(&handle, text, &greedy(12));
            cached.push(answer.timings.cached_tokens);
            text.extend(&answer.ids);
            text.extend(prompt(9, 20));
        }
    }
    (texts, cached, end(scheduler))
}

#[test]
fn a_turn_finds_its_prefix_in_host_memory_and_gives_the_same_text() {
    for (kind, load) in kinds() {
        let (expected, cached, _) = turns(load(FEW));
        assert_eq!(cached[3..], [0; 3], "{kind}");
        let (texts, cached, stats) = turns(load(WITH_HOST));
        assert_eq!(texts, expected, "{kind}");
        // Up to the last page boundary of the answer.
        assert_eq!((&cached[..3], &cached[3..]), (&[0; 3][..], &[160; 3][..]), "{kind}");
        assert!(stats.host.loads >= 9 && stats.host.bytes > 0, "{kind}: {:?}", stats.host);
    }
}

#[test]
fn a_restart_finds_the_prefix_in_the_folder_and_gives_the_same_text() {
    for (kind, load) in kinds() {
        let folder = TempDir::new().unwrap();
        let (expected, ..) = turns(load(FEW));
        // Host memory is not needed for the folder, and may be smaller than a page.
        for host_cache_bytes in [0, 100] {
            let options = FEW.with_host_cache_bytes(host_cache_bytes);
            let engine = with_disk(load(options), folder.path(), u64::MAX);
            let (texts, cached, stats) = turns(engine);
            assert_eq!(texts, expected, "{kind}");
            // The second engine finds the longer texts of the first one, too.
            let found = if host_cache_bytes == 0 { [0, 160] } else { [144, 176] };
            let found = found.map(|tokens| [tokens; 3]).concat();
            assert_eq!(cached, found, "{kind}");
            assert!(stats.disk.loads > 0 && stats.disk.pages > 0, "{kind}: {:?}", stats.disk);
            assert_eq!((stats.disk.damaged, stats.disk.dropped), (0, 0), "{kind}");
        }
    }
}

#[test]
fn another_model_cache_type_or_page_size_finds_nothing() {
    let folder = TempDir::new().unwrap();
    let cached_tokens = |engine: Engine| {
        let scheduler =
            Scheduler::start(with_disk(engine, folder.path(), u64::MAX), SCHEDULER).unwrap();
        let answer = ask(&scheduler.handle(), &prompt(1, 100), &greedy(2));
        end(scheduler);
        answer.timings.cached_tokens
    };
    assert_eq!(cached_tokens(engine(&tiny(), FEW)), 0);
    assert_eq!(cached_tokens(engine(&tiny(), FEW)), 96);
    assert_eq!(cached_tokens(engine(&data("mistral"), FEW)), 0);
    let with_type = FEW.with_kv_type(KvType::Q8_0);
    assert_eq!(cached_tokens(engine(&tiny(), with_type)), 0);
    let with_pages = FEW.with_page_tokens(32);
    assert_eq!(cached_tokens(engine(&tiny(), with_pages)), 0);
    // Another length of the context changes no page.
    let longer = FEW.with_context_tokens(Some(272));
    assert_eq!(cached_tokens(engine(&tiny(), longer)), 96);
}

/// The files below a folder, and their bytes.
fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(self::files(&entry.path()));
        } else {
            files.push((entry.path(), entry.metadata().unwrap().len()));
        }
    }
    files.sort();
    files
}

#[test]
fn damage_anywhere_in_a_file_never_changes_an_answer() {
    let folder = TempDir::new().unwrap();
    let load = || with_disk(engine(&tiny(), FEW), folder.path(), u64::MAX);
    let text = prompt(1, 100);
    let scheduler = Scheduler::start(load(), SCHEDULER).unwrap();
    let expected = ask(&scheduler.handle(), &text, &greedy(4)).ids;
    end(scheduler);
    let whole = files(folder.path());
    let (path, len) = whole[0].clone();
    let intact = fs::read(&path).unwrap();

    let scheduler = Scheduler::start(load(), SCHEDULER).unwrap();
    let handle = scheduler.handle();
    let ask_again = || {
        // Two long texts drive the pages out of the device.
        for seed in [2, 3] {
            ask(&handle, &prompt(seed, 240), &greedy(1));
        }
        let answer = ask(&handle, &text, &greedy(4));
        assert_eq!(answer.ids, expected);
        answer.timings.cached_tokens
    };
    // The page is written again after it was computed again.
    let wait_for_file = || {
        while fs::read(&path).ok().as_ref() != Some(&intact) {
            std::thread::yield_now();
        }
    };
    assert_eq!(ask_again(), 96);
    for at in (0..len as usize).step_by(10) {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        assert!(ask_again() < 96, "byte {at}");
        wait_for_file();
    }
    for len in [0, 1, len / 2, len - 1] {
        fs::write(&path, &intact[..len as usize]).unwrap();
        assert!(ask_again() < 96, "{len} bytes");
        wait_for_file();
    }
    // The file of another page under this name, and a file that was removed.
    fs::write(&path, fs::read(&whole[1].0).unwrap()).unwrap();
    assert!(ask_again() < 96);
    wait_for_file();
    fs::remove_file(&path).unwrap();
    assert!(ask_again() < 96);
    wait_for_file();
    let stats = end(scheduler);
    assert_eq!(stats.disk.damaged, len.div_ceil(10) + 5);
}

#[test]
fn both_tiers_keep_within_their_limits() {
    let folder = TempDir::new().unwrap();
    let one = with_disk(engine(&tiny(), FEW), folder.path(), u64::MAX);
    turns(one);
    let page_bytes = files(folder.path())[0].1;
    // Files of other programs stay.
    let other = folder.path().join("notes.txt");
    fs::write(&other, "mine").unwrap();

    let max_bytes = 7 * page_bytes;
    let options = FEW.with_host_cache_bytes(3 * page_bytes);
    let (expected, ..) = turns(engine(&tiny(), FEW));
    let (texts, _, stats) = turns(with_disk(engine(&tiny(), options), folder.path(), max_bytes));
    assert_eq!(texts, expected);
    assert!(stats.host.bytes <= 3 * page_bytes && stats.host.pages == 3, "{:?}", stats.host);
    let bytes: u64 = files(folder.path()).iter().map(|(_, bytes)| bytes).sum();
    assert!((page_bytes..=max_bytes + 4).contains(&bytes), "{bytes} of {max_bytes}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine");

    // A limit below one page keeps none.
    let empty = TempDir::new().unwrap();
    let (texts, ..) = turns(with_disk(engine(&tiny(), FEW), empty.path(), page_bytes - 1));
    assert_eq!((texts, files(empty.path())), (expected, Vec::new()));
}

#[test]
fn a_slot_is_saved_and_restored_by_another_engine() {
    for (kind, load) in kinds() {
        let text = prompt(1, 150);
        let scheduler = Scheduler::start(load(FEW), SCHEDULER).unwrap();
        let handle = scheduler.handle();
        let answer = ask(&handle, &text, &greedy(12)).ids;
        let longer = [&text[..], &answer, &prompt(2, 30)].concat();
        // The pages have left the cache, so that saving computes them.
        for _ in 0..2 {
            let mut saved = Vec::new();
            let (tokens, saved) = handle
                .call(move |engine| (engine.save_slot(0, &mut saved).unwrap(), saved))
                .unwrap();
            assert_eq!(tokens, 160, "{kind}");
            let other = Scheduler::start(load(FEW), SCHEDULER).unwrap();
            let restored =
                other.handle().call(move |engine| engine.restore_slot(3, &saved).unwrap());
            assert_eq!(restored.unwrap(), 160, "{kind}");
            let again = ask(&other.handle(), &longer, &greedy(12));
            assert_eq!(again.timings.cached_tokens, 160, "{kind}");
            let expected = Scheduler::start(load(FEW), SCHEDULER).unwrap();
            assert_eq!(again.ids, ask(&expected.handle(), &longer, &greedy(12)).ids, "{kind}");
            end(expected);
            end(other);
        }
        let erased = handle.call(|engine| (engine.erase_slot(0), engine.erase_slot(0)));
        assert_eq!(erased.unwrap(), (162, 0), "{kind}");
        let mut saved = Vec::new();
        let empty = handle.call(move |engine| engine.save_slot(0, &mut saved).unwrap());
        assert_eq!(empty.unwrap(), 0, "{kind}");
        end(scheduler);
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let mut engine = engine(&tiny(), FEW);
    let options = DiskCacheOptions::new(&file, 1 << 20);
    let error = engine.set_disk_cache(&options).unwrap_err().to_string();
    let expected = format!("cannot use {} for the prefix cache: ", file.display());
    assert!(error.starts_with(&expected), "{error}");
}
