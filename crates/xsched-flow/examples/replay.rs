//! Replays journals through the models: `cargo xtask replay FILE…` (a `.xsj` as it was written, or gzip of it).
//!
//! Shows, for each model, how many asks it answers differently now and the first of them; later ones follow from it.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use xsched_flow::journal::{Replay, replay};

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: replay FILE…: give journals, as XSCHED_JOURNAL has them written, or gzip of them");
        return ExitCode::from(2);
    }
    let mut different = 0;
    for file in &files {
        match read(Path::new(file)).and_then(|bytes| replay(&bytes)) {
            Ok(found) => {
                different += found.differences();
                show(file, &found);
            }
            Err(why) => {
                eprintln!("replay: {file}: {why}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::from(u8::from(different > 0))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(file).map_err(|e| e.to_string())?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain).map_err(|e| e.to_string())?;
    Ok(plain)
}

fn show(file: &str, found: &Replay) {
    let end = if found.cut_short { " (cut short)" } else { "" };
    println!("{file}{end}");
    for (model, (all, different)) in &found.models {
        println!("  {model:<10}{all:>9} asks{different:>9} answered differently");
        if let Some((number, then, now)) = found.first.get(model) {
            println!("    first, record {number}:\n      then {then:?}\n      now  {now:?}");
        }
    }
}
