//! Reading of the log of an MPS daemon.

/// GPU fault that ended all clients of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    /// Process id of the culprit, if the log names it.
    pub(crate) pid: Option<u32>,
}

/// Finds the fault that some lines of a log report (driver 580):
///
/// ```text
/// [2026-11-23 03:00:19.335 Server   547] Client {PID: 814, Context: 1} encountered a fatal GPU error.
/// [2026-11-23 03:00:19.335 Server   547] Server is handling a fatal GPU error.
/// ```
pub(crate) fn fault(lines: &str) -> Option<Fault> {
    let mut told = lines.lines().filter(|line| line.contains("fatal GPU error")).peekable();
    told.peek()?;
    let pid = told.find_map(|line| {
        let (_, rest) = line.split_once("Client {PID: ")?;
        rest.split(',').next()?.trim().parse().ok()
    });
    Some(Fault { pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_with_the_process_that_the_log_names() {
        let connected = "[2026-11-23 03:00:14.006 Server   547] Client {PID: 814, Context ID: 1} connected\n";
        let handling = "[2026-11-23 03:00:19.335 Server   547] Server is handling a fatal GPU error.\n";
        let culprit =
            "[2026-11-23 03:00:19.335 Server   547] Client {PID: 814, Context: 1} encountered a fatal GPU error.\n";
        assert_eq!(fault(""), None);
        assert_eq!(fault(connected), None);
        assert_eq!(fault(&[connected, handling].concat()), Some(Fault { pid: None }));
        assert_eq!(fault(&[connected, culprit, handling].concat()), Some(Fault { pid: Some(814) }));
        let strange = "[2026-11-23 03:00:19.335 Server   547] Client {PID: -1333654781, Context: 1} encountered a fatal GPU error.\n";
        assert_eq!(fault(strange), Some(Fault { pid: None }), "not a process id");
    }
}
