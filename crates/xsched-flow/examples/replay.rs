//! Replays journals through the models: `cargo xtask replay [--bless] FILE…`. A file is a `.xsj` as recorded, or its gzip.
//!
//! Shows for each model how many of its answers differ from the recorded ones, and the first difference; later ones may follow from it.
//! `--bless` writes today's answers into the files, after a wanted difference. The commit message should then give the number of
//! differences.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use xsched_flow::journal::{Replay, bless, replay};

use xsched_proto::Error;

fn main() -> ExitCode {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let blesses = files.first().is_some_and(|word| word == "--bless");
    files.drain(..usize::from(blesses));
    if files.is_empty() {
        eprintln!("usage: replay [--bless] FILE…: give journals, as XSCHED_JOURNAL has them written, or gzip of them");
        return ExitCode::from(2);
    }
    let mut different = 0;
    for file in &files {
        let path = Path::new(file);
        let replayed = read(path).and_then(|bytes| replay(&bytes).map(|found| (bytes, found)));
        match replayed.and_then(|(bytes, found)| if blesses { write(path, &bytes).map(|()| found) } else { Ok(found) })
        {
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
    ExitCode::from(u8::from(different > 0 && !blesses))
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    let bytes = std::fs::read(file).map_err(Error::input)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain).map_err(Error::input)?;
    Ok(plain)
}

/// Writes a journal with today's answers.
fn write(file: &Path, journal: &[u8]) -> Result<(), Error> {
    let blessed = bless(journal)?;
    let to = std::fs::File::create(file).map_err(Error::input)?;
    let done = if file.extension().is_some_and(|end| end == "gz") {
        let mut packed = flate2::write::GzEncoder::new(to, flate2::Compression::best());
        packed.write_all(&blessed).and_then(|()| packed.finish().map(drop))
    } else {
        (&to).write_all(&blessed)
    };
    done.map_err(Error::input)
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
