//! Sums over the timelines of backends.

use std::time::{Duration, Instant};

use rf_graph::{Timeline, TrackKind};

/// Sums the durations of the events with a name that began before an instant, such as an op before
/// the first token. Only the first track of the kind counts in each timeline, since all threads of
/// a CPU take part in an op. Returns `None` if there is no such event.
pub fn time_of_events(
    timelines: &[Timeline],
    kind: TrackKind,
    name: &str,
    before: Instant,
) -> Option<Duration> {
    let tracks =
        timelines.iter().filter_map(|timeline| timeline.tracks.iter().find(|t| t.kind == kind));
    let events = tracks
        .flat_map(|track| &track.events)
        .filter(|event| event.name == name && event.start < before);
    events.map(|event| event.duration).reduce(|sum, time| sum + time)
}

#[cfg(test)]
mod tests {
    use rf_graph::{TimelineEvent, TimelineTrack};

    use super::*;

    #[test]
    fn threads_side_by_side_count_once_and_backends_each() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let event = |name, ms| TimelineEvent {
            name,
            detail: "".into(),
            start: at(ms),
            duration: Duration::from_millis(2),
            batch: 0,
            bytes: 0,
        };
        let track = |kind, events| TimelineTrack { name: String::new(), kind, events };
        let timeline = |tracks| Timeline { tracks, ..Timeline::default() };
        let embeds = || vec![event("embed", 1), event("matmul", 3), event("embed", 20)];
        let timelines = [
            timeline(vec![track(TrackKind::Ops, embeds()), track(TrackKind::Ops, embeds())]),
            timeline(vec![
                track(TrackKind::Transfers, vec![event("h2d", 2)]),
                track(TrackKind::Ops, vec![event("embed", 4)]),
            ]),
        ];
        let time = |kind, name, before| {
            time_of_events(&timelines, kind, name, at(before)).map(|time| time.as_millis())
        };
        assert_eq!(time(TrackKind::Ops, "embed", 10), Some(4));
        assert_eq!(time(TrackKind::Ops, "embed", 30), Some(6));
        assert_eq!(time(TrackKind::Transfers, "h2d", 10), Some(2));
        assert_eq!(time(TrackKind::Transfers, "d2h", 10), None);
        assert_eq!(time(TrackKind::Ops, "embed", 0), None);
    }
}
