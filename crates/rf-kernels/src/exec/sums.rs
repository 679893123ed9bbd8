//! Sums over the parts of a divided program ([`Op::AllReduce`](rf_graph::Op::AllReduce)), each of which is on another device.
//!
//! A step of a part has launches up to a sum, the sum, and further launches. The host queues all of
//! them and does not wait for a device:
//!
//! 1. A kernel copies the summand of this part to pinned host memory, and an event follows.
//! 2. The threads of all parts meet and exchange their summands
//!    ([`Collective`](rf_graph::Collective)). A part that fails or does not come ends the step of
//!    all.
//! 3. The stream waits for the events of the others, and kernels add all summands in the order of
//!    the parts. So every part has the same bits.
//!
//! A part writes to memory of a summand again when nobody holds it any more. Each part holds the
//! summands of its last two sums. When it drops those of a sum, all parts have come to the next sum
//! but one. By then this part's stream has waited for launches of the others that follow their
//! reads.

use std::time::{Duration, Instant};

use rf_graph::{BackendError, Member, QueuedSummands};
use rf_hip::Stream;

use super::hand_over::{HandOvers, HandedRows};
use super::launches::SumPlace;
use crate::error::Error;
use crate::launch::{Gpu, LaunchList, Recording};
use crate::params::{Address, CopyRowsParams, PairParams};

/// The time for which a host thread polls without a pause for the end of a step.
const POLL: Duration = Duration::from_millis(20);

/// The pause between later polls.
const PAUSE: Duration = Duration::from_micros(200);

/// The connection of a part to the others.
#[derive(Default)]
pub(super) struct Sums {
    member: Option<Member>,
    /// The summands of this part.
    own: HandOvers,
    /// The summands of all parts in the last two sums, which devices may still read.
    held: [QueuedSummands; 2],
}

impl Sums {
    /// See [`Executor::join`](rf_graph::Executor::join).
    pub(super) fn join(&mut self, member: Member) {
        self.member = Some(member);
    }

    /// Queues a sum.
    pub(super) fn queue(
        &mut self,
        gpu: &Gpu,
        stream: &Stream,
        sum: &SumPlace,
    ) -> Result<(), Error> {
        let Some(Member { collective, part }) = &self.member else {
            let what = "a part of a model without the others".to_owned();
            return Err(Error::Unsupported { what });
        };
        let own = self.own.take(gpu.context(), sum.floats, sum.most_floats)?;
        let mut launches = LaunchList::default();
        let copy = CopyRowsParams::of_floats(sum.x, own.address(), sum.floats);
        launches.push(copy.launch(), copy);
        Recording::load(gpu, launches)?.queue(stream)?;
        own.mark_written(stream)?;

        let summands = collective.gather(*part, own).map_err(Error::OtherPart)?;
        let mut places = Vec::with_capacity(summands.len());
        for (other, rows) in summands.iter().enumerate() {
            if other == *part {
                places.push(sum.x);
                continue;
            }
            let Some(rows) = HandedRows::of(rows, gpu.context()) else {
                let what = "sums over parts on devices of different kinds".to_owned();
                return Err(Error::Unsupported { what });
            };
            stream.wait(rows.written())?;
            places.push(rows.address_on(gpu.context())?);
        }
        let launches = additions(&places, sum);
        Recording::load(gpu, launches)?.starting_in_order().queue(stream)?;
        self.held.swap(0, 1);
        self.held[0] = summands;
        Ok(())
    }

    /// Waits for the queued work of a part, which waits for that of the others: no longer than
    /// these wait for each other. Without sums there is nothing to wait for.
    ///
    /// # Errors
    ///
    /// If the device fails, or it or another one does not come to the end of its work.
    pub(super) fn wait(&self, stream: &Stream) -> Result<(), Error> {
        let (Some(member), false) = (&self.member, self.held[0].is_empty()) else { return Ok(()) };
        let (start, limit) = (Instant::now(), member.collective.limit());
        while !stream.is_idle()? {
            let waited = start.elapsed();
            if waited > limit {
                let what = format!(
                    "part {} of the model did not end a step within {} s",
                    member.part + 1,
                    limit.as_secs_f32()
                );
                return Err(Error::OtherPart(BackendError::Device(what)));
            }
            if waited < POLL {
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

/// The launches that add summands in order.
fn additions(places: &[Address], sum: &SumPlace) -> LaunchList {
    let (out, count) = (sum.out, sum.floats as u64);
    let mut launches = LaunchList::default();
    let mut a = places[0];
    for b in &places[1..] {
        let params = PairParams { a, b: *b, out, count };
        launches.push(params.add(), params);
        a = out;
    }
    if places.len() == 1 {
        let params = CopyRowsParams::of_floats(a, out, sum.floats);
        launches.push(params.launch(), params);
    }
    launches
}
