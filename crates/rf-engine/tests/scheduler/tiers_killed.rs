//! A process that is killed while it writes pages to a folder.
//!
//! The test runs its own program as the child: [`a_child_computes_until_it_is_killed`] with the
//! folder in the environment.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rf_engine::scheduler::{Handle, Scheduler};
use rf_engine::{DiskCacheOptions, Engine};
use rf_testing::SplitMix64;
use tempfile::TempDir;

use crate::support::{SCHEDULER, ask, demo, end, engine, greedy, prompt};
use crate::tiers::FEW;

/// The folder of the child.
const FOLDER: &str = "ROCFORGE_TEST_KILLED_FOLDER";
/// The number of kills, if it differs from the default.
const KILLS: &str = "ROCFORGE_TEST_KILLS";
const DEFAULT_KILLS: usize = 20;
/// The texts that the child computes again and again.
const TEXTS: u32 = 12;
/// The line that the child prints before its first text.
const READY: &str = "the child is ready";

fn load(folder: &Path) -> Engine {
    let mut engine = engine(&demo(), FEW);
    let max_bytes = u64::MAX;
    engine.set_disk_cache(&DiskCacheOptions::new(folder, max_bytes)).unwrap();
    engine
}

/// The answer to a text, and the tokens that were found for it.
fn answer(handle: &Handle, seed: u32) -> (Vec<u32>, usize) {
    let answer = ask(handle, &prompt(seed, 200), &greedy(3));
    (answer.ids, answer.timings.cached_tokens)
}

#[test]
fn a_child_computes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let scheduler = Scheduler::start(load(Path::new(&folder)), SCHEDULER).unwrap();
    println!("{READY}");
    // The test ends this process; without it, this ends.
    for seed in (0..TEXTS).cycle().take(10_000) {
        answer(&scheduler.handle(), seed);
    }
}

#[test]
fn a_killed_process_never_leaves_a_wrong_page() {
    let kills = std::env::var(KILLS).map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap());
    let scheduler = Scheduler::start(engine(&demo(), FEW), SCHEDULER).unwrap();
    let expected: Vec<_> = (0..TEXTS).map(|seed| answer(&scheduler.handle(), seed).0).collect();
    end(scheduler);
    let mut random = SplitMix64::new(7);
    let (mut folder, mut found, mut damaged) = (TempDir::new().unwrap(), 0, 0);
    for kill in 0..kills {
        // A full folder is not written any more.
        if kill % 5 == 0 {
            folder = TempDir::new().unwrap();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tiers_killed::a_child_computes_until_it_is_killed", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        assert!(out.lines().map_while(Result::ok).any(|line| line.contains(READY)));
        std::thread::sleep(Duration::from_millis(random.below(60) as u64));
        child.kill().unwrap();
        child.wait().unwrap();

        let scheduler = Scheduler::start(load(folder.path()), SCHEDULER).unwrap();
        for (seed, expected) in (0..TEXTS).zip(&expected) {
            let (ids, cached_tokens) = answer(&scheduler.handle(), seed);
            assert_eq!(ids, *expected, "text {seed} after kill {kill}");
            found += cached_tokens;
        }
        damaged += end(scheduler).disk.damaged;
    }
    assert!(found > 0, "the children have written nothing");
    assert_eq!(damaged, 0, "a name never stands for a part of a page");
}
