//! `xsched active-window` on a display of its own (Xvfb). The test acts as the window manager: it makes a window for each program, and sets
//! the active one.

use std::process::{Command, Stdio};

use x11rb::connection::Connection;
use x11rb::protocol::xproto::{AtomEnum, ConnectionExt, CreateWindowAux, PropMode, Window, WindowClass};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;
use xsched_e2e::{Place, Process, skipped};

/// Display and its window manager.
struct Display {
    x: RustConnection,
    root: Window,
    name: String,
    server: Process,
}

impl Display {
    /// Starts a display; none where there is no Xvfb.
    fn new(place: &Place) -> Option<Display> {
        if Command::new("Xvfb").arg("-help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            return None;
        }
        let number = place.join("display");
        let mut command = place.command("sh", &["-c", "exec Xvfb -displayfd 3 -nolisten tcp 3>\"$0\""]);
        command.arg(&number).stderr(Stdio::null());
        let server = Process::start(command);
        let mut text = String::new();
        xsched_e2e::until("the display is there", || {
            text = std::fs::read_to_string(&number).unwrap_or_default();
            text.ends_with('\n')
        });
        let name = format!(":{}", text.trim());
        let (x, screen) = RustConnection::connect(Some(&name)).expect("a display");
        let root = x.setup().roots[screen].root;
        Some(Display { x, root, name, server })
    }

    fn atom(&self, name: &str) -> u32 {
        self.x.intern_atom(false, name.as_bytes()).unwrap().reply().unwrap().atom
    }

    /// Makes a window of a process.
    fn window(&self, pid: u32) -> Window {
        let window = self.x.generate_id().unwrap();
        let (class, how) = (WindowClass::COPY_FROM_PARENT, CreateWindowAux::new());
        self.x.create_window(0, window, self.root, 0, 0, 9, 9, 0, class, 0, &how).unwrap().check().unwrap();
        self.say(window, "_NET_WM_PID", AtomEnum::CARDINAL, pid);
        window
    }

    fn activate(&self, window: Window) {
        self.say(self.root, "_NET_ACTIVE_WINDOW", AtomEnum::WINDOW, window);
    }

    fn say(&self, window: Window, what: &str, kind: AtomEnum, value: u32) {
        let atom = self.atom(what);
        self.x.change_property32(PropMode::REPLACE, window, atom, kind, &[value]).unwrap().check().unwrap();
    }
}

#[test]
fn awf_follows_the_active_window() {
    let place = Place::new();
    let Some(display) = Display::new(&place) else {
        return skipped("the active window: no Xvfb");
    };
    place.device();
    let work = place.compile("programs/suite/work.c", &["-DPLATFORM=\"sim.h\"", "-lpthread", "-lm", "-lsimdev"]);
    let _daemon = place.daemon(&["--policy", "awf"]);
    let programs = [0, 1].map(|_| {
        let mut program = place.run(&[], &work, &["steady", "200", "64"]);
        program.expect("ready");
        program.progress_after(0);
        program
    });
    let windows = programs.each_ref().map(|program| display.window(program.pid()));
    let watcher = Process::start(place.xsched(&["active-window", "--display", &display.name]));
    for active in [0, 1, 0] {
        display.activate(windows[active]);
        place.assert_ahead(programs[active].pid(), programs[1 - active].pid(), 400);
    }
    // A window of the process that started both programs: they are equals again.
    display.activate(display.window(std::process::id()));
    let launches = || programs.each_ref().map(|program| place.launches(program.pid()));
    let before = launches();
    xsched_e2e::until("both have the device", || {
        launches().iter().zip(before).all(|(now, before)| *now > before + 100)
    });
    for mut program in programs {
        program.tell("end");
        assert_eq!(program.finish().last().map(String::as_str), Some("ok"));
    }
    // The session ends, and the helper must end with it.
    xsched_e2e::signal(display.server.pid(), rustix::process::Signal::TERM);
    let (code, _, errors) = watcher.wait();
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("the X11 session has ended"), "{errors}");
}

#[test]
fn without_a_display_one_line_says_what_to_do() {
    let place = Place::new();
    let output = place.xsched(&["active-window", "--display", ":987"]).output().expect("xsched runs");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(3));
    assert!(errors.lines().count() == 1 && errors.contains("--active on"), "{errors}");
}
