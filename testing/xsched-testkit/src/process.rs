//! Programs that a test talks to by lines, and that end with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::TIMEOUT;
use crate::wait::so_within;

/// CLOCK_MONOTONIC, in ns: the clock of the times that test programs print.
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Waits for a program to end by itself and returns its output. After `limit` kills it and panics.
#[track_caller]
pub fn finish(mut child: Child, limit: Duration) -> Output {
    fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // Output before an error is shown all the same.
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            text
        })
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let mut status = None;
    if !so_within(limit, || {
        status = child.try_wait().expect("a child");
        status.is_some()
    }) {
        child.kill().expect("a child");
        child.wait().expect("a child");
    }
    let (stdout, stderr) = (out.join().expect("a reader"), err.join().expect("a reader"));
    let said = || [&stdout, &stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    let status = status.unwrap_or_else(|| panic!("hangs\n{}", said()));
    Output { status, stdout, stderr }
}

/// Running program that the test talks to by lines.
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    error_reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a command with pipes as its three standard descriptors.
    pub fn start(mut command: Command) -> Process {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("stdout"));
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let errors = Arc::new(Mutex::new(String::new()));
        let (err, kept) = (BufReader::new(child.stderr.take().expect("stderr")), errors.clone());
        let error_reader = std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(|e| e.into_inner());
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let stdin = child.stdin.take();
        Process { child, stdin, lines, errors, error_reader: Some(error_reader) }
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Numbers of commands submitted and completed by a `steady` program, which answers while its launches are held, too.
    #[track_caller]
    pub fn count(&mut self) -> (u64, u64) {
        self.tell("count");
        self.find("a line of counts", |line| {
            let (given, done) = line.strip_prefix("given ")?.split_once(" done ").expect("two counts");
            Some((given.parse().expect("a number"), done.parse().expect("a number")))
        })
    }

    /// Lines of a daemon on stderr so far, without those about coming, leaving and changes.
    pub fn complaints(&self) -> String {
        complaints(&self.errors())
    }

    /// Output on stderr so far.
    pub fn errors(&self) -> String {
        self.errors.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Writes a line to the program.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).expect("the program reads");
    }

    /// Reads lines until `wanted` returns a value for one. Panics after [`TIMEOUT`].
    #[track_caller]
    pub fn find<T>(&mut self, what: &str, mut wanted: impl FnMut(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = wanted(&self.line()) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited {TIMEOUT:?}: {what}");
        }
    }

    /// Next line that the program prints.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.line_within(TIMEOUT).unwrap_or_else(|| panic!("no line in {TIMEOUT:?}: {}", self.errors()))
    }

    /// Next line that the program prints, or none within a time.
    #[track_caller]
    pub fn line_within(&mut self, time: Duration) -> Option<String> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait();
                panic!("the program ended: {status:?}: {}", self.errors())
            }
        }
    }

    /// Reads lines until the program prints this one.
    #[track_caller]
    pub fn expect(&mut self, wanted: &str) {
        self.find(wanted, |line| (line == wanted).then_some(()));
    }

    /// Waits for the line with the device's count.
    #[track_caller]
    pub fn expect_counts_line(&mut self) {
        self.find("a line of launches", |line| line.starts_with("launched ").then_some(()));
    }

    /// Drops the lines printed so far.
    pub fn skip_lines(&mut self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// Waits until the program has printed nothing for 200 ms: by then its commands on the device are complete, and no more follow.
    #[track_caller]
    pub fn until_quiet(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while self.line_within(Duration::from_millis(200)).is_some() {
            assert!(Instant::now() < deadline, "it goes on for {TIMEOUT:?}");
        }
    }

    /// Waits for a line of `steady` whose time is after `when` (ns), and returns by how much.
    #[track_caller]
    pub fn progress_after(&mut self, when: u64) -> Duration {
        self.find("progress", |line| {
            let stamp = line.parse::<u64>().ok().filter(|stamp| *stamp > when)?;
            Some(Duration::from_nanos(stamp - when))
        })
    }

    /// Longest time without progress of a `steady` program within `time` from now.
    #[track_caller]
    pub fn longest_gap(&mut self, time: Duration) -> Duration {
        let begin = now_ns();
        let (mut last, mut longest) = (begin, Duration::ZERO);
        while last < begin + time.as_nanos() as u64 {
            let gap = self.progress_after(last);
            longest = longest.max(gap);
            last += gap.as_nanos() as u64;
        }
        longest
    }

    /// Exit status, if the process has ended.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Closes the program's stdin and waits for it to end. Returns the exit status (or minus the number of the signal), the lines that were
    /// not yet read, and stderr.
    #[track_caller]
    pub fn wait(mut self) -> (i32, Vec<String>, String) {
        self.stdin = None;
        let mut ended = None;
        if !so_within(2 * TIMEOUT, || {
            ended = self.has_ended();
            ended.is_some()
        }) {
            panic!("it does not end: {}", self.errors());
        }
        let status = ended.expect("it has ended");
        if let Some(reader) = self.error_reader.take() {
            let _ = reader.join();
        }
        let code = status.code().unwrap_or_else(|| -status.signal().expect("ended by a signal"));
        (code, self.lines.iter().collect(), self.errors())
    }

    /// Ends a `steady` program of CUDA or HIP and checks that every kernel ran once. Returns the process id.
    #[track_caller]
    pub fn end_steady(mut self) -> u32 {
        let pid = self.pid();
        self.tell("end");
        assert_eq!(self.finish().last().map(String::as_str), Some("ok every kernel has run once"));
        pid
    }

    /// Closes the program's stdin, waits for it to end, and checks that it succeeds with nothing on stderr. Returns the lines that were not
    /// yet read.
    #[track_caller]
    pub fn finish(self) -> Vec<String> {
        let (code, lines, errors) = self.wait();
        assert_eq!((code, errors.as_str()), (0, ""), "{lines:?}");
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of a daemon's log that report trouble.
fn complaints(log: &str) -> String {
    let is_event = |line: &&str| {
        let Some(line) = line.strip_prefix("xsched: ") else { return false };
        let leaves = line.starts_with("process ") && line.ends_with(" has left");
        leaves
            || line.starts_with("listens at ")
            || line.starts_with("attached process ")
            || line.contains(": by user ")
    };
    log.lines().filter(|line| !is_event(line)).map(|line| format!("{line}\n")).collect()
}
