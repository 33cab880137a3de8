//! The log files, in `CUDA_MPS_LOG_DIRECTORY`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 86_400;

/// A log file to which lines are appended.
pub(super) struct Log {
    file: File,
    role: &'static str,
}

impl Log {
    /// Opens a file of the log directory.
    pub(super) fn open(name: &str, role: &'static str) -> io::Result<Self> {
        let named = std::env::var_os("CUDA_MPS_LOG_DIRECTORY").filter(|value| !value.is_empty());
        let folder = named.map_or_else(|| "/var/log/nvidia-mps".into(), PathBuf::from);
        std::fs::create_dir_all(&folder)?;
        let file = OpenOptions::new().create(true).append(true).open(folder.join(name))?;
        Ok(Self { file, role })
    }

    /// Appends a line. A failure is ignored.
    pub(super) fn line(&self, text: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line =
            format!("[{} {} {:5}] {text}\n", date(now.as_secs(), now.subsec_millis()), self.role, std::process::id());
        let _ = (&self.file).write_all(line.as_bytes());
        // NVIDIA's programs write here only, if they stay in the foreground.
        let _ = io::stdout().write_all(line.as_bytes());
    }
}

/// A time since 1970 in the form of NVIDIA's logs, in UTC.
fn date(seconds: u64, millis: u32) -> String {
    let (days, second) = (seconds / SECONDS_A_DAY, seconds % SECONDS_A_DAY);
    // Years begin in March here, so that a leap day is the last of its year. An era is 400 years or 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + u64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{of_month:02} {hour:02}:{minute:02}:{:02}.{millis:03}", second % 60)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0, 7), "1970-01-01 00:00:00.007");
        assert_eq!(date(951_782_400, 0), "2000-02-29 00:00:00.000");
        assert_eq!(date(1_651_161_367, 410), "2022-04-28 15:56:07.410");
        assert_eq!(date(1_735_689_599, 999), "2024-12-31 23:59:59.999");
    }
}
