//! `xsched top`: programs and devices, live.

mod app;
mod draw;
mod feed;
mod model;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use self::app::{App, Then, Trouble};
use self::draw::Theme;
use self::feed::Feed;
use self::model::{Sort, View};
use xsched_proto::units::{self, Bare};

use crate::failure::{Error, Result};
use crate::values;

/// Show programs and devices live, and change classes, suspend and resume by key
///
/// `?` shows the keys. Without a terminal, and with --batch, a table is printed again and again.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print the table once
    #[arg(long, conflicts_with = "batch")]
    once: bool,

    /// Print the table again and again, without keys
    #[arg(long)]
    batch: bool,

    /// Time between two updates: 200ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Order of the rows: gpu, wait, priority, launches, memory, pid or name
    #[arg(long, value_name = "KEY", default_value = "gpu", value_parser = sort)]
    sort: Sort,

    /// Only rows with this text in name, class, state, device or process id
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Width of a table that goes to no terminal, in columns.
const TEXT_WIDTH: u16 = 140;
/// Time between the first two snapshots, long enough to compute rates.
const FIRST: Duration = Duration::from_millis(300);

fn interval(text: &str) -> Result<Duration> {
    units::within(text, "interval", &(Duration::from_millis(200)..=Duration::from_secs(3_600)), "2s", Bare::Refused)
}

fn sort(text: &str) -> Result<Sort> {
    let found = Sort::ALL.into_iter().find(|sort| text.eq_ignore_ascii_case(sort.name()));
    found.ok_or_else(|| Error::value(text, "order", Sort::ALL.map(Sort::name).join(", ")))
}

/// Shows the table in a terminal, or prints it.
pub(crate) fn main(args: Args) -> Result {
    let mut feed = Feed::open(args.socket)?;
    let mut app = App::new(View { sort: args.sort, reverse: false, filter: args.filter });
    app.take(feed.snapshot(now_us())?);
    let has_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.once || args.batch || !has_terminal {
        return print(feed, app, args.interval, args.once);
    }
    let signals = Signals::new().map_err(|e| Error::environment(format!("cannot wait for signals: {e}")))?;
    // This also makes a panic restore the terminal.
    let mut terminal = ratatui::try_init().map_err(|e| Error::environment(format!("cannot use this terminal: {e}")))?;
    let done = interact(&mut terminal, feed, &mut app, args.interval, &signals);
    ratatui::restore();
    done.map_err(|e| Error::environment(format!("lost the terminal: {e}")))
}

/// Abilities of the terminal, from NO_COLOR and the locale.
fn theme() -> Theme {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
    Theme { colour: set("NO_COLOR").is_none(), blocks: locale.contains("utf-8") || locale.contains("utf8") }
}

/// Prints the table, once or again and again.
fn print(mut feed: Feed, mut app: App, interval: Duration, once: bool) -> Result {
    let theme = Theme { colour: false, ..theme() };
    let mut out = std::io::stdout();
    let width = match out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out)) {
        Some(Ok(size)) if size.ws_col > 0 => size.ws_col,
        _ => TEXT_WIDTH,
    };
    std::thread::sleep(FIRST);
    loop {
        app.take(feed.snapshot(now_us())?);
        let end = if once { "" } else { "\n" };
        match write!(out, "{}{end}", draw::text_of(&app, theme, width)).and_then(|()| out.flush()) {
            Ok(()) if once => return Ok(ExitCode::SUCCESS),
            Ok(()) => std::thread::sleep(interval),
            // The reader has closed the pipe.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(e) => return Err(Error::environment(format!("cannot write to standard output: {e}"))),
        }
    }
}

/// Draws the screen and handles keys, until a key or a signal ends the program.
fn interact(
    terminal: &mut ratatui::DefaultTerminal,
    mut feed: Feed,
    app: &mut App,
    interval: Duration,
    signals: &Signals,
) -> std::io::Result<ExitCode> {
    let theme = theme();
    let (mut news, mut next) = (Instant::now(), Instant::now() + FIRST);
    loop {
        let mut page = 0;
        terminal.draw(|frame| page = draw::screen(app, theme, frame.area(), frame.buffer_mut()))?;
        app.page = page;
        wait(signals, next)?;
        if let Some(signal) = signals.taken() {
            return Ok(ExitCode::from(128 + signal));
        }
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match app.key(key) {
                Then::Draw => {}
                Then::Quit => return Ok(ExitCode::SUCCESS),
                Then::Do(change) => {
                    app.message = Some(match feed.change(&change) {
                        Ok(notes) => std::iter::once(change.done()).chain(notes).collect::<Vec<_>>().join("; "),
                        Err(why) => why.line().to_owned(),
                    });
                    // The result of the change is shown soon.
                    next = next.min(Instant::now() + FIRST);
                }
            }
        }
        if Instant::now() >= next {
            match feed.snapshot(now_us()) {
                Ok(snapshot) => {
                    app.take(snapshot);
                    news = Instant::now();
                }
                // The daemon may come back.
                Err(why) => app.trouble = Some(Trouble { line: why.line().to_owned(), age: news.elapsed() }),
            }
            next = Instant::now() + interval;
        }
    }
}

/// Waits for a key, a signal, or a time.
fn wait(signals: &Signals, until: Instant) -> std::io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let stdin = std::io::stdin();
    let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN), PollFd::new(&signals.wake, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        return Err(std::io::Error::other("it hung up"));
    }
    signals.empty();
    Ok(())
}

/// Signals that end the program or report a new size of the terminal, and wake it up.
struct Signals {
    wake: UnixStream,
    ended: Arc<AtomicUsize>,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let ended = Arc::new(AtomicUsize::new(0));
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT] {
            signal_hook::flag::register_usize(signal, ended.clone(), signal as usize)?;
            signal_hook::low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGWINCH, waker)?;
        Ok(Signals { wake, ended })
    }

    /// Signal that ends the program, if one came.
    fn taken(&self) -> Option<u8> {
        u8::try_from(self.ended.load(SeqCst)).ok().filter(|signal| *signal > 0)
    }

    fn empty(&self) {
        let mut bytes = [0; 64];
        while (&self.wake).read(&mut bytes).is_ok_and(|n| n > 0) {}
    }
}

fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
