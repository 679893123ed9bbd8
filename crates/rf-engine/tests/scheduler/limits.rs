//! Limits: what is refused, clamped, queued and served first.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};

use rf_engine::sampling::{self, SamplerConfig};
use rf_engine::scheduler::{Event, Handle, Request, Scheduler, SubmitError};
use rf_engine::{Error, GenerateOptions, Pooling, StopReason};

use crate::support::{
    ENGINE, SCHEDULER, VOCAB_SIZE, ask, end, engine, greedy, prompt, start, submit, tiny,
    with_sampler,
};

/// A request whose sink holds the thread of the engine at its start. Returns once it is held;
/// sending, or dropping the sender, releases it.
pub(crate) fn hold(handle: &Handle) -> Sender<()> {
    let (release, held) = channel::<()>();
    let (report, started) = channel();
    let sink = move |event| {
        if matches!(event, Event::Started { .. }) {
            report.send(()).unwrap();
            // An error means that the sender was dropped.
            let _: Result<(), _> = held.recv();
        }
        ControlFlow::Continue(())
    };
    handle.submit(Request::new(vec![1], greedy(1)), sink).unwrap();
    started.recv().unwrap();
    release
}

#[test]
fn what_can_never_be_served_is_refused() {
    // The KV cache is smaller than the context.
    let scheduler = start(ENGINE.with_kv_tokens(Some(100)), SCHEDULER);
    let handle = scheduler.handle();
    assert_eq!((handle.kv_tokens(), handle.max_sequence_tokens()), (112, 112));
    let refused = |ids: &[u32], options: &GenerateOptions, num_choices| {
        let sink = |event| panic!("{event:?}");
        let mut request = Request::new(ids.to_vec(), options.clone());
        request.num_choices = num_choices;
        handle.submit(request, sink).unwrap_err()
    };
    let too_long = SubmitError::PromptTooLong { prompt_tokens: 113, most_tokens: 112 };
    assert_eq!(refused(&prompt(1, 113), &greedy(1), 1), too_long);
    assert_eq!(refused(&[], &greedy(1), 1), SubmitError::EmptyPrompt);
    let unknown = SubmitError::UnknownToken { id: 272, vocab_size: VOCAB_SIZE };
    assert_eq!(refused(&[1, 272], &greedy(1), 1), unknown);
    for num_choices in [0, 129] {
        let expected = SubmitError::NumChoices { num_choices, most: 128 };
        assert_eq!(refused(&[1], &greedy(1), num_choices), expected);
    }
    let sampler = SamplerConfig::default().with_top_p(2.0);
    assert!(matches!(
        refused(&[1], &with_sampler(sampler, 1), 1),
        SubmitError::Sampling(sampling::Error::Parameter { name: "top_p", .. })
    ));
    // The queue has forgotten them, and the next one is served.
    assert_eq!(handle.stats().waiting, 0);
    assert_eq!(ask(&handle, &prompt(1, 112), &greedy(1)).ids.len(), 1);
    end(scheduler);
}

#[test]
fn what_cannot_run_is_refused() {
    for options in [
        SCHEDULER.with_max_num_seqs(0),
        SCHEDULER.with_max_batched_tokens(0),
        SCHEDULER.with_max_queued(0),
    ] {
        let refused = Scheduler::start(engine(&tiny(), ENGINE), options);
        assert!(matches!(refused, Err(Error::InvalidOption { value: 0, .. })));
    }
    let embeds = ENGINE.with_pooling(Some(Pooling::Mean));
    let refused = Scheduler::start(engine(&tiny(), embeds), SCHEDULER);
    assert!(matches!(refused, Err(Error::LoadedToEmbed)));
}

