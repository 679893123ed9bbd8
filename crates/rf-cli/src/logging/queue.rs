//! A thread writes the lines of the log, so that a server does not wait for a reader of stderr.

use std::io::{self, Write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Lines that wait for the reader. Further ones are dropped.
const MAX_LINES: usize = 4096;
/// The time for writing what waits at the end of the program.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The queue of the process, if it has one.
static QUEUE: Mutex<Option<SyncSender<Message>>> = Mutex::new(None);
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Message {
    Line(Vec<u8>),
    /// Everything before it has been written once the sender is dropped.
    Flush(SyncSender<()>),
}

/// During its lifetime, a thread writes the lines of the log, and drops them if nobody reads
/// them.
pub(crate) struct Queue(());

impl Queue {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, lines) = mpsc::sync_channel(MAX_LINES);
        thread::Builder::new().name("rf-log".into()).spawn(move || write(&lines, io::stderr))?;
        set(Some(sender));
        Ok(Self(()))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Some(sender) = set(None) else { return };
        let (written, flushed) = mpsc::sync_channel(0);
        if sender.try_send(Message::Flush(written)).is_ok() {
            // Fails when all is written, or the time is over.
            let _end: Result<(), mpsc::RecvTimeoutError> = flushed.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

fn set(sender: Option<SyncSender<Message>>) -> Option<SyncSender<Message>> {
    std::mem::replace(&mut *QUEUE.lock().unwrap_or_else(PoisonError::into_inner), sender)
}

/// Writes what arrives, and how many lines were dropped before it.
fn write<W: Write>(lines: &Receiver<Message>, open: impl Fn() -> W) {
    for message in lines {
        let dropped = DROPPED.swap(0, Relaxed);
        let mut out = open();
        // A failure could not be reported.
        if dropped > 0 {
            drop(writeln!(out, "warning: {dropped} lines of the log were dropped: read it faster"));
        }
        match message {
            Message::Line(line) => drop(out.write_all(&line)),
            Message::Flush(written) => drop(written),
        }
    }
}

/// Writes a line to stderr, through the queue if there is one.
pub(super) struct LineWriter;

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*queue else {
            drop(queue);
            return io::stderr().write(line);
        };
        if let Err(TrySendError::Full(_)) = sender.try_send(Message::Line(line.to_vec())) {
            DROPPED.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A reader that blocks until it is told to read.
    #[derive(Clone)]
    struct Pipe {
        gate: Arc<Mutex<()>>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.gate.lock().unwrap());
            self.text.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let pipe = Pipe { gate: Arc::default(), text: Arc::default() };
        let (sender, lines) = mpsc::sync_channel(MAX_LINES);
        let out = pipe.clone();
        let writer = thread::spawn(move || write(&lines, || out.clone()));
        set(Some(sender));
        let blocked = pipe.gate.lock().unwrap();
        for index in 0..MAX_LINES + 100 {
            LineWriter.write_all(format!("line {index}\n").as_bytes()).unwrap();
        }
        drop(blocked);
        drop(Queue(()));
        writer.join().unwrap();
        let text = String::from_utf8(pipe.text.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("line ")).count();
        assert!((MAX_LINES..MAX_LINES + 100).contains(&lines), "{lines}");
        let dropped = MAX_LINES + 100 - lines;
        assert!(
            text.contains(&format!("warning: {dropped} lines of the log were dropped")),
            "{text}"
        );
    }
}
