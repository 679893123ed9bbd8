//! Clients that leave, sinks that fail, and the end.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::thread;

use rf_engine::StopReason;
use rf_engine::scheduler::{Event, Request, RequestError, SubmitError};

use crate::limits::hold;
use crate::support::{
    ENGINE, SCHEDULER, alone, ask, end, engine, greedy, prompt, start, submit, tiny,
};

#[test]
fn a_cancelled_request_ends_and_gives_its_pages_back() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let mut request = Request::new(prompt(1, 60), greedy(1000));
    request.num_choices = 3;
    // Without a buffer: the request cannot end before it is cancelled.
    let (sender, receiver) = sync_channel(0);
    let sink = move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let id = handle.submit(request, sink).unwrap();
    let tokens = receiver.iter().filter(|event| matches!(event, Event::Token { .. }));
    assert_eq!(tokens.take(10).count(), 10);
    assert!(handle.stats().kv_pages_used > 0);
    handle.cancel(id);
    let ends: Vec<Event> =
        receiver.iter().filter(|event| matches!(event, Event::Finished { .. })).collect();
    // The last event comes after the statistics.
    let stats = handle.stats();
    assert_eq!((stats.running, stats.kv_pages_used, stats.finished.cancelled), (0, 0, 3));
    assert_eq!(ends.len(), 3);
    for (index, end) in ends.iter().enumerate() {
        assert!(matches!(end, Event::Finished { choice, reason: StopReason::Cancelled, .. }
            if *choice == index));
    }
    // Twice, or without such a request, it does nothing.
    handle.cancel(id);
    assert_eq!(ask(&handle, &prompt(2, 5), &greedy(3)).ids.len(), 3);
    end(scheduler);
}

#[test]
fn a_slow_reader_loses_only_its_own_request() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let ids = prompt(1, 30);
    let slow: Vec<Receiver<Event>> = (0..20)
        .map(|_| {
            let (sender, receiver) = sync_channel(5);
            let sink = move |event| match sender.try_send(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            handle.submit(Request::new(ids.clone(), greedy(100)), sink).unwrap();
            receiver
        })
        .collect();
    let answer = ask(&handle, &ids, &greedy(100)).ids;
    assert_eq!(answer, alone(&mut engine(&tiny(), ENGINE), &ids, &greedy(100)).ids);
    // What was in the buffers, and no end.
    for receiver in slow {
        assert_eq!(receiver.iter().count(), 5);
    }
    let stats = handle.stats();
    assert_eq!((stats.running, stats.kv_pages_used, stats.finished.cancelled), (0, 0, 20));
    end(scheduler);
}

#[test]
fn a_sink_that_breaks_or_panics_at_any_event_ends_its_request() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let ids = prompt(1, 30);
    let expected = ask(&handle, &ids, &greedy(8)).ids;
    // A start, 16 tokens and 2 ends.
    for at in 0..19 {
        for panics in [false, true] {
            let (report, reported) = channel();
            let mut count = 0;
            let sink = move |_: Event| {
                count += 1;
                // After the first `Break` there is no event.
                report.send(count - 1).unwrap();
                assert!(!(panics && count > at), "a bug in the sink");
                if count > at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let mut request = Request::new(ids.clone(), greedy(8));
            request.num_choices = 2;
            handle.submit(request, sink).unwrap();
            assert_eq!(ask(&handle, &ids, &greedy(8)).ids, expected);
            assert_eq!(reported.iter().last(), Some(at));
        }
    }
    end(scheduler);
}

#[test]
fn a_shutdown_ends_all_requests() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    // Holds the engine until the shutdown has begun, so that no request ends before.
    let release = hold(&handle);
    let events: Vec<_> =
        (0..100).map(|i| submit(&handle, &prompt(i, 50), &greedy(110), |_| ()).1).collect();
    let ending = thread::spawn(move || end(scheduler));
    let probe = || Request::new(vec![1], greedy(1));
    let go_on = |_: Event| ControlFlow::Continue(());
    while handle.submit(probe(), go_on) != Err(SubmitError::ShuttingDown) {
        thread::yield_now();
    }
    drop(release);
    let stats = ending.join().unwrap();
    assert!(stats.finished.cancelled >= 100, "{stats:?}");
    for events in events {
        let last = events.receiver.iter().last();
        assert!(matches!(last, Some(Event::Finished { .. })), "{last:?}");
    }
    assert_eq!(handle.submit(probe(), go_on).unwrap_err(), SubmitError::ShuttingDown);
    assert_eq!(handle.stats(), stats);
}

#[test]
fn a_session_outside_of_the_scheduler_fails_requests_instead_of_stopping_it() {
    let mut engine = engine(&tiny(), ENGINE.with_kv_tokens(Some(160)));
    let mut session = engine.session();
    let ids = prompt(1, 100);
    let mut feeds = [rf_engine::SequenceInput {
        session: &mut session,
        ids: &ids,
        outputs: rf_engine::Outputs::None,
    }];
    engine.forward(&mut feeds).unwrap();
    let scheduler = rf_engine::scheduler::Scheduler::start(engine, SCHEDULER).unwrap();
    let handle = scheduler.handle();
    for (prompt_tokens, max_tokens) in [(100, 1), (20, 100)] {
        let (_, events) = submit(&handle, &prompt(2, prompt_tokens), &greedy(max_tokens), |_| ());
        let error = events.answers().unwrap_err();
        assert!(matches!(&error, RequestError::Engine(_)), "{error}");
        assert!(error.to_string().starts_with("the KV cache is full"), "{error}");
    }
    assert_eq!(ask(&handle, &prompt(2, 20), &greedy(10)).ids.len(), 10);
    drop(session);
    assert_eq!(ask(&handle, &prompt(2, 100), &greedy(10)).ids.len(), 10);
    end(scheduler);
}
