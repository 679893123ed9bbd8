//! Progress on stderr, and Ctrl-C.

use std::io::IsTerminal;
use std::{env, io, process};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rf_bench::{Interrupt, MeasurementProgress};

use crate::output;

/// A progress bar on stderr; hidden where stderr is no terminal.
pub(crate) struct TerminalBar(ProgressBar);

impl TerminalBar {
    pub(crate) fn new() -> Self {
        let is_terminal =
            io::stderr().is_terminal() && env::var("TERM").is_ok_and(|term| term != "dumb");
        let target =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{prefix} [{bar:24}] {eta:>4} {wide_msg}")
            .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
        Self(ProgressBar::with_draw_target(None, target).with_style(style))
    }

    pub(crate) fn show(
        &self,
        MeasurementProgress { stage, done, total, step }: MeasurementProgress<'_>,
    ) {
        self.0.set_prefix(stage.to_owned());
        self.0.set_message(step.to_owned());
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }

    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Makes Ctrl-C request the end of the measurement. The press with the number `last` ends this
/// program: the second one, or the third one where the second makes the measurement kill its
/// processes.
///
/// Failure is reported and leaves the default handler in place, which ends the program.
pub(crate) fn interrupt_by_ctrl_c(last: u32) -> Interrupt {
    let interrupt = Interrupt::default();
    let requests = interrupt.clone();
    let set = ctrlc::set_handler(move || {
        let count = requests.request();
        if count >= last {
            #[expect(clippy::exit, reason = "the measurement does not end by itself")]
            process::exit(i32::from(output::INTERRUPTED));
        }
        if count == 1 {
            output::note("ending after the current run; press Ctrl-C again to end at once");
        }
    });
    if let Err(error) = set {
        output::note(format_args!("Ctrl-C will discard the measurements: {error}"));
    }
    interrupt
}
