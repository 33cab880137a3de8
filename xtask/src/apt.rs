//! Packages of another suite of Debian, to be unpacked into folders without installing them. apt resolves, downloads and checks them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt with its own lists, cache and settings, for one suite.
pub(crate) struct Apt {
    folder: PathBuf,
    pub(crate) suite: String,
}

impl Apt {
    /// Downloads the lists of the suite.
    pub(crate) fn new(folder: &Path, suite: &str) -> Result<Apt, String> {
        for needed in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(needed)).map_err(|e| said(folder, &e))?;
        }
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).map_err(|e| said(folder, &e));
        // Packages that experimental lacks come from sid.
        let suites = if suite == "experimental" { vec!["sid", suite] } else { vec![suite] };
        let sources: String =
            suites.iter().map(|suite| format!("deb [signed-by={KEYS}] {MIRROR} {suite} main\n")).collect();
        let at = folder.display();
        let settings = format!(
            "Dir::State \"{at}/state\";\nDir::State::status \"{at}/status\";\nDir::Cache \"{at}/cache\";\n\
             Dir::Etc::sourcelist \"{at}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures \"amd64\";\nAPT::Install-Recommends \"false\";\n\
             APT::Sandbox::User \"root\";\nAPT::Keep-Downloaded-Packages \"true\";\nAcquire::Languages \"none\";\n"
        );
        write("sources.list", &sources)?;
        write("status", "")?;
        write("settings", &settings)?;
        let apt = Apt { folder: folder.to_path_buf(), suite: suite.to_string() };
        apt.ask("apt-get", &["update", "-qq"])?;
        Ok(apt)
    }

    /// Working folder, where packages are stored.
    pub(crate) fn archives(&self) -> PathBuf {
        self.folder.join("cache/archives")
    }

    fn output(&self, program: &str, args: &[&str]) -> Result<Output, String> {
        let mut command = Command::new(program);
        command.args(args).env("APT_CONFIG", self.folder.join("settings")).current_dir(self.archives());
        command.output().map_err(|e| format!("{program}: {e}; the packages are Debian's, and need its apt"))
    }

    /// Output of a command, or the line that gives the reason of its failure.
    pub(crate) fn ask(&self, program: &str, args: &[&str]) -> Result<String, String> {
        let output = self.output(program, args)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        // Unmet dependencies are listed on stdout, in a table whose entries are the only ones with "but".
        let line = out.lines().find(|line| line.contains(" but ")).or(errors.lines().find(|l| l.starts_with("E:")));
        Err(line.unwrap_or("apt failed").split_whitespace().collect::<Vec<_>>().join(" "))
    }

    pub(crate) fn install(&self, options: &[&str], packages: &[&str]) -> Result<String, String> {
        let always = ["install", "-y", "-q", "-t", self.suite.as_str()];
        self.ask("apt-get", &[&always, options, packages].concat())
    }
}

/// Entries of a folder, sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// Error message with the path.
pub(crate) fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Removes a folder. A missing one is no error.
pub(crate) fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(said(folder, &error)),
        _ => Ok(()),
    }
}