#[test]
fn the_number_of_tokens_is_clamped_to_context_and_cache() {
    for (context_tokens, kv_tokens, room) in [(80, 4096, 80), (160, 64, 64)] {
        let options =
            ENGINE.with_context_tokens(Some(context_tokens)).with_kv_tokens(Some(kv_tokens));
        let scheduler = start(options, SCHEDULER);
        let handle = scheduler.handle();
        for prompt_tokens in [1, 30, room] {
            // The last token is not computed.
            let most = room - prompt_tokens + 1;
            let ids = prompt(1, prompt_tokens as u32);
            let answer = ask(&handle, &ids, &greedy(usize::MAX));
            assert_eq!((answer.ids.len(), answer.end), (most, Some(StopReason::Length)));
            let unlimited = greedy(0).with_max_tokens(None);
            let answer = ask(&handle, &ids, &unlimited);
            assert_eq!((answer.ids.len(), answer.end), (most, Some(StopReason::ContextFull)));
        }
        end(scheduler);
    }
}

#[test]
fn a_full_queue_refuses_until_there_is_room() {
    let scheduler = start(ENGINE, SCHEDULER.with_max_queued(3));
    let handle = scheduler.handle();
    let release = hold(&handle);
    let queued: Vec<_> = (0..3).map(|_| submit(&handle, &[1], &greedy(2), |_| ()).1).collect();
    assert_eq!(handle.stats().waiting, 3);
    let more = Request::new(vec![1], greedy(1));
    let go_on = |_: Event| ControlFlow::Continue(());
    assert_eq!(handle.submit(more, go_on).unwrap_err(), SubmitError::QueueFull { max_queued: 3 });
    drop(release);
    for events in queued {
        assert_eq!(events.answer().ids.len(), 2);
    }
    assert_eq!(ask(&handle, &[1], &greedy(2)).ids.len(), 2);
    end(scheduler);
}

#[test]
fn cancelled_requests_leave_the_queue() {
    let scheduler = start(ENGINE, SCHEDULER.with_max_queued(2));
    let handle = scheduler.handle();
    for _ in 0..3 {
        let release = hold(&handle);
        let queued: Vec<_> = (0..2).map(|_| submit(&handle, &[1], &greedy(2), |_| ())).collect();
        for (id, _) in &queued {
            handle.cancel(*id);
        }
        drop(release);
        for (_, events) in queued {
            let answer = events.receiver.iter().last();
            assert!(matches!(answer, Some(Event::Finished { reason: StopReason::Cancelled, .. })));
        }
    }
    end(scheduler);
}

/// The order in which requests of these priorities start.
fn order(priorities: &[i32]) -> Vec<usize> {
    let scheduler = start(ENGINE, SCHEDULER.with_max_num_seqs(1));
    let handle = scheduler.handle();
    let release = hold(&handle);
    let (sender, receiver): (_, Receiver<usize>) = channel();
    for (index, &priority) in priorities.iter().enumerate() {
        let sender = sender.clone();
        let sink = move |event| {
            if matches!(event, Event::Started { .. }) {
                sender.send(index).unwrap();
            }
            ControlFlow::Continue(())
        };
        let mut request = Request::new(prompt(1, 20), greedy(3));
        request.priority = priority;
        handle.submit(request, sink).unwrap();
    }
    drop((sender, release));
    let order = receiver.iter().collect();
    end(scheduler);
    order
}

#[test]
fn requests_start_by_priority_then_arrival() {
    assert_eq!(order(&[0, 0, 0, 0]), [0, 1, 2, 3]);
    assert_eq!(order(&[0, -1, 5, 0, 5, i32::MIN, i32::MAX]), [6, 2, 4, 0, 3, 1, 5]);
}

#[test]
fn the_last_in_order_is_preempted() {
    // Room for two of three sequences.
    let scheduler = start(ENGINE.with_kv_tokens(Some(160)), SCHEDULER);
    let handle = scheduler.handle();
    let release = hold(&handle);
    let (sender, receiver) = channel();
    for (index, priority) in [(0, 0), (1, 1), (2, 0)] {
        let sender = sender.clone();
        let sink = move |event| {
            if matches!(event, Event::Finished { .. }) {
                sender.send(index).unwrap();
            }
            ControlFlow::Continue(())
        };
        let mut request = Request::new(prompt(index, 30), greedy(80));
        request.priority = priority;
        handle.submit(request, sink).unwrap();
    }
    drop((sender, release));
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 0, 2]);
    assert!(end(scheduler).preemptions > 0);
}
