//! Chooses how many members of a team work.
//!
//! On a core that another program uses, too, the system runs a member half of the time. Whatever
//! piece it has begun then waits for milliseconds, and so does the team: with N of C cores busy,
//! a team of C − N members is faster than one of C. The number of busy cores is not known, so the
//! team compares its speed with more and with fewer members. It does so only if the system reports
//! that members waited for a core. On an idle machine all members work and nothing is compared.

use std::time::Duration;

/// The least computation between two decisions: several time slices of the system, which holds up
/// a member for one of them.
const WINDOW: Duration = Duration::from_millis(40);

/// Fewer members must be this much faster. More members need not be faster than fewer.
const GAIN: f64 = 1.08;

/// Members that waited for a core for this share of the time of one are worth a comparison.
const CONTENDED: f64 = 0.1;

/// A team that is this much slower than it was compares again.
const LOSS: f64 = 0.75;

/// The computation until the next comparison. It doubles while comparisons change nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Measures the speed of a team, and chooses how many members work.
#[derive(Debug)]
pub(super) struct Sizing {
    members: usize,
    active: usize,
    state: State,
    pause: Duration,
    /// The estimated time of the regions since the last decision on one thread.
    work_ns: u64,
    time: Duration,
    was_held_up: bool,
    /// The time for which all members together had waited for a core at the last decision, if it
    /// was read.
    delay: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The whole team works, and no member waits for a core.
    Whole,
    /// The present number of members is compared with that of `with`. The search began at `start`.
    Compared { with: Speed, start: usize, tried_other_side: bool },
    /// `best` was the fastest number; others are tried again after `left` of computation.
    Settled { best: Speed, left: Duration },
}

/// The speed of a number of members, in estimated work per time.
#[derive(Clone, Copy, Debug)]
struct Speed {
    active: usize,
    rate: f64,
}

impl Sizing {
    pub(super) fn new(members: usize) -> Self {
        Self {
            members,
            active: members,
            state: State::Whole,
            pause: FIRST_PAUSE,
            work_ns: 0,
            time: Duration::ZERO,
            was_held_up: false,
            delay: None,
        }
    }

    /// The number of members that should work.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Records a region that was estimated to take one thread `work_ns` and took `time`. Returns
    /// true if members had to wait long for others in it. `delay` reads how long all members have
    /// waited for a core so far.
    pub(super) fn record(
        &mut self,
        work_ns: u64,
        time: Duration,
        was_held_up: bool,
        delay: impl FnOnce() -> Option<Duration>,
    ) {
        self.work_ns += work_ns;
        self.time += time;
        self.was_held_up |= was_held_up;
        if self.time < WINDOW {
            return;
        }
        let rate = self.work_ns as f64 / self.time.as_nanos() as f64;
        // Reading takes microseconds per member.
        let delay = if self.was_held_up { delay() } else { None };
        let waited = delay.zip(self.delay).map(|(now, last)| now.saturating_sub(last));
        let is_contended = waited.is_some_and(|waited| waited >= self.time.mul_f64(CONTENDED));
        self.decide(Speed { active: self.active, rate }, is_contended);
        (self.work_ns, self.time, self.was_held_up) = (0, Duration::ZERO, false);
        self.delay = delay;
    }

    fn decide(&mut self, now: Speed, is_contended: bool) {
        match self.state {
            State::Whole => {
                if is_contended {
                    self.compare(now);
                }
            }
            State::Compared { with, start, tried_other_side } => {
                let is_down = now.active < with.active;
                if now.rate > with.rate * if is_down { GAIN } else { 1.0 } {
                    // Continue in this direction, if there is a further number to try.
                    match self.neighbour(now.active, is_down) {
                        Some(active) => {
                            self.active = active;
                            let tried_other_side = true;
                            self.state = State::Compared { with: now, start, tried_other_side };
                        }
                        None => self.settle(now, start),
                    }
                } else if let (false, Some(active)) =
                    (tried_other_side, self.neighbour(with.active, !is_down))
                {
                    self.active = active;
                    self.state = State::Compared { with, start, tried_other_side: true };
                } else {
                    self.settle(with, start);
                }
            }
            State::Settled { best, left } => {
                let left = left.saturating_sub(self.time);
                if now.active == self.members && !is_contended {
                    (self.state, self.pause) = (State::Whole, FIRST_PAUSE);
                } else if now.rate < best.rate * LOSS {
                    self.pause = FIRST_PAUSE;
                    self.compare(now);
                } else if left.is_zero() {
                    self.compare(now);
                } else {
                    self.state = State::Settled { best, left };
                }
            }
        }
    }

    /// Tries more members than `now`, or fewer if all work.
    fn compare(&mut self, now: Speed) {
        let up = self.neighbour(now.active, false);
        let Some(active) = up.or_else(|| self.neighbour(now.active, true)) else { return };
        self.active = active;
        self.state =
            State::Compared { with: now, start: now.active, tried_other_side: up.is_none() };
    }

    fn settle(&mut self, best: Speed, start: usize) {
        self.pause =
            if best.active == start { (self.pause * 2).min(LAST_PAUSE) } else { FIRST_PAUSE };
        self.active = best.active;
        self.state = State::Settled { best, left: self.pause };
    }

    /// The next smaller or larger number of members. Large teams take larger steps.
    fn neighbour(&self, active: usize, is_down: bool) -> Option<usize> {
        let step = (self.members / 8).max(1);
        let next = if is_down { active.saturating_sub(step).max(1) } else { active + step };
        let next = next.min(self.members);
        (next != active).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs regions for `seconds` while `busy` of the cores are busy. There is a core per member.
    /// Returns the share of the time with the fastest number of members.
    fn run(sizing: &mut Sizing, busy: usize, seconds: f64) -> f64 {
        let (mut time, mut best_time) = (0.0, 0.0);
        let best = sizing.members - busy;
        while time < seconds {
            let contended = sizing.active().saturating_sub(best);
            // Each member on a busy core holds up the others.
            let rate = sizing.active() as f64 * 0.4_f64.powi(contended as i32);
            let region = 1e6 / rate;
            let delay = || Some(Duration::from_secs_f64(contended as f64 * time / 2.0));
            sizing.record(1_000_000, Duration::from_nanos(region as u64), contended > 0, delay);
            time += region / 1e9;
            best_time += if sizing.active() == best { region / 1e9 } else { 0.0 };
        }
        best_time / time
    }

    #[test]
    fn a_team_that_nobody_holds_up_stays_whole() {
        for members in [1, 2, 4, 64] {
            assert!(run(&mut Sizing::new(members), 0, 1.0) >= 1.0);
        }
    }

    #[test]
    fn a_team_leaves_busy_cores_and_comes_back() {
        for (members, busy) in [(2, 1), (4, 1), (4, 2), (4, 3), (16, 4), (64, 8)] {
            let mut sizing = Sizing::new(members);
            for _ in 0..3 {
                run(&mut sizing, busy, 3.0);
                let share = run(&mut sizing, busy, 4.0);
                assert!(share > 0.8, "{members} members, {busy} busy cores: {share}");
                run(&mut sizing, 0, 3.0);
                assert!(
                    run(&mut sizing, 0, 1.0) >= 1.0,
                    "{members} members, {busy} busy: {sizing:?}"
                );
            }
        }
    }

    #[test]
    fn members_who_wait_for_others_but_not_for_cores_change_nothing() {
        for delay in [None, Some(Duration::from_secs(1))] {
            let mut sizing = Sizing::new(4);
            for _ in 0..1_000 {
                sizing.record(1_000_000, Duration::from_millis(1), true, || delay);
                assert_eq!(sizing.active(), 4);
            }
        }
    }
}
